"""``headwater repair``: recover a store from a damaged data directory, without what cannot be read.

headwater repair data --to repaired --dry-run
headwater repair data --to repaired
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headwater.cli.arguments import DryRun, Yes
from headwater.cli.backup import failed
from headwater.cli.command import Option, confirm
from headwater.cli.directories import Directory
from headwater.cli.output import Output, OutputFormat, say, show
from headwater.cli.progress import Busy

if TYPE_CHECKING:
    from headwater.persistence.repairing import RepairPlan

AT_ONCE = 1_000


def repair(
    directory: Directory,
    *,
    to: Annotated[
        Path,
        Option("--to", metavar="NEWDIR", help="Target directory; must be empty or not exist."),
    ],
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Recover a store from a damaged data directory.

    First lists what is lost, by stream and ids: all changes after a damaged record of the journal, and
    entries on disk that cannot be read. The damaged directory is not changed. If you have a backup,
    restore it instead.
    """
    from headwater.persistence.repairing import plan_repair, repair_to

    with Busy("looking for damage"):
        plan = plan_repair(directory)
    changes = plan.needed and not dry_run
    if output is OutputFormat.TABLE or (changes and not yes):
        _print(plan, error=output is not OutputFormat.TABLE)
    if changes:
        if not yes:
            confirm(f"Recover the rest of the store into {to}?")
        try:
            with Busy("copied") as progress:
                repair_to(plan, directory, to, progress)
        except OSError as error:
            raise failed("the repair", error, to) from error
        _delete(plan, to)
    unreadable = sum(len(ids) for _db, _key, ids in plan.unreadable)
    cut = plan.cut and [*plan.cut]
    document = {**plan._asdict(), "cut": cut, "unreadable": unreadable, "done": changes}
    said = f"repaired: {to} has the rest of the store; {directory} is unchanged"
    show([document], output, lambda: say(said) if changes else None)


def _delete(plan: RepairPlan, directory: Path) -> None:
    """Delete from the repaired store, in ``directory``, the entries that cannot be read."""
    if not plan.unreadable:
        return
    from headwater.client.sync.connect import connect
    from headwater.groups.protocol.operation import batched

    for database, key, ids in plan.unreadable:
        with connect(f"headwater://{directory.absolute()}?db={database}") as client:
            for part in batched(ids, AT_ONCE):
                client.xdel(key, *part)


def _print(plan: RepairPlan, *, error: bool) -> None:
    """Print what would be lost, on standard error if the output is a document."""
    if not plan.needed:
        say(f"{plan.directory}: nothing to repair", error=error)
        return
    if plan.damage is not None:
        say(f"damaged: {plan.damage}", error=error)
        after = "1 change" if plan.changes == 1 else f"{plan.changes:,} changes"
        say(f"lost: the damaged record and {after} after it", error=error)
    for one in plan.lost:
        entries = "1 entry" if one.entries == 1 else f"{one.entries:,} entries"
        say(
            f"lost: database {one.database}, stream {one.stream}: {entries} from {one.first} to {one.last}: "
            f"{one.reason}",
            error=error,
        )
