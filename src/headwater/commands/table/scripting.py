"""Scripts and functions, as far as there are any: what empties them works without Lua too."""

from __future__ import annotations

from headwater.commands.table.rows import ALL, NODES, UNORDERED, CommandRow, help_row, row

# fmt: off
ROWS: tuple[CommandRow, ...] = (
    row("script", -2, "", "", "scripting", "2.6.0", "Manages scripts.",
        row("script|flush", -2, "noscript", "", "scripting", "2.6.0", "Forgets every script.",
            acl="scripting", tips=NODES),
        help_row("script", "scripting", "5.0.0", acl="scripting"), acl=""),
    row("function", -2, "", "", "scripting", "7.0.0", "Manages functions.",
        row("function|flush", -2, "write noscript", "", "scripting", "7.0.0",
            "Forgets every function; there are none.", acl="scripting", tips=ALL),
        row("function|list", -2, "noscript", "", "scripting", "7.0.0",
            "Lists the functions: none.", acl="scripting", tips=UNORDERED),
        help_row("function", "scripting", "7.0.0", acl="scripting"), acl=""),
)
# fmt: on
