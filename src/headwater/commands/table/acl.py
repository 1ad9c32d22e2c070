"""Who may do what: ACL."""

from __future__ import annotations

from headwater.commands.table.rows import ADMIN, NODES, SESSION, CommandRow, help_row, row

# fmt: off
ROWS: tuple[CommandRow, ...] = (
    row("acl", -2, "", "", "server", "6.0.0", "Manages users and what they may do.",
        row("acl|cat", -2, SESSION, "", "server", "6.0.0",
            "Lists the categories of commands, or the commands of one."),
        row("acl|deluser", -3, ADMIN, "", "server", "6.0.0",
            "Deletes users and ends their connections.", tips=NODES),
        row("acl|dryrun", -4, ADMIN, "", "server", "7.0.0",
            "Tells whether a user may run a command, without running it."),
        row("acl|genpass", -2, SESSION, "", "server", "6.0.0",
            "Makes a password that cannot be guessed."),
        row("acl|getuser", 3, ADMIN, "", "server", "6.0.0", "Shows the rules of a user."),
        row("acl|list", 2, ADMIN, "", "server", "6.0.0",
            "Shows all users, as an ACL file defines them."),
        row("acl|load", 2, ADMIN, "", "server", "6.0.0", "Reads the ACL file again."),
        row("acl|log", -2, ADMIN, "", "server", "6.0.0", "Shows what was refused, newest first."),
        row("acl|save", 2, ADMIN, "", "server", "6.0.0",
            "Writes the users in force to the ACL file.", tips=NODES),
        row("acl|setuser", -3, ADMIN, "", "server", "6.0.0",
            "Makes a user or changes its rules.", tips=NODES),
        row("acl|users", 2, ADMIN, "", "server", "6.0.0", "Lists the names of all users."),
        row("acl|whoami", 2, SESSION, "", "server", "6.0.0",
            "Tells the user of this connection."),
        help_row("acl", "server", "6.0.0"), acl=""),
)
# fmt: on
