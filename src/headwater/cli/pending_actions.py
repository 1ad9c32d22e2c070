"""``headwater pending release | claim | ack | bury``: an operator's actions on pending entries.

headwater pending release orders billing --consumer web-1 --dry-run
headwater pending claim orders billing --to web-2 --idle 10m
headwater pending ack orders billing 1526569498055-0
headwater pending bury orders billing --deliveries 10 --reason 'see ticket 17'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

from headwater.cli.arguments import DryRun, GroupName, StreamName, Yes, duration, entry_id
from headwater.cli.command import CommandGroup, Option, Positional, confirm, wrong
from headwater.cli.output import Output, OutputFormat, print_table, say, show
from headwater.cli.query import DEFAULT_URL, Url, query
from headwater.errors import HeadwaterError
from headwater.operations.times import length_of_time

if TYPE_CHECKING:
    from headwater.groups.protocol.operation import Operation
    from headwater.groups.reports.pending import GroupInfo, PendingDelivery
    from headwater.operations.actions import Done, Selection
    from headwater.operations.records import Action

    Act = Callable[[GroupInfo, Sequence[PendingDelivery], list[Done]], Operation[list[Done]]]

Ids = Annotated[
    list[str] | None, Positional(metavar="ID…", parser=entry_id, help="Ids of pending entries.")
]
All = Annotated[bool, Option("--all", help="All pending entries of the group.")]
Owner = Annotated[
    str | None,
    Option("--consumer", metavar="NAME", help="Only entries that this consumer owns."),
]
Idle = Annotated[
    str,
    Option(parser=duration, metavar="DURATION", help="Only entries idle for at least this time."),
]
Deliveries = Annotated[
    int, Option(min=0, metavar="N", help="Only entries with at least N deliveries.")
]

SHOWN = 20
"""Maximum number of entries that a preview lists."""


class Change(NamedTuple):
    """An action on pending entries, with the options of its command line."""

    stream: str
    group: str
    which: Selection
    word: str
    """Past participle of the action, for messages, such as ``handed back``."""
    dry_run: bool
    yes: bool
    output: OutputFormat
    url: str

    def carry_out(self, act: Act, action: Action, *, to: str = "") -> None:
        """Show the entries and ask for confirmation unless ``yes``, act on them, and print the result. Raises
        `HeadwaterError` if some were not changed. It says how many, or how many were changed before an error.

        If Ctrl-C or an error ends the action, this records what was done before, as ``action``, with ``to``.
        """
        from headwater.groups.reports.pending import PendingDelivery

        rows = query(self.url, self._selected())
        what = "1 entry" if len(rows) == 1 else f"{len(rows):,} entries"
        if self.dry_run or not rows:
            show(rows, self.output, lambda: _preview(rows), PendingDelivery._fields)
            return
        if not self.yes:
            if self.output is OutputFormat.TABLE:
                _preview(rows)
            question = (
                f"{what} of group {self.group} of {self.stream} will be {self.word}. Continue?"
            )
            confirm(question)
        done: list[Done] = []
        try:
            query(self.url, self._act(act, rows, done))
        except KeyboardInterrupt:  # the server may carry out the last request as well
            say(f"at least {sum(one.done for one in done):,} of {what} {self.word}", error=True)
            self._record(action, done, to)
            raise
        except HeadwaterError as error:
            if not done:
                raise
            self._record(action, done, to)
            count = sum(one.done for one in done)
            raise HeadwaterError(
                f"at least {count:,} of {what} {self.word}, then: {error}"
            ) from error
        failed = [one for one in done if not one.done]

        def text() -> None:
            say(f"{len(done) - len(failed):,} {self.word}")
            for one in failed:
                say(f"{one.id}: {one.reason}")

        show(done, self.output, text)
        if failed:
            raise HeadwaterError(f"{len(failed):,} not {self.word}")

    def _selected(self) -> Operation[list[PendingDelivery]]:
        from headwater.operations.actions import select_in

        return (yield from select_in(self.stream, self.group, self.which))

    def _record(self, action: Action, done: Sequence[Done], to: str) -> None:
        """Record what was done of an action that did not end by itself."""
        from headwater.messages.keys import actions_key
        from headwater.operations.records import record

        ids = [one.id for one in done if one.done]
        if not ids:
            return
        try:
            query(self.url, record(self.stream, action, ids, group=self.group, to=to))
        except HeadwaterError as error:
            say(f"not recorded in {actions_key(self.stream)}: {error}", error=True)

    def _act(
        self, act: Act, rows: Sequence[PendingDelivery], done: list[Done]
    ) -> Operation[list[Done]]:
        from headwater.groups.reports.pending import groups

        (of,) = yield from groups(self.stream, self.group)
        return (yield from act(of, rows, done))


def _preview(rows: Sequence[PendingDelivery]) -> None:
    if not rows:
        say("no pending entry matches")
        return
    cells = [
        (
            one.id,
            one.state,
            one.owner or "-",
            str(one.deliveries),
            "-" if one.idle_ms is None else length_of_time(one.idle_ms),
        )
        for one in rows[:SHOWN]
    ]
    print_table(("ID", "STATE", "OWNER", "DELIVERIES", "IDLE"), cells)
    if len(rows) > SHOWN:
        say(f"… and {len(rows) - SHOWN:,} more")


def _selection(
    ids: list[str] | None, every: bool, consumer: str | None, idle: str, deliveries: int
) -> Selection:
    from headwater.common.durations import milliseconds
    from headwater.operations.actions import Selection

    idle_ms = milliseconds(idle, what="--idle", least_ms=0)
    filtered = consumer is not None or idle_ms > 0 or deliveries > 0
    if every and (ids or filtered):
        raise wrong("--all selects everything: leave out the ids and the other options, or --all")
    if not (ids or filtered or every):
        raise wrong(
            "nothing is selected: name ids, or use --consumer, --idle, --deliveries or --all"
        )
    return Selection([*(ids or ())], consumer, idle_ms, deliveries)


def release(
    stream: StreamName,
    group: GroupName,
    ids: Ids = None,
    *,
    every: All = False,
    consumer: Owner = None,
    idle: Idle = "0s",
    deliveries: Deliveries = 0,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Hand entries back, so that the next consumer that claims gets them at once.

    Entries that wait for a retry become due at once. Delivery counts do not change. Do not hand back
    entries that a running consumer works on: they would be handled twice.
    """
    from headwater.operations.actions import release as act
    from headwater.operations.records import Action

    which = _selection(ids, every, consumer, idle, deliveries)
    change = Change(stream, group, which, "handed back", dry_run, yes, output, url)
    change.carry_out(act, Action.RELEASE)


def claim(
    stream: StreamName,
    group: GroupName,
    ids: Ids = None,
    *,
    to: Annotated[str, Option("--to", metavar="NAME", help="The new owner of the entries.")],
    every: All = False,
    consumer: Owner = None,
    idle: Idle = "0s",
    deliveries: Deliveries = 0,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Give entries to another consumer, as XCLAIM does.

    Use it for consumers that read their own pending entries. For Headwater's workers use release: they
    claim entries that were handed back.
    """
    from headwater.operations.actions import claim as act
    from headwater.operations.records import Action

    if not to:
        raise wrong("--to is empty: name the new owner; `pending release` makes entries free")
    which = _selection(ids, every, consumer, idle, deliveries)
    change = Change(stream, group, which, f"given to {to}", dry_run, yes, output, url)
    change.carry_out(partial(act, consumer=to, idle_ms=which.idle_ms), Action.CLAIM, to=to)


def ack(
    stream: StreamName,
    group: GroupName,
    ids: Ids = None,
    *,
    every: All = False,
    consumer: Owner = None,
    idle: Idle = "0s",
    deliveries: Deliveries = 0,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Acknowledge entries without handling them. This cannot be undone; bury keeps a dead letter instead."""
    from headwater.operations.actions import acknowledge as act
    from headwater.operations.records import Action

    which = _selection(ids, every, consumer, idle, deliveries)
    change = Change(stream, group, which, "acknowledged", dry_run, yes, output, url)
    change.carry_out(act, Action.ACKNOWLEDGE)


def bury(
    stream: StreamName,
    group: GroupName,
    ids: Ids = None,
    *,
    reason: Annotated[
        str, Option(metavar="TEXT", help="The error recorded in the dead letters.")
    ] = "buried by an operator",
    every: All = False,
    consumer: Owner = None,
    idle: Idle = "0s",
    deliveries: Deliveries = 0,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Turn entries into dead letters, each in one step with its acknowledgement.

    `headwater dead replay` delivers them again.
    """
    from headwater.messages.keys import dead_letter_stream
    from headwater.operations.actions import bury as act
    from headwater.operations.records import Action

    which = _selection(ids, every, consumer, idle, deliveries)
    change = Change(stream, group, which, "buried", dry_run, yes, output, url)
    change.carry_out(partial(act, error=reason), Action.BURY, to=dead_letter_stream(stream))


def add_to(app: CommandGroup) -> None:
    """Add the four commands to ``headwater pending``."""
    for command in (release, claim, ack, bury):
        app.add()(command)
