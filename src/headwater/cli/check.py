"""``headwater check``: check the files of a data directory, and the state that they contain.

headwater check data
headwater check data -o json
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headwater.cli.directories import Directory, files_of
from headwater.cli.output import UNHEALTHY, Output, OutputFormat, say, show
from headwater.cli.progress import Busy

if TYPE_CHECKING:
    from headwater.persistence.checking import StoreCheck


def check(
    directory: Directory,
    *,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Check the files of a store.

    No server may use the directory: check a backup of a running server instead. Reads the image, the journal and every
    entry on disk with their checksums, and verifies the recovered state. Also reads what journal-retention keeps:
    damage there affects the history only. Writes nothing and needs no write permission. The exit status is 0 if all is
    well, 3 if something is damaged.
    """
    from headwater.persistence.checking import check_store

    with Busy("checked") as progress:
        found = check_store(files_of(directory), progress)._replace(directory=str(directory))
    judged = {**found._asdict(), "healthy": found.healthy, "sound": found.sound}
    show([judged], output, lambda: _print(found))
    if not found.healthy:
        raise click.exceptions.Exit(UNHEALTHY)


def _print(found: StoreCheck) -> None:
    state = "healthy" if found.sound else "damaged"
    if found.past:
        state = f"the current state is {state}; the history before {found.past_until} is damaged"
    say(f"{found.directory}: {state}")
    for flaw in found.past:
        say(f"  only the history is affected: {flaw}")
    if found.past_remedy is not None:
        say(f"  {found.past_remedy}")
    if found.damage is not None:
        say(f"  it cannot be opened: {found.damage}")
        return
    streams = "1 stream" if found.streams == 1 else f"{found.streams:,} streams"
    entries = "1 entry" if found.entries == 1 else f"{found.entries:,} entries"
    say(f"  {streams} with {entries}")
    for one in found.unreadable:
        say(
            f"  database {one.database}, stream {one.stream}: {one.entries:,} entries from {one.first} to "
            f"{one.last} cannot be read: {one.reason}"
        )
    for flaw in found.weakened:
        say(f"  nothing is lost yet: {flaw}")
    for cut in found.cuts:
        say(f"  a crash left a torn end, which the next start cuts off: {cut}")
    for note in found.notes:
        say(f"  {note}")
    for fault in found.faults:
        say(f"  the state breaks a rule: {fault}")
