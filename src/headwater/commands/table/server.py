"""The server as a whole."""

from __future__ import annotations

from headwater.commands.table.rows import (
    ADMIN,
    ANY_STATE,
    NODES,
    UNORDERED,
    VARIES,
    CommandRow,
    help_row,
    row,
)

# fmt: off
ROWS: tuple[CommandRow, ...] = (
    row("info", -1, ANY_STATE, "", "server", "1.0.0", "Shows the state of the server.",
        acl="dangerous",
        tips=f"{VARIES} request_policy:all_shards response_policy:special"),
    row("command", -1, ANY_STATE, "", "server", "2.8.13", "Shows what commands there are.",
        row("command|count", 2, ANY_STATE, "", "server", "2.8.13", "Counts the commands.",
            acl="connection"),
        row("command|info", -2, ANY_STATE, "", "server", "2.8.13",
            "Shows arity, flags and keys of commands.", acl="connection", tips=UNORDERED),
        row("command|docs", -2, ANY_STATE, "", "server", "7.0.0",
            "Shows what commands are for.", acl="connection", tips=UNORDERED),
        row("command|list", -2, ANY_STATE, "", "server", "7.0.0",
            "Lists the names of commands.", acl="connection", tips=UNORDERED),
        row("command|getkeys", -3, ANY_STATE, "", "server", "2.8.13",
            "Finds the keys of a request.", acl="connection"),
        row("command|getkeysandflags", -3, ANY_STATE, "", "server", "7.0.0",
            "Finds the keys of a request and how they are used.", acl="connection"),
        help_row("command", "server", "5.0.0", acl="connection"), acl="connection",
        tips=UNORDERED),
    row("config", -2, "", "", "server", "2.0.0", "Shows and changes settings.",
        row("config|get", -3, ADMIN, "", "server", "2.0.0", "Reads settings."),
        row("config|set", -4, ADMIN, "", "server", "2.0.0", "Changes settings.", tips=NODES),
        row("config|resetstat", 2, ADMIN, "", "server", "2.0.0", "Resets the counters of INFO.",
            tips=NODES),
        row("config|rewrite", 2, ADMIN, "", "server", "2.8.0",
            "Writes the settings in force to the configuration file.", tips=NODES),
        help_row("config", "server", "5.0.0"), acl=""),
    row("time", 1, "loading stale fast", "", "server", "2.6.0", "Tells the server's time.",
        tips=VARIES),
    row("shutdown", -1, "admin noscript loading stale no_multi allow_busy", "", "server", "1.0.0",
        "Ends the server, with all that was acknowledged on disk."),
)
# fmt: on
