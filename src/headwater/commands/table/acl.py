"""ACL: users and their permissions."""

from __future__ import annotations

from headwater.commands.table.command import ADMIN, NODES, SESSION, Command, help_command

# fmt: off
ACL = Command(
    "acl", arity=-2, group="server", since="6.0.0",
    summary="Manages users and their permissions.",
    subcommands=(
        Command(
            "acl|cat", arity=-2, flags=SESSION, group="server", since="6.0.0",
            summary="Lists the categories of commands, or the commands of one.",
            syntax="[category]",
            run="server:acl.acl_cat",
        ),
        Command(
            "acl|deluser", arity=-3, flags=ADMIN, group="server", since="6.0.0",
            summary="Deletes users and closes their connections.",
            syntax="username [username ...]",
            tips=NODES, run="server:acl.acl_deluser",
        ),
        Command(
            "acl|dryrun", arity=-4, flags=ADMIN, group="server", since="7.0.0",
            summary="Checks whether a user may run a command, without running it.",
            syntax="username command [arg [arg ...]]",
            run="server:acl.acl_dryrun",
        ),
        Command(
            "acl|genpass", arity=-2, flags=SESSION, group="server", since="6.0.0",
            summary="Generates a random password.",
            syntax="[bits:integer]",
            run="server:acl.acl_genpass",
        ),
        Command(
            "acl|getuser", arity=3, flags=ADMIN, group="server", since="6.0.0",
            summary="Shows the rules of a user.",
            syntax="username",
            run="server:acl.acl_getuser",
        ),
        Command(
            "acl|list", arity=2, flags=ADMIN, group="server", since="6.0.0",
            summary="Shows all users in the form of an ACL file.",
            run="server:acl.acl_list",
        ),
        Command(
            "acl|load", arity=2, flags=ADMIN, group="server", since="6.0.0",
            summary="Replaces the users with those in the ACL file.",
            run="server:acl.acl_load",
        ),
        Command(
            "acl|log", arity=-2, flags=ADMIN, group="server", since="6.0.0",
            summary="Shows refused commands and logins, newest first.",
            syntax="[count:integer | RESET]",
            run="server:acl.acl_log",
        ),
        Command(
            "acl|save", arity=2, flags=ADMIN, group="server", since="6.0.0",
            summary="Writes the users to the ACL file.",
            tips=NODES, run="server:acl.acl_save",
        ),
        Command(
            "acl|setuser", arity=-3, flags=ADMIN, group="server", since="6.0.0",
            summary="Creates a user or changes its rules.",
            syntax="username [rule [rule ...]]",
            tips=NODES, run="server:acl.acl_setuser",
        ),
        Command(
            "acl|users", arity=2, flags=ADMIN, group="server", since="6.0.0",
            summary="Lists the names of all users.",
            run="server:acl.acl_users",
        ),
        Command(
            "acl|whoami", arity=2, flags=SESSION, group="server", since="6.0.0",
            summary="Returns the user of this connection.",
            run="server:acl.acl_whoami",
        ),
        help_command("acl", group="server", since="6.0.0"),
    ),
)
# fmt: on
