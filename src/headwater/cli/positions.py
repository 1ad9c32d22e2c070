"""``headwater groups reset`` and ``headwater streams trim``: change, with a preview, what groups will read.

headwater groups reset orders billing --back 100 --dry-run
headwater groups reset orders billing --to 2026-11-23T09:30:00Z
headwater streams trim orders --maxlen 100000 --dry-run
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

from headwater.cli.arguments import DryRun, GroupName, StreamName, Yes, id_or_none
from headwater.cli.command import Option, confirm, wrong
from headwater.cli.output import Output, OutputFormat, print_table, say, show
from headwater.cli.query import DEFAULT_URL, Url, query
from headwater.common.moments import milliseconds_of

if TYPE_CHECKING:
    from headwater.operations.positions import ResetPreview, TrimPreview


def _target(text: str) -> str:
    """Parse ``--to``. Return the id after which the group continues."""
    if text in ("0", "$"):
        return text
    return id_or_none(text) or f"{max(0, milliseconds_of(text, 'time') - 1)}-{2**64 - 1}"


def _first(text: str) -> str:
    """Parse ``--minid``. Return the first id that is kept."""
    return id_or_none(text) or f"{max(0, milliseconds_of(text, 'time'))}-0"


def reset(
    stream: StreamName,
    group: GroupName,
    *,
    to: Annotated[
        str | None,
        Option(
            parser=_target,
            metavar="ID|TIME|0|$",
            help="New position: after this id, at this time, at the beginning (0), or after the last entry ($).",
        ),
    ] = None,
    back: Annotated[
        int | None,
        Option(min=1, metavar="N", help="New position: N entries before the current one."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Set the position of a group.

    Entries after the new position are delivered, even if they were delivered before. Unread entries
    before it are skipped. Pending entries stay pending.
    """
    from headwater.operations.positions import reset_back, reset_to, set_position

    if (to is None) == (back is None):
        raise wrong("give one of --to and --back")
    if back is not None:
        found = query(url, reset_back(stream, group, back))
    else:
        found = query(url, reset_to(stream, group, str(to)))

    def change() -> tuple[dict[str, object], str]:
        query(url, set_position(found))
        return {}, f"position of group {group} of {stream} set to {found.after}"

    _Asked(
        found._asdict(),
        lambda: _print_reset(found),
        f"Set group {group} of {stream} to {found.after}?",
        change,
    ).carry_out(output, dry_run=dry_run or found.before == found.after, yes=yes)


def _print_reset(found: ResetPreview) -> None:
    say(f"{found.stream}, group {found.group}: from {found.before} to {found.after}")
    say(f"  delivered again  {found.again:,}")
    say(f"  skipped          {found.skipped:,}")
    say(f"  pending          {found.pending:,} (not changed)")


def trim(
    stream: StreamName,
    *,
    maxlen: Annotated[
        int | None, Option(min=0, metavar="N", help="Keep the last N entries.")
    ] = None,
    minid: Annotated[
        str | None,
        Option(parser=_first, metavar="ID|TIME", help="Keep entries from this id or time on."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Remove the oldest entries of a stream.

    Shows how many entries are removed, and how many of them each group has not read or not settled.
    """
    from headwater.operations.positions import trim as carry_out
    from headwater.operations.positions import trim_before, trim_to_length

    if (maxlen is None) == (minid is None):
        raise wrong("give one of --maxlen and --minid")
    if maxlen is not None:
        found = query(url, trim_to_length(stream, maxlen))
    else:
        found = query(url, trim_before(stream, str(minid)))

    def change() -> tuple[dict[str, object], str]:
        removed = query(url, carry_out(found))
        return {"removed": removed}, f"{_entries(removed)} of {stream} removed"

    _Asked(
        found._asdict(),
        lambda: _print_trim(found),
        f"Remove {_entries(found.removed)} of {stream}?",
        change,
    ).carry_out(output, dry_run=dry_run or not found.removed, yes=yes)


def _print_trim(found: TrimPreview) -> None:
    say(f"{found.stream}: {_entries(found.removed)} before {found.minid}")
    if found.groups:
        rows = [(one.group, f"{one.unread:,}", f"{one.pending:,}") for one in found.groups]
        print_table(("  GROUP", "UNREAD", "PENDING"), [(f"  {a}", b, c) for a, b, c in rows])


def _entries(count: int) -> str:
    return f"{count:,} {'entry' if count == 1 else 'entries'}"


class _Asked(NamedTuple):
    """A change, its preview as a document (JSON, CSV) and as text, and the question to confirm it."""

    document: Mapping[str, object]
    preview: Callable[[], None]
    question: str
    change: Callable[[], tuple[dict[str, object], str]]
    """Function that makes the change. It returns fields for the document, and a text that says what was done."""

    def carry_out(self, output: OutputFormat, *, dry_run: bool, yes: bool) -> None:
        """Show the preview, ask for confirmation, make the change, and print what was done."""
        if output is OutputFormat.TABLE:
            self.preview()
        if not (dry_run or yes):
            confirm(self.question)
        became, said = ({}, "") if dry_run else self.change()
        document = {**self.document, **became, "done": not dry_run}
        show([document], output, lambda: say(said) if said else None)
