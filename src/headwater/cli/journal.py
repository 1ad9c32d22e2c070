"""``headwater journal`` and ``headwater store``: the contents of a data directory.

headwater journal verify data
headwater journal dump data --from 2026-11-23T09:30:00Z --limit 20
headwater store data --streams
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

from headwater.cli.arguments import moment
from headwater.cli.command import CommandGroup, Option
from headwater.cli.directories import Directory, files_of
from headwater.cli.output import (
    Output,
    OutputFormat,
    document,
    json_text,
    print_csv,
    print_table,
    show,
)
from headwater.cli.progress import Busy
from headwater.common.moments import iso_time

if TYPE_CHECKING:
    from headwater.persistence.dumping import DumpedChange

SHOWN = 5
"""Maximum number of ids printed for a change."""

app = CommandGroup()


@app.add()
def verify(directory: Directory, *, output: Output = OutputFormat.TABLE) -> None:
    """Read the image and the journal, and verify all checksums.

    A server may use the directory. Damage is an error that names the file and the offset.
    `headwater check` also examines the entries in segments and the recovered state.
    """
    from headwater.persistence.dumping import journal_parts

    with Busy("read") as progress:
        parts = journal_parts(files_of(directory), progress)
    documents = [
        {**one._asdict(), "first": iso_time(one.first_ms), "last": iso_time(one.last_ms)}
        for one in parts
    ]
    titles = ("FILE", "GROUPS", "BYTES", "FIRST", "LAST")
    rows = [
        (
            one.file,
            f"{one.groups:,}",
            f"{one.bytes:,}",
            iso_time(one.first_ms),
            iso_time(one.last_ms),
        )
        for one in parts
    ]
    show(documents, output, lambda: print_table(titles, rows))


@app.add()
def dump(
    directory: Directory,
    *,
    first: Annotated[
        int | None,
        Option("--from", parser=moment, metavar="TIME", help="Groups from this time on."),
    ] = None,
    last: Annotated[
        int | None, Option("--to", parser=moment, metavar="TIME", help="Groups up to this time.")
    ] = None,
    key: Annotated[
        str | None,
        Option(metavar="KEY", help="Only groups that change this key, or a whole database."),
    ] = None,
    limit: Annotated[int, Option(min=1, help="Maximum number of groups.")] = 1_000,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the record groups of the journal.

    A group is one command, transaction or event. It is shown with all its changes, each with database
    and key. Times are ISO 8601, such as 2026-11-23T09:30:00Z, or Unix milliseconds. A server may use the
    directory. JSON is one document per line. The journal does not record which client sent a command.
    """
    from headwater.persistence.dumping import dumped_groups

    busy = Busy("read")
    groups = dumped_groups(
        files_of(directory),
        from_ms=first or 0,
        to_ms=last,
        key=key,
        progress=busy,
    )
    with busy:
        found = list(islice(groups, limit))
    documents = [document({"at": iso_time(one.at_ms), **one._asdict()}) for one in found]
    if output is OutputFormat.JSON:
        for one in documents:
            print(json_text(one))
    elif output is OutputFormat.CSV:
        print_csv(documents)
    else:
        rows = [
            (
                iso_time(one.at_ms),
                f"{one.file}:{one.offset}",
                str(one.bytes),
                _facts(one.facts),
                ", ".join(dict.fromkeys(filter(None, map(_concern, one.changes)))),
            )
            for one in found
        ]
        print_table(("AT", "PLACE", "BYTES", "FACTS", "KEYS"), rows)


def _facts(facts: dict[str, int]) -> str:
    return ", ".join(
        name if number == 1 else f"{name} ({number:,})" for name, number in facts.items()
    )


def _concern(one: DumpedChange) -> str:
    """Return database, key, group and the first ids of a change. Database 0 is omitted if there is a key."""
    where = "" if one.database is None or (one.database == 0 and one.key) else f"db {one.database}"
    group = f"group {one.group}" if one.group else ""
    ids = " ".join(one.ids[:SHOWN])
    more = f"… {len(one.ids) - SHOWN:,} more" if len(one.ids) > SHOWN else ""
    return " ".join(filter(None, (where, one.key, group, ids, more)))


def store(
    directory: Directory,
    *,
    streams: Annotated[
        bool, Option("--streams", help="Instead, list the streams that have entries in segments.")
    ] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the disk space that a data directory uses.

    Lists it by kind of file; with --streams by stream, which reads the store. A server may use the directory.
    """
    from headwater.persistence.disk_use import disk_use, streams_on_disk

    if streams:
        with Busy("read") as progress:
            on_disk = streams_on_disk(files_of(directory), progress)
        rows = [
            (str(one.database), one.stream, f"{one.entries:,}", f"{one.blocks:,}", f"{one.bytes:,}")
            for one in on_disk
        ]
        titles = ("DB", "STREAM", "ENTRIES", "BLOCKS", "BYTES")
        show(on_disk, output, lambda: print_table(titles, rows))
        return
    used = disk_use(files_of(directory).directory)
    lines = [(one.what, f"{one.files:,}", f"{one.bytes:,}") for one in used]
    lines.append(
        ("total", f"{sum(one.files for one in used):,}", f"{sum(one.bytes for one in used):,}")
    )
    show(used, output, lambda: print_table(("WHAT", "FILES", "BYTES"), lines))
