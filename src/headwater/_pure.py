"""With ``HEADWATER_PURE=1`` the sources run, whatever extensions stand beside them.

Imported before anything else of the package, by ``headwater/__init__.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType


class SourceOnlyFinder:
    """Finds modules below ``headwater`` as ``.py`` files; leaves every other name to the rest."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of ``headwater.*``'s source, None for what is not ours."""
        if not name.startswith("headwater.") or path is None:
            return None
        for directory in path:
            finder = FileFinder(directory, (SourceFileLoader, SOURCE_SUFFIXES))
            spec = finder.find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
        return None


def install() -> None:
    """Put the finder before the one that prefers extensions; a second call changes nothing."""
    if SourceOnlyFinder not in sys.meta_path:
        sys.meta_path.insert(0, SourceOnlyFinder)
