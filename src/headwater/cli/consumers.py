"""``headwater consumers``: list the consumers of a group, and remove unused ones.

headwater consumers list orders billing
headwater consumers reap orders billing --unseen 1h --dry-run
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from headwater.cli.arguments import DryRun, GroupName, StreamName, Yes, duration
from headwater.cli.command import CommandGroup, Option, confirm, watched
from headwater.cli.output import Output, OutputFormat, print_table, say, show
from headwater.cli.query import DEFAULT_URL, Url, query
from headwater.common.names import quoted
from headwater.operations.times import length_of_time

if TYPE_CHECKING:
    from headwater.groups.membership.consumers import ConsumerInfo

app = CommandGroup()

Unseen = Annotated[
    str,
    Option(
        parser=duration,
        metavar="DURATION",
        help="A consumer without pending entries expires if it has not been seen for this long.",
    ),
]


@app.add("list")
@watched
def list_consumers(
    stream: StreamName,
    group: GroupName,
    *,
    unseen: Unseen = "24h",
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List consumers: name, pending entries, time since last seen, state.

    States: active; silent (not seen for a minute, or for the group's claim_after if that is shorter); expired (owns no
    entries and has not been seen for --unseen); internal (used by Headwater itself).
    """
    from headwater.common.durations import milliseconds
    from headwater.groups.membership.consumers import consumers

    unseen_ms = milliseconds(unseen, what="--unseen", least_ms=0)
    _print(query(url, consumers(stream, group, unseen_ms=unseen_ms)), output)


@app.add()
def reap(
    stream: StreamName,
    group: GroupName,
    *,
    unseen: Unseen = "24h",
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Remove consumers that own no entries and have not been seen for a day (--unseen).

    A consumer with pending entries is never removed: a worker of the group claims them first.
    Running workers also remove such consumers once an hour.
    """
    from headwater.common.durations import milliseconds
    from headwater.groups.membership.consumers import ConsumerState, consumers
    from headwater.operations.actions import reap as reap_consumers

    unseen_ms = milliseconds(unseen, what="--unseen", least_ms=0)
    found = query(url, consumers(stream, group, unseen_ms=unseen_ms))
    chosen = [one for one in found if one.state == ConsumerState.EXPIRED]
    if dry_run or not chosen:
        _print(chosen, output)
        return
    names = [one.name for one in chosen]
    if not yes:
        question = f"Remove {', '.join(names)} from group {group} of {stream}?"
        confirm(question)
    removed = query(url, reap_consumers(stream, group, names, unseen_ms=unseen_ms))

    def text() -> None:
        count = "1 consumer" if len(removed) == 1 else f"{len(removed):,} consumers"
        say(f"{count} removed from group {group} of {stream}")
        for name in names:
            say(
                f"  {quoted(name)}{'' if name in removed else ': not removed: it was seen or removed meanwhile, or owns entries'}"
            )

    show([one for one in chosen if one.name in removed], output, text)


def _print(found: list[ConsumerInfo], output: OutputFormat) -> None:
    from headwater.groups.membership.consumers import ConsumerInfo

    titles = ("NAME", "PENDING", "LAST SEEN", "STATE")
    rows = [(one.name, str(one.pending), length_of_time(one.idle_ms), one.state) for one in found]
    show(found, output, lambda: print_table(titles, rows), ConsumerInfo._fields)
