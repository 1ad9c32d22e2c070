"""``headwater history``: the events of one entry of a Headwater store.

headwater history orders 1526569498055-0 --dir data
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headwater.cli.arguments import EntryId, StreamName
from headwater.cli.command import Option
from headwater.cli.directories import files_of
from headwater.cli.output import Output, OutputFormat, print_table, say, show
from headwater.cli.progress import Busy

if TYPE_CHECKING:
    from headwater.persistence.history import EntryEvent, EntryHistory


def history(
    stream: StreamName,
    entry: EntryId,
    *,
    directory: Annotated[
        Path,
        Option("--dir", metavar="DIR", readable=False, help="The data directory of the store."),
    ] = Path(),
    database: Annotated[int, Option("--db", min=0, metavar="N", help="The database.")] = 0,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Print the history of an entry (Headwater only).

    Shows when it was added, delivered, claimed, renewed, handed back and settled, and by which consumer.

    Reads the journal of a Headwater store on this machine, as far back as it reaches, even while a
    server uses it. Redis and Valkey keep no history.
    """
    from headwater.common.model import StreamID
    from headwater.common.moments import iso_time
    from headwater.persistence.history import EntryEvent, entry_history

    with Busy("read") as progress:
        found = entry_history(
            files_of(directory),
            stream.encode("utf-8", "surrogateescape"),
            StreamID.parse(entry),
            database=database,
            progress=progress,
        )
    documents = [{"at": iso_time(one.at_ms), **one._asdict()} for one in found.events]
    show(documents, output, lambda: _print(stream, entry, found), ("at", *EntryEvent._fields))


def _print(stream: str, entry: str, found: EntryHistory) -> None:
    from headwater.common.moments import iso_time

    if found.begins_ms is None:
        since = "since the store began"
    else:
        since = f"since the image of {iso_time(found.begins_ms)}"
    if not found.events:
        say(f"nothing happened to {stream} {entry} {since}")
        return
    say(f"{stream} {entry}, {since}")
    titles = ("AT", "WHAT", "GROUP", "CONSUMER", "DELIVERIES")
    print_table(titles, [_row(one) for one in found.events])


def _row(one: EntryEvent) -> tuple[str, ...]:
    from headwater.common.moments import iso_time

    due = "" if one.due_ms is None else f", due {iso_time(one.due_ms)}"
    count = "-" if one.deliveries is None else str(one.deliveries)
    return (iso_time(one.at_ms), f"{one.what}{due}", one.group or "-", one.consumer or "-", count)
