"""``headwater streams``, ``groups`` and ``lag``: list streams and groups, and the lag of groups.

headwater streams list 'orders.*' -o json
headwater groups list orders
headwater lag orders --max 30s
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click

from headwater.cli import positions
from headwater.cli.arguments import MaybeGroup, StreamName, duration
from headwater.cli.command import CommandGroup, Option, Positional, watched
from headwater.cli.output import UNHEALTHY, Output, OutputFormat, print_table, say, show
from headwater.cli.query import DEFAULT_URL, Url, query
from headwater.common.names import quoted
from headwater.errors import HeadwaterError
from headwater.operations.times import length_of_time

if TYPE_CHECKING:
    from headwater.groups.protocol.operation import Operation
    from headwater.operations.streams import GroupLag, StreamSummary

app = CommandGroup()
groups = CommandGroup()

Pattern = Annotated[
    str, Positional(metavar="PATTERN", help="Pattern of the streams' names, such as 'orders.*'.")
]


@app.add("list")
@watched
def list_streams(
    pattern: Pattern = "*",
    *,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List streams: entries, groups, pending entries, and the unread entries of the slowest group."""
    _print_streams(query(url, _summaries(pattern)), output)


def _summaries(pattern: str) -> Operation[list[StreamSummary]]:
    from headwater.operations.streams import names, summaries

    return (yield from summaries((yield from names(pattern))))


def _print_streams(found: list[StreamSummary], output: OutputFormat) -> None:
    from headwater.operations.streams import StreamSummary

    def table() -> None:
        rows = [
            (
                one.stream,
                f"{one.entries:,}",
                str(one.groups),
                f"{one.pending:,}",
                number(one.unread) if one.groups else "-",
            )
            for one in found
        ]
        print_table(("STREAM", "ENTRIES", "GROUPS", "PENDING", "UNREAD"), rows)
        for one in found:
            if one.schedule is not None:
                say(f"{quoted(one.stream)}: {one.schedule}: {_ticks(one)}")

    show(found, output, table, StreamSummary._fields)


def _ticks(one: StreamSummary) -> str:
    last, left = one.last_tick_ms, one.next_tick_ms
    said = "no tick yet" if last is None else f"last tick {length_of_time(last)} ago"
    if left is None:
        return said
    late = f"the next was due {length_of_time(-left)} ago"
    return f"{said}, {late if left < 0 else f'next in {length_of_time(left)}'}"


def number(count: int | None) -> str:
    """Return a count as text; ``unknown`` for None."""
    return "unknown" if count is None else f"{count:,}"


def _age(lag_ms: int | None) -> str:
    if lag_ms is None:
        return "unknown"
    return length_of_time(lag_ms) if lag_ms else "-"


app.add()(positions.trim)


@groups.add("list")
@watched
def list_groups(
    stream: Annotated[
        str | None, Positional(metavar="STREAM", help="The stream. [default: all]")
    ] = None,
    *,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List groups: consumers, pending and delayed entries, unread entries and their age."""
    _print_groups(query(url, _lags(stream, None)), output)


def _lags(stream: str | None, group: str | None) -> Operation[list[GroupLag]]:
    from headwater.operations.streams import lags, names

    which = [stream] if stream is not None else (yield from names())
    return (yield from lags(which, group))


def _print_groups(found: list[GroupLag], output: OutputFormat) -> None:
    from headwater.operations.streams import GroupLag

    titles = (
        *("STREAM", "GROUP", "CONSUMERS", "PENDING", "DELAYED", "UNREAD", "LAG"),
        "OLDEST PENDING",
    )
    rows = [
        (
            one.stream,
            one.group,
            str(one.consumers),
            f"{one.pending:,}",
            number(one.delayed),
            number(one.unread),
            _age(one.lag_ms),
            _age(one.oldest_pending_ms if one.pending else 0),
        )
        for one in found
    ]
    show(found, output, lambda: print_table(titles, rows), GroupLag._fields)


groups.add()(positions.reset)


@watched
def lag(
    stream: StreamName,
    group: MaybeGroup = None,
    *,
    longest: Annotated[
        str | None,
        Option(
            "--max",
            parser=duration,
            metavar="DURATION",
            help="Exit with status 3 if the oldest unread entry is older than this, or its age is unknown.",
        ),
    ] = None,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Show the lag of the groups of a stream.

    Shows the number of unread entries, and the age of the oldest of them.
    """
    from headwater.common.durations import milliseconds
    from headwater.operations.streams import GroupLag

    found = query(url, _lags(stream, group))
    if group is not None and not found:
        raise HeadwaterError(
            f"stream {stream!r} has no group {group!r}; `headwater groups list {stream}` lists them"
        )
    rows = [(one.group, number(one.unread), _age(one.lag_ms)) for one in found]
    titles = ("GROUP", "UNREAD", "LAG")
    show(found, output, lambda: print_table(titles, rows), GroupLag._fields)
    if longest is not None:
        longest_ms = milliseconds(longest, what="--max", least_ms=0)
        # An unknown lag counts as too long.
        if any(one.lag_ms is None or one.lag_ms > longest_ms for one in found):
            raise click.exceptions.Exit(UNHEALTHY)
