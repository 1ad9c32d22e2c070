"""List of compiled modules, and a check that each extension was compiled from the current sources.

A module is *hot* if there is a ``.pxd`` file next to its ``.py`` file. The ``.pxd`` gives the C types, and
its presence puts the module on the list of modules to compile. Each extension contains the digest of the
sources it was compiled from, as a string in its data. Without the digest, an extension next to an edited
source would run unnoticed.

``setup.py`` loads this file by its path, so it imports only the standard library.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

MARK = "headwater-sources:"
"""Text that precedes the digest in an extension's data."""

SHARED = "headwater._shared"
"""The extension that all others import. Cython writes it; it has no source."""


class HotModule(NamedTuple):
    """One module that is compiled if a compiler is available."""

    name: str
    source: Path

    def digest(self) -> str:
        """Return the SHA-256 of everything that the compiled form depends on, as 64 hex digits.

        That is the module's own source and every ``.pxd`` of the package: the layout of a C struct that a
        ``.pxd`` declares is compiled into each module that uses it.
        """
        root = self.source.parents[self.name.count(".") - 1]
        found = hashlib.sha256(self.source.read_bytes())
        for declarations in sorted(root.rglob("*.pxd")):
            found.update(declarations.relative_to(root).as_posix().encode() + b"\0")
            found.update(declarations.read_bytes())
        return found.hexdigest()

    def extension(self) -> Path | None:
        """Return the extension next to the source that this Python would load, or None."""
        return _extension_of(self.source)

    def compiled_digest(self) -> str | None:
        """Return the digest in the extension; None if the extension does not exist or has no digest."""
        extension = self.extension()
        return digest_in(extension, self.name) if extension else None

    def state(self) -> str:
        """Return ``compiled``, ``plain``, or ``stale``: compiled from sources that have been edited since."""
        loaded = sys.modules.get(self.name)
        origin = getattr(getattr(loaded, "__spec__", None), "origin", None)
        extension = self.extension()
        if extension is None or (loaded is not None and origin != str(extension)):
            return "plain"
        if loaded is None and _pure_is_installed():
            return "plain"
        return "compiled" if self.compiled_digest() == self.digest() else "stale"


def _extension_of(source: Path) -> Path | None:
    for suffix in EXTENSION_SUFFIXES:
        path = source.with_suffix(suffix)
        if path.exists():
            return path
    return None


def shared_extension(package: Path) -> Path | None:
    """Return the extension `SHARED` in the directory of the package ``headwater``, or None."""
    return _extension_of(package / f"{SHARED.rpartition('.')[2]}.py")


def digest_in(extension: Path, name: str) -> str | None:
    """Return the digest that the extension of the module ``name`` contains, or None."""
    wanted = re.escape(f"{MARK}{name}:".encode()) + rb"([0-9a-f]{64})"
    found = re.search(wanted, extension.read_bytes())
    return found[1].decode() if found else None


def _pure_is_installed() -> bool:
    pure = sys.modules.get("headwater._pure")
    return pure is not None and pure.SourceOnlyFinder in sys.meta_path


def hot_modules(package: Path) -> list[HotModule]:
    """Return every hot module in the directory of the package ``headwater``, sorted by name."""
    found = []
    # A server calls this before it serves its first client, and `Path.rglob` takes twice as long.
    for directory, _, files in os.walk(package):
        sources = {name[:-3] for name in files if name.endswith(".py")}
        hot = sources.intersection(name[:-4] for name in files if name.endswith(".pxd"))
        if hot:
            prefix = Path(directory).relative_to(package.parent).as_posix().replace("/", ".")
            found += [HotModule(f"{prefix}.{name}", Path(directory, f"{name}.py")) for name in hot]
    return sorted(found, key=attrgetter("name"))


def left_over(package: Path) -> list[Path]:
    """Return the extensions of modules that are not hot any more. Python would load them instead of the
    sources."""
    hot = {module.source.with_suffix("") for module in hot_modules(package)}
    if hot:
        hot.add(package / SHARED.rpartition(".")[2])
    found = package.rglob(f"*{EXTENSION_SUFFIXES[0]}")
    return [path for path in found if path.with_name(path.name.partition(".")[0]) not in hot]


def summary(modules: list[HotModule]) -> str:
    """Return the state that all modules have, or ``partly compiled``, for the ready line and ``headwater info``.

    >>> summary([])
    'plain'
    """
    states = {module.state() for module in modules}
    if not states:
        return "plain"
    return states.pop() if len(states) == 1 else "partly compiled"
