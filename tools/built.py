"""Whether `make build` has compiled every hot module: ``python tools/built.py [PACKAGE]``.

The extensions of setup.py are optional, so that an installation without a compiler succeeds: a module
that fails to compile is plain Python without a word, and slow. So this looks at the result.

- Where there is a compiler, a module that is not compiled is a failure, and is named.
- Where only some modules are compiled, that is a failure in any case.
- Where there is no compiler, plain Python is what is wanted, but not in CI: with ``CI`` or
  ``CI_PEERS_REQUIRED`` in the environment it fails too.

``HEADWATER_PURE=1`` asks for plain Python, as for setup.py; CI does not build so.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater._build import HotModule, hot_modules

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "headwater"


def compiler(environment: Mapping[str, str]) -> str | None:
    """The C compiler that setuptools would call, None where there is none, or no Cython."""
    wanted = environment.get("CC") or sysconfig.get_config_var("CC") or "cc"
    words = shlex.split(wanted)
    if not words or importlib.util.find_spec("Cython") is None:
        return None
    return shutil.which(words[0], path=environment.get("PATH", os.defpath))


def in_ci(environment: Mapping[str, str]) -> bool:
    """Whether what is missing is a failure."""
    unset = {"", "0", "false"}
    return any(environment.get(name, "") not in unset for name in ("CI", "CI_PEERS_REQUIRED"))


def fault(modules: Sequence[HotModule], environment: Mapping[str, str]) -> str:
    """What is wrong with the build and what to do, empty when nothing is."""
    plain = [one.name for one in modules if one.compiled_digest() != one.digest()]
    if not plain:
        return ""
    said = f"{len(plain)} of {len(modules)} hot modules are not compiled: {', '.join(plain)}"
    found = compiler(environment)
    pure = environment.get("HEADWATER_PURE") == "1"
    if len(plain) < len(modules):
        return f"{said}. Look for the reason with `python setup.py build_ext --inplace`"
    if found is not None and not pure:
        return f"{said}, although {found} is a compiler. build/log has what it said"
    if in_ci(environment):
        return (
            f"{said}. CI needs a C compiler and Cython (on Debian and Ubuntu: apt-get install gcc)"
        )
    return ""


def main(words: Sequence[str]) -> int:
    """1 and the names of the modules where the build is not what it should be."""
    modules = hot_modules(Path(words[0]) if words else PACKAGE)
    wrong = fault(modules, os.environ)
    if wrong:
        print(wrong, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
