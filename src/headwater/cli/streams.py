"""``headwater streams``, ``groups`` and ``lag``: what is in the store, and how far groups are behind.

headwater streams list 'orders.*'
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

streams_app = CommandGroup()
groups_app = CommandGroup()

Pattern = Annotated[
    str, Positional(metavar="PATTERN", help="Streams whose names match, such as 'orders.*'.")
]


@streams_app.add("list")
@watched
def list_streams(
    pattern: Pattern = "*",
    *,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List streams: entries, groups, pending entries, and what the slowest group has not read."""
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

    show([one._asdict() for one in found], output, table, StreamSummary._fields)


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


streams_app.add()(positions.trim)


@groups_app.add("list")
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

    def table() -> None:
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
        titles = (
            "STREAM",
            "GROUP",
            "CONSUMERS",
            "PENDING",
            "DELAYED",
            "UNREAD",
            "LAG",
            "OLDEST PENDING",
        )
        print_table(titles, rows)

    show([one._asdict() for one in found], output, table, GroupLag._fields)


groups_app.add()(positions.reset)


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
            help="Exit with status 3 if the oldest unread entry is older, or unknown.",
        ),
    ] = None,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Show how far the groups of a stream are behind.

    In entries, and as the age of the oldest unread one.
    """
    from headwater.common.durations import milliseconds
    from headwater.operations.streams import GroupLag

    found = query(url, _lags(stream, group))
    if group is not None and not found:
        raise HeadwaterError(
            f"stream {stream!r} has no group {group!r}; `headwater groups list {stream}` lists them"
        )

    def table() -> None:
        rows = [(one.group, number(one.unread), _age(one.lag_ms)) for one in found]
        print_table(("GROUP", "UNREAD", "LAG"), rows)

    show([one._asdict() for one in found], output, table, GroupLag._fields)
    if longest is not None:
        longest_ms = milliseconds(longest, what="--max", least_ms=0)
        # What is unknown is not within the bound.
        if any(one.lag_ms is None or one.lag_ms > longest_ms for one in found):
            raise click.exceptions.Exit(UNHEALTHY)
