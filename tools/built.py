"""Checks that `make build` has compiled every hot module: ``python tools/built.py [PACKAGE]``.

The extensions of setup.py are optional, so that an installation without a compiler succeeds. So a module
that fails to compile is silently installed as plain Python, and is slow. This tool checks the result:

- If there is a compiler, a module that is not compiled is a failure, and is named.
- If only some modules are compiled, that is a failure in any case.
- If there is no compiler, plain Python is accepted, except in CI (``CI`` or ``CI_PEERS_REQUIRED`` in the
  environment).

``HEADWATER_PURE=1`` requests plain Python, as for setup.py; CI does not build so.
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
    """Return the C compiler that setuptools would call; None if it or Cython is missing."""
    wanted = environment.get("CC") or sysconfig.get_config_var("CC") or "cc"
    words = shlex.split(wanted)
    if not words or importlib.util.find_spec("Cython") is None:
        return None
    return shutil.which(words[0], path=environment.get("PATH", os.defpath))


def in_ci(environment: Mapping[str, str]) -> bool:
    """Return whether the environment is CI, where plain Python is a failure."""
    unset = {"", "0", "false"}
    return any(environment.get(name, "") not in unset for name in ("CI", "CI_PEERS_REQUIRED"))


def fault(modules: Sequence[HotModule], environment: Mapping[str, str]) -> str:
    """Return what is wrong with the build and what to do; empty if nothing is."""
    plain = [one.name for one in modules if one.compiled_digest() != one.digest()]
    if not plain:
        return ""
    said = f"{len(plain)} of {len(modules)} hot modules are not compiled: {', '.join(plain)}"
    found = compiler(environment)
    pure = environment.get("HEADWATER_PURE") == "1"
    if len(plain) < len(modules):
        return f"{said}. To see the reason, run `python setup.py build_ext --inplace`"
    if found is not None and not pure:
        return f"{said}, although there is a compiler ({found}). Its output is in build/log"
    if in_ci(environment):
        return (
            f"{said}. CI needs a C compiler and Cython (on Debian and Ubuntu: apt-get install gcc)"
        )
    return ""


def main(words: Sequence[str]) -> int:
    """Print what is wrong with the build. Returns 1 if anything is."""
    modules = hot_modules(Path(words[0]) if words else PACKAGE)
    wrong = fault(modules, os.environ)
    if wrong:
        print(wrong, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
