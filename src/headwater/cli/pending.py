"""``headwater pending``: the pending entries of a stream's groups, and what each is waiting for.

headwater pending orders
headwater pending orders billing -o json
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.query import (
    DEFAULT_URL,
    Output,
    OutputFormat,
    Url,
    length_of_time,
    print_json,
    print_table,
    query,
)

if TYPE_CHECKING:
    from headwater.groups.pending import GroupPending, PendingDelivery


def pending(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream.")],
    group: Annotated[
        str | None, typer.Argument(metavar="GROUP", help="Only this group. [default: all]")
    ] = None,
    *,
    count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Entries of each group, oldest first.")
    ] = 100,
    output: Output = OutputFormat.TEXT,
    url: Url = DEFAULT_URL,
) -> None:
    """Show which entries are pending, and why.

    For each entry: owner, delivery count, age and state. States: in flight (a live consumer owns
    it); parked (it waits for its retry); claimable (the next worker that reads gets it). The oldest
    entry that is not yet delivered is shown too.
    """
    from headwater.groups.pending import pending as report

    found = query(url, report(stream, group, count=count))
    if output is OutputFormat.JSON:
        print_json([_document(one) for one in found])
        return
    if not found:
        print(f"{stream} has no group")
    for number, one in enumerate(found):
        if number:
            print()
        _print(stream, one)


def _document(found: GroupPending) -> dict[str, object]:
    return {**found._asdict(), "entries": [one._asdict() for one in found.entries]}


def _print(stream: str, found: GroupPending) -> None:
    unread = "an unknown number of" if found.unread is None else f"{found.unread:,}"
    print(f"{stream}, group {found.group}: {found.pending:,} pending, {unread} unread")
    if found.oldest_unread:
        age = length_of_time(found.oldest_unread_age_ms or 0)
        print(f"  oldest unread    {found.oldest_unread}, added {age} ago")
    if found.last_seen_ms is None:
        print("  consumers        none: no worker of this group runs")
    else:
        print(f"  last seen        {found.last_seen}, {length_of_time(found.last_seen_ms)} ago")
    if found.claim_after_ms is not None:
        print(f"  claimed after    {length_of_time(found.claim_after_ms)} without a renewal")
    if found.next_due_ms is not None:
        print(f"  next retry       due in {length_of_time(found.next_due_ms)}")
    if not found.entries:
        return
    titles = ("  ID", "STATE", "OWNER", "DELIVERIES", "IDLE", "ADDED")
    print_table(titles, [_row(one) for one in found.entries])
    if found.pending > len(found.entries):
        print(f"  … and {found.pending - len(found.entries):,} more (--count)")


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
