"""``headwater streams``, ``groups`` and ``lag``: what is in the store, and how far groups are behind.

headwater streams list 'orders.*'
headwater groups list orders
headwater lag orders --max 30s
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import click

from headwater.cli import positions
from headwater.cli.arguments import MaybeGroup, StreamName
from headwater.cli.command import CommandGroup, Option, Positional
from headwater.cli.output import UNHEALTHY, Output, OutputFormat, print_table, show
from headwater.cli.query import DEFAULT_URL, Url, query
from headwater.errors import HeadwaterError
from headwater.operations.times import length_of_time

if TYPE_CHECKING:
    from headwater.groups.operation import Operation
    from headwater.operations.streams import GroupLag, StreamSummary

streams_app = CommandGroup()
groups_app = CommandGroup()

WATCH_SECONDS = 2.0

Watch = Annotated[bool, Option("--watch", "-w", help="Print again every 2 seconds, until Ctrl-C.")]
Pattern = Annotated[
    str, Positional(metavar="PATTERN", help="Streams whose names match, such as 'orders.*'.")
]


def repeated(print_once: Callable[[], None], *, watch: bool) -> None:
    """Call ``print_once``; with ``watch``, again and again, clearing a terminal in between."""
    while True:
        if watch and sys.stdout.isatty():
            print("\x1b[2J\x1b[H", end="")
        print_once()
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(WATCH_SECONDS)


@streams_app.add("list")
def list_streams(
    pattern: Pattern = "*",
    *,
    watch: Watch = False,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List streams: entries, groups, pending entries, and what the slowest group has not read."""
    repeated(lambda: _print_streams(query(url, _summaries(pattern)), output), watch=watch)


def _summaries(pattern: str) -> Operation[list[StreamSummary]]:
    from headwater.operations.streams import names, summaries

    return (yield from summaries((yield from names(pattern))))


def _print_streams(found: list[StreamSummary], output: OutputFormat) -> None:
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

    show([one._asdict() for one in found], output, table)


def number(count: int | None) -> str:
    """Return a count as text; ``unknown`` for None."""
    return "unknown" if count is None else f"{count:,}"


streams_app.add()(positions.trim)


@groups_app.add("list")
def list_groups(
    stream: Annotated[
        str | None, Positional(metavar="STREAM", help="The stream. [default: all]")
    ] = None,
    *,
    watch: Watch = False,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List groups: consumers, pending and delayed entries, unread entries and their age."""
    repeated(lambda: _print_groups(query(url, _lags(stream, None)), output), watch=watch)


def _lags(stream: str | None, group: str | None) -> Operation[list[GroupLag]]:
    from headwater.operations.streams import lags, names

    which = [stream] if stream is not None else (yield from names())
    return (yield from lags(which, group))


def _print_groups(found: list[GroupLag], output: OutputFormat) -> None:
    def table() -> None:
        rows = [
            (
                one.stream,
                one.group,
                str(one.consumers),
                f"{one.pending:,}",
                number(one.delayed),
                number(one.unread),
                length_of_time(one.lag_ms) if one.lag_ms else "-",
                "-" if one.oldest_pending_ms is None else length_of_time(one.oldest_pending_ms),
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

    show([one._asdict() for one in found], output, table)


groups_app.add()(positions.reset)


def lag(
    stream: StreamName,
    group: MaybeGroup = None,
    *,
    longest: Annotated[
        str | None,
        Option(
            "--max",
            metavar="DURATION",
            help="Exit with status 3 if the oldest unread entry is older.",
        ),
    ] = None,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Show how far the groups of a stream are behind.

    In entries, and as the age of the oldest unread one.
    """
    from headwater.worker.durations import milliseconds

    found = query(url, _lags(stream, group))
    if group is not None and not found:
        raise HeadwaterError(
            f"stream {stream!r} has no group {group!r}; `headwater groups list {stream}` lists them"
        )

    def table() -> None:
        rows = [
            (one.group, number(one.unread), length_of_time(one.lag_ms) if one.lag_ms else "-")
            for one in found
        ]
        print_table(("GROUP", "UNREAD", "LAG"), rows)

    show([one._asdict() for one in found], output, table)
    if longest is not None:
        longest_ms = milliseconds(longest, what="--max", least_ms=0)
        if any(one.lag_ms > longest_ms for one in found):
            raise click.exceptions.Exit(UNHEALTHY)
