"""``headwater scheduled``: list and cancel scheduled messages.

headwater scheduled list orders
headwater scheduled cancel orders 1526569498055-0 --dry-run
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from headwater.cli.arguments import DryRun, StreamName, Yes, entry_id
from headwater.cli.command import CommandGroup, Option, Positional, confirm, watched, wrong
from headwater.cli.output import Output, OutputFormat, print_table, say, show
from headwater.cli.query import DEFAULT_URL, Url, query
from headwater.common.names import quoted
from headwater.errors import HeadwaterError
from headwater.operations.times import length_of_time

if TYPE_CHECKING:
    from headwater.operations.scheduled import ScheduledMessage

app = CommandGroup()


@app.add("list")
@watched
def list_scheduled(
    stream: StreamName,
    *,
    count: Annotated[int, Option(min=1, metavar="N", help="List at most N messages.")] = 100,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List scheduled messages by due time: id, time until due, fields.

    This works even if no worker of the stream has run. If the stream has partitions, name a partition.
    """
    from headwater.operations.scheduled import ScheduledMessage, scheduled

    found = query(url, scheduled(stream))
    shown = found[:count]

    def table() -> None:
        rows = [
            (
                one.id,
                length_of_time(one.due_ms),
                ", ".join(f"{quoted(name)}={quoted(value)}" for name, value in one.fields),
            )
            for one in shown
        ]
        print_table(("ID", "DUE IN", "FIELDS"), rows)
        if len(found) > len(shown):
            say(f"… and {len(found) - len(shown):,} more (--count)")

    show(shown, output, table, ScheduledMessage._fields)


@app.add()
def cancel(
    stream: StreamName,
    ids: Annotated[
        list[str] | None,
        Positional(metavar="ID…", parser=entry_id, help="Ids of scheduled messages."),
    ] = None,
    *,
    every: Annotated[bool, Option("--all", help="All scheduled messages of the stream.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Cancel scheduled messages. This cannot be undone.

    A message that a worker publishes at the same time is either published or cancelled, never both.
    """
    from headwater.operations.records import Action, record
    from headwater.operations.scheduled import ScheduledMessage, cancel_all, scheduled

    if bool(ids) == every:
        raise wrong("name ids, or use --all")
    found = query(url, scheduled(stream))
    there = {one.id for one in found}
    if unknown := [one for one in ids or () if one not in there]:
        raise HeadwaterError(
            f"{', '.join(unknown)} not scheduled for {stream}: already published or cancelled, or mistyped; "
            "`headwater scheduled list` lists the scheduled messages"
        )
    named = {*(ids or ())}
    chosen = [one for one in found if every or one.id in named]
    if dry_run or not chosen:
        show(chosen, output, lambda: _preview(stream, chosen), ScheduledMessage._fields)
        return
    what = "1 message" if len(chosen) == 1 else f"{len(chosen):,} messages"
    if not yes:
        confirm(f"{what} scheduled for {quoted(stream)} will be cancelled. Continue?")
    cancelled: list[str] = []
    try:
        query(url, cancel_all(stream, [one.id for one in chosen], cancelled))
    except KeyboardInterrupt:  # the server may carry out the last request as well
        say(f"at least {len(cancelled):,} of {what} cancelled", error=True)
        if cancelled:
            query(url, record(stream, Action.CANCEL, cancelled))
        raise
    except HeadwaterError as error:
        if not cancelled:
            raise
        raise HeadwaterError(
            f"at least {len(cancelled):,} of {what} cancelled, then: {error}"
        ) from error
    documents = [{"id": one.id, "cancelled": one.id in cancelled} for one in chosen]
    show(documents, output, lambda: say(f"{len(cancelled):,} cancelled"))
    if len(cancelled) < len(chosen):
        raise HeadwaterError(f"{len(chosen) - len(cancelled):,} published or cancelled meanwhile")


def _preview(stream: str, chosen: list[ScheduledMessage]) -> None:
    if not chosen:
        say(f"nothing is scheduled for {quoted(stream)}")
    for one in chosen:
        say(f"{one.id}  due in {length_of_time(one.due_ms)}")
