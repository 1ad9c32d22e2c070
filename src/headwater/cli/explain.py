"""``headwater explain``: explain why consumer groups or entries are stuck.

headwater explain orders billing
headwater explain
headwater explain orders billing 1526569498055-0
"""

from __future__ import annotations

import shlex
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import click

from headwater.cli.arguments import MaybeGroup, duration, entry_id
from headwater.cli.command import Option, Positional, watched
from headwater.cli.output import UNHEALTHY, Output, OutputFormat, say, show
from headwater.cli.query import DEFAULT_URL, Unreachable, Url, query, query_together
from headwater.common.names import quoted
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headwater.operations.causes import Cause
    from headwater.operations.explaining import EntryExplanation, Explanation
    from headwater.operations.observation import Observation

MOST_HEALTHY = 20
"""Maximum number of healthy groups that are listed. If there are more, only their number is printed."""

SHOWN = 5
"""Maximum number of ids printed for a cause."""


@watched
def explain(
    stream: Annotated[
        str | None, Positional(metavar="STREAM", help="The stream. [default: all]")
    ] = None,
    group: MaybeGroup = None,
    entry: Annotated[
        str | None, Positional(metavar="ID", parser=entry_id, help="Only this entry.")
    ] = None,
    *,
    window: Annotated[
        str,
        Option(
            parser=duration,
            metavar="DURATION",
            help="Time to observe the groups, to see if workers keep up; 0s: look once.",
        ),
    ] = "2s",
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Explain why consumer groups are stuck, and how to fix it.

    Examines one group, all groups of a stream, or all groups of the store; with an id, one entry. The
    exit status is 0 if nothing is wrong, and 3 if something is wrong or the user's rights do not
    suffice to see it. An entry that waits for its retry is not wrong. Changes nothing.
    """
    from headwater.common.durations import milliseconds
    from headwater.operations.causes import unhealthy
    from headwater.operations.explaining import GroupHealth, explained, gone_groups
    from headwater.operations.explaining import entry as explain_entry

    if entry is not None and stream is not None:
        with _with_reasons(url):
            found = query(url, explain_entry(stream, entry, group))
        show(found, output, lambda: _print_entries(found))
        _exit(any(unhealthy(one.causes) for one in found))
        return
    window_ms = milliseconds(window, what="--window", least_ms=0)
    with _with_reasons(url):
        before = _observed(url, stream, group)
        if window_ms and before:
            time.sleep(window_ms / 1000)
        now = _observed(url, stream, group) if window_ms else before
        answers = explained(now, before if window_ms else ())
        if group is None:
            told = {(one.stream, one.group) for one in answers}
            answers += query(url, gone_groups(told, stream))
    show(answers, output, lambda: _print(answers))
    _exit(any(one.health is not GroupHealth.HEALTHY for one in answers))


def _exit(unhealthy: bool) -> None:
    if unhealthy:
        raise click.exceptions.Exit(UNHEALTHY)


@contextmanager
def _with_reasons(url: str) -> Iterator[None]:
    """Add to an error why the server holds back replies: a primary with synchronous-replicas shows nothing that its
    replicas lack."""
    from headwater.operations.refusals import refusals

    try:
        yield
    except Unreachable as error:
        why = ""
        with suppress(HeadwaterError):
            why = query(url, refusals()).holds_back
        if not why:
            raise
        raise HeadwaterError(f"{error}. The server holds back replies: {why}") from error


def _observed(url: str, stream: str | None, group: str | None) -> list[Observation]:
    """Observe one group, the groups of one stream, or the groups of all streams, many at a time."""
    from headwater.operations.explaining import look, look_if_there
    from headwater.operations.refusals import refusals
    from headwater.operations.streams import names

    if stream is not None:
        return query(url, look(stream, group))
    streams = query(url, names())
    refused = query(url, refusals(*streams))
    looks = query_together(url, (look_if_there(one, refused) for one in streams))
    return [one for found in looks for one in found]


def _print(answers: list[Explanation]) -> None:
    if not answers:
        say("there are no consumer groups")
    healthy = sum(not one.causes and one.health == "healthy" for one in answers)
    if healthy > MOST_HEALTHY:
        say(f"{healthy:,} groups are healthy")
    for one in answers:
        if healthy > MOST_HEALTHY and not one.causes and one.health == "healthy":
            continue
        unread = "an unknown number of" if one.unread is None else f"{one.unread:,}"
        say(
            f"{quoted(one.stream)}, group {quoted(one.group)}: {one.health}. {one.pending:,} pending, {unread} unread"
        )
        _print_causes(one.causes)
        if one.unknown:
            say(f"  the server does not tell this user: {'; '.join(one.unknown)}")


def _print_entries(found: list[EntryExplanation]) -> None:
    for one in found:
        say(
            f"{quoted(one.stream)} {one.entry}, group {quoted(one.group)}: {one.state}: {one.statement}"
        )
        _print_causes(one.causes)


def _print_causes(causes: Sequence[Cause]) -> None:
    for cause in causes:
        say(f"  {cause.name}: {cause.statement}")
        if len(cause.entries) > 1:
            more = f" … {len(cause.entries) - SHOWN:,} more" if len(cause.entries) > SHOWN else ""
            say(f"    entries  {' '.join(cause.entries[:SHOWN])}{more}")
        if cause.fix:
            say(f"    fix      {cause.fix}")
        if cause.server:
            say(f"    fix      on the server: {shlex.join(cause.server)}")
