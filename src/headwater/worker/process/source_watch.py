"""Finds changed source files of an app, by their modification times, for ``headwater work --reload``.

Rule. The watched files are the Python files below the current directory, except those in hidden directories and
virtual environments, and the files of other modules that the app has imported, except the standard library and
installed packages.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

MOST_FILES = 20_000
"""Maximum number of watched files below the current directory."""

PRUNED = {"__pycache__", "node_modules", "site-packages"}

Snapshot = dict[str, tuple[int, int]]
"""Path → modification time in nanoseconds, and size in bytes."""


class SourceWatch:
    """Compares the source files with their previous state."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._elsewhere = list(_imported())
        self._before = self._look()

    def add(self, file: str) -> None:
        """Watch this file as well."""
        if file not in self._before:
            self._elsewhere.append(file)
            self._before |= self._stat([file])

    def changed(self) -> list[str]:
        """Return the files that were written, added or deleted since the last call, sorted."""
        before, self._before = self._before, self._look()
        both = before.keys() | self._before.keys()
        return sorted(one for one in both if before.get(one) != self._before.get(one))

    def _look(self) -> Snapshot:
        return self._stat((*_files_under(self._root), *self._elsewhere))

    def _stat(self, paths: Iterable[str]) -> Snapshot:
        found: Snapshot = {}
        for path in paths:
            try:
                seen = os.stat(path)  # noqa: PTH116  # strings are faster, and this runs thousands of times
            except OSError:
                continue  # deleted since it was listed
            found[path] = (seen.st_mtime_ns, seen.st_size)
        return found


def _files_under(root: Path) -> Iterator[str]:
    count = 0
    for directory, names, files in os.walk(root):
        names[:] = [
            one
            for one in names
            if not one.startswith(".")
            and one not in PRUNED
            and not os.path.exists(os.path.join(directory, one, "pyvenv.cfg"))  # noqa: PTH110, PTH118
        ]
        for file in files:
            if file.endswith(".py"):
                count += 1
                if count > MOST_FILES:
                    return
                yield os.path.join(directory, file)  # noqa: PTH118  # as above


def is_source(file: str | None) -> bool:
    """Return whether ``file`` is a Python file that is not part of Python, an installed package, or this package.

    >>> is_source("/var/lib/shop/shop.py"), is_source(os.__file__), is_source("<frozen importlib>")
    (True, False, False)
    """
    return file is not None and file.endswith(".py") and not file.startswith(_installed())


@cache
def _installed() -> tuple[str, ...]:
    """Return the directories of the standard library, installed packages and this package."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = [sysconfig.get_path(name) for name in names]
    ours = str(Path(__file__).parents[2])
    return (*paths, *site.getsitepackages(), site.getusersitepackages(), ours)


def _imported() -> Iterable[str]:
    """Return the files of imported modules that are not installed packages."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [file for file in files if file is not None and is_source(file)]
