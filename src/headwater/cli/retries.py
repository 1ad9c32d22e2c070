"""``headwater retries``: list entries that wait for a retry, and run them now.

headwater retries list orders billing
headwater retries run orders billing 1526569498055-0
"""

from __future__ import annotations

from typing import Annotated

from headwater.cli.arguments import DryRun, GroupName, StreamName, Yes, entry_id
from headwater.cli.command import CommandGroup, Option, Positional, watched, wrong
from headwater.cli.output import Output, OutputFormat, print_table, say, show
from headwater.cli.pending_actions import Change
from headwater.cli.query import DEFAULT_URL, Url, query
from headwater.operations.times import length_of_time

app = CommandGroup()

MOST = 100_000
"""Maximum number of entries that ``--all`` runs."""


@app.add("list")
@watched
def list_retries(
    stream: StreamName,
    group: GroupName,
    *,
    count: Annotated[int, Option(min=1, metavar="N", help="List at most N entries.")] = 100,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List entries that wait for a retry: id, time until each is due, delivery count."""
    from headwater.operations.retries import Retry, retries

    found = query(url, retries(stream, group, count=count))
    rows = [(one.id, length_of_time(one.due_ms), str(one.deliveries)) for one in found]

    def table() -> None:
        print_table(("ID", "DUE IN", "DELIVERIES"), rows)
        if len(found) == count:
            say(f"at most {count:,} are listed; there may be more (--count)")

    show(found, output, table, Retry._fields)


@app.add()
def run(
    stream: StreamName,
    group: GroupName,
    ids: Annotated[
        list[str] | None, Positional(metavar="ID…", parser=entry_id, help="Ids of entries.")
    ] = None,
    *,
    every: Annotated[bool, Option("--all", help=f"All that wait, at most {MOST:,}.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Make entries that wait for a retry due now."""
    from headwater.groups.reports.pending import PendingDelivery
    from headwater.operations.actions import Selection
    from headwater.operations.actions import release as act
    from headwater.operations.records import Action
    from headwater.operations.retries import retries

    if bool(ids) == every:
        raise wrong("name ids, or use --all")
    chosen = [*(ids or ())]
    if every:
        chosen = [one.id for one in query(url, retries(stream, group, count=MOST))]
        if not chosen:
            show([], output, lambda: say("no entry waits for a retry"), PendingDelivery._fields)
            return
    change = Change(stream, group, Selection(chosen), "made due", dry_run, yes, output, url)
    change.carry_out(act, Action.RELEASE)
    if len(chosen) == MOST:
        say(f"{MOST:,} entries were chosen; more may wait: run this again", error=True)
