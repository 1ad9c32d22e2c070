"""An import finder for ``HEADWATER_PURE=1``: Python then imports the sources even if compiled extensions exist.

If that variable is set, ``headwater/__init__.py`` installs it before it imports any other module of the package.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType


class SourceOnlyFinder:
    """Finds modules of ``headwater`` as ``.py`` files; leaves all other modules to other finders."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the source of a module ``headwater.…``; None for other modules, and if the source
        does not exist."""
        if not name.startswith("headwater.") or path is None:
            return None
        for directory in path:
            finder = FileFinder(directory, (SourceFileLoader, SOURCE_SUFFIXES))
            spec = finder.find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
        return None


def install() -> None:
    """Put the finder before the one that prefers extensions. A second call changes nothing."""
    if SourceOnlyFinder not in sys.meta_path:
        sys.meta_path.insert(0, SourceOnlyFinder)
