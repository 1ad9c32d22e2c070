"""``headwater backup`` and ``headwater restore``: copies of a store, as it is now or was at an earlier time.

headwater backup data /backups/monday
headwater restore /backups/monday --to data2 --at 2026-11-23T09:30:00Z
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from headwater.cli.arguments import moment
from headwater.cli.command import Option, Positional
from headwater.cli.directories import Directory
from headwater.cli.output import say
from headwater.cli.progress import Busy
from headwater.errors import HeadwaterError
from headwater.journal.disk.regular import remedy


def backup(
    directory: Directory,
    destination: Annotated[
        Path, Positional(metavar="DEST", help="Target directory; must be empty or not exist.")
    ],
) -> None:
    """Copy a store, even while it is in use.

    The copy is a data directory from which a server can start. It contains all changes that had been
    written when the copy began.
    """
    from headwater.persistence.backup import back_up

    try:
        with Busy("copied") as progress:
            found = back_up(directory, destination, progress)
    except OSError as error:
        raise failed("the backup", error, destination) from error
    say(f"{found.directory}: {found.files:,} files, {found.bytes:,} bytes")


def failed(what: str, error: OSError, destination: Path) -> HeadwaterError:
    """Return the error for an incomplete copy, with a remedy. ``what`` names the operation."""
    return HeadwaterError(
        f"{what} failed: {error}. There is no complete copy in {destination}. {remedy(error)}"
    )


def restore(
    directory: Directory,
    *,
    to: Annotated[
        Path,
        Option("--to", metavar="NEWDIR", help="Target directory; must be empty or not exist."),
    ],
    at: Annotated[
        int | None,
        Option(
            parser=moment,
            metavar="TIME",
            help="Point in time: ISO 8601, such as 2026-11-23T09:30:00Z, Unix milliseconds, or '5m ago'. "
            "[default: the latest state]",
        ),
    ] = None,
) -> None:
    """Restore a data directory to a point in time.

    DIR is a data directory or a backup. The earliest TIME is that of its last image, or of the
    oldest image that journal-retention keeps.
    """
    from headwater.common.moments import iso_time
    from headwater.persistence.backup import back_up, restore_at

    try:
        if at is None:
            with Busy("copied") as progress:
                found = back_up(directory, to, progress)
            say(f"{found.directory}: {found.files:,} files, {found.bytes:,} bytes")
            return
        with Busy("copied") as progress:
            found_at = restore_at(directory, to, at, progress)
    except OSError as error:
        raise failed("restoring", error, to) from error
    last = iso_time(found_at.at_ms) if found_at.at_ms else "the store's beginning"
    left = (
        "1 later change is"
        if found_at.left_out == 1
        else f"{found_at.left_out:,} later changes are"
    )
    say(f"{found_at.directory}: as of {last}; {left} left out")
