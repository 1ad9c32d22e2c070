"""Data directories on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headwater.cli.command import Positional

if TYPE_CHECKING:
    from headwater.journal.disk.files import DiskFiles

Directory = Annotated[
    Path,
    # `files_of` reports a directory that cannot be read, with the reason.
    Positional(metavar="DIR", readable=False, help="The data directory, or a backup."),
]


def files_of(directory: Path) -> DiskFiles:
    """Return the files of a data directory. Raises `StoreUnusable` if it cannot be read."""
    from headwater.journal.disk.files import DiskFiles
    from headwater.journal.disk.regular import check_readable

    check_readable(directory)
    return DiskFiles(directory)
