"""MULTI and its kin."""

from __future__ import annotations

from headwater.commands.table.rows import TRANSACTION, CommandRow, row

# fmt: off
ROWS: tuple[CommandRow, ...] = (
    row("multi", 1, TRANSACTION, "", "transactions", "1.2.0",
        "Begins to queue commands instead of running them."),
    row("exec", 1, "noscript loading stale skip_slowlog", "", "transactions", "1.2.0",
        "Runs the queued commands as one."),
    row("discard", 1, TRANSACTION, "", "transactions", "2.0.0", "Forgets the queued commands."),
    row("watch", -2, TRANSACTION, "RO 1:-1", "transactions", "2.2.0",
        "Makes EXEC fail when one of the keys has changed."),
    row("unwatch", 1, TRANSACTION, "", "transactions", "2.2.0", "Forgets all watched keys."),
)
# fmt: on
