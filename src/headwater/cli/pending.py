"""``headwater pending``: list the pending entries of a stream's groups, and act on them.

headwater pending list orders billing
headwater pending show orders billing 1526569498055-0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from headwater.cli import pending_actions
from headwater.cli.arguments import EntryId, GroupName, StreamName
from headwater.cli.command import CommandGroup, Option, Positional, watched
from headwater.cli.output import Output, OutputFormat, document, print_json, print_table, say, show
from headwater.cli.query import DEFAULT_URL, Url, query
from headwater.common.names import quoted
from headwater.operations.times import length_of_time

if TYPE_CHECKING:
    from headwater.groups.reports.pending import GroupPending, PendingDelivery

app = CommandGroup()


@app.add("list")
@watched
def list_pending(
    stream: StreamName,
    group: Annotated[
        str | None, Positional(metavar="GROUP", help="Only this group. [default: all]")
    ] = None,
    *,
    count: Annotated[
        int, Option(min=1, metavar="N", help="List at most N entries of each group, oldest first.")
    ] = 100,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List pending entries, and what each is waiting for.

    For each entry: owner, delivery count, age and state. States: in flight (owned, and idle for
    less than the group's claim_after, or five minutes if none was announced); parked (waits for its
    retry); limited (waits because of its consumer's limit); claimable (the next worker that reads
    gets it). Also shows the oldest undelivered entry of each group.
    """
    from headwater.groups.protocol.missing_stream import StreamMissing
    from headwater.groups.reports.pending import PendingDelivery, PendingFilter, scheduled_count
    from headwater.groups.reports.pending import pending as report

    later = query(url, scheduled_count(stream))
    try:
        found = query(url, report(stream, group, PendingFilter(count)))
    except StreamMissing:
        if not later:
            raise
        found = []  # the stream does not exist yet, but has scheduled messages
    if output is OutputFormat.JSON:
        print_json(document(found))
        return

    def tables() -> None:
        if not found:
            say(f"{quoted(stream)} has no group")
        if later:
            say(f"{later:,} scheduled for {quoted(stream)}: `headwater scheduled list` lists them")
        for number, one in enumerate(found):
            if number:
                say()
            _print(stream, one)

    rows = [{"group": one.group, **row._asdict()} for one in found for row in one.entries]
    show(rows, output, tables, ("group", *PendingDelivery._fields))


@app.add("show")
def show_entry(
    stream: StreamName,
    group: GroupName,
    entry: EntryId,
    *,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Show one pending entry: its state and its fields."""
    from headwater.errors import HeadwaterError
    from headwater.groups.reports.pending import PendingFilter
    from headwater.groups.reports.pending import pending as report
    from headwater.operations.entries import read_entry

    (found,) = query(url, report(stream, group, PendingFilter(1, entry, entry)))
    if not found.entries:
        raise HeadwaterError(
            f"{entry} is not pending in group {group}; `headwater explain {stream} {group} {entry}` says where "
            "it is"
        )
    (row,) = found.entries
    entry_read = query(url, read_entry(stream, entry))
    pairs = None if entry_read is None else entry_read.fields

    def text() -> None:
        print_table(_TITLES, [_row(row)])
        if pairs is None:
            say("  the stream does not have the entry any more")
        for name, value in pairs or ():
            say(f"  {quoted(name)} = {quoted(value)}")

    show([{**row._asdict(), "fields": pairs}], output, text)


pending_actions.add_to(app)


def _print(stream: str, found: GroupPending) -> None:
    unread = "an unknown number of" if found.unread is None else f"{found.unread:,}"
    say(
        f"{quoted(stream)}, group {quoted(found.group)}: {found.pending:,} pending, {unread} unread"
    )
    if found.oldest_unread:
        age = length_of_time(found.oldest_unread_age_ms or 0)
        say(f"  oldest unread    {found.oldest_unread}, added {age} ago")
    if found.last_seen_ms is None:
        say("  last seen        never: no consumer of this group was ever seen")
    else:
        who = quoted(found.last_seen or "a worker")
        say(f"  last seen        {who}, {length_of_time(found.last_seen_ms)} ago")
    if found.claim_after_ms is not None:
        say(f"  claimed after    {length_of_time(found.claim_after_ms)} without a renewal")
    if found.next_due_ms is not None:
        say(f"  next retry       due in {length_of_time(found.next_due_ms)}")
    if not found.entries:
        return
    print_table(_TITLES, [_row(one) for one in found.entries])
    if found.pending > len(found.entries):
        say(f"  … and {found.pending - len(found.entries):,} more (--count)")


_TITLES = ("  ID", "STATE", "OWNER", "DELIVERIES", "IDLE", "ADDED")


def _row(one: PendingDelivery) -> tuple[str, ...]:
    state = one.state if one.due_ms is None else f"{one.state}, due in {length_of_time(one.due_ms)}"
    return (
        f"  {one.id}",
        state,
        one.owner or "-",
        str(one.deliveries),
        "-" if one.idle_ms is None else length_of_time(one.idle_ms),
        f"{length_of_time(one.age_ms)} ago",
    )
