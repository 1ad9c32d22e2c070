"""Data directories on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.journal.files import DiskFiles

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The data directory, or a backup.")]


def files_of(directory: Path) -> DiskFiles:
    """Return the files of a data directory. Raises `HeadwaterError` if there is no directory."""
    from headwater.journal.files import DiskFiles

    if not directory.is_dir():
        raise HeadwaterError(f"there is no directory {directory}")
    return DiskFiles(directory)
