"""ACL: users and what they may do."""

from __future__ import annotations

from headwater.commands.table.command import ADMIN, NODES, SESSION, Command, help_command

# fmt: off
ACL = Command(
    "acl", arity=-2, group="server", since="6.0.0",
    summary="Manages users and what they may do.",
    acl="",
    subcommands=(
        Command(
            "acl|cat", arity=-2, flags=SESSION, group="server", since="6.0.0",
            summary="Lists the categories of commands, or the commands of one.",
            syntax="[category]",
            run="server:acl.acl_cat",
        ),
        Command(
            "acl|deluser", arity=-3, flags=ADMIN, group="server", since="6.0.0",
            summary="Deletes users and ends their connections.",
            syntax="username [username ...]",
            tips=NODES, run="server:acl.acl_deluser",
        ),
        Command(
            "acl|dryrun", arity=-4, flags=ADMIN, group="server", since="7.0.0",
            summary="Tells whether a user may run a command, without running it.",
            syntax="username command [arg [arg ...]]",
            run="server:acl.acl_dryrun",
        ),
        Command(
            "acl|genpass", arity=-2, flags=SESSION, group="server", since="6.0.0",
            summary="Makes a password that cannot be guessed.",
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
            summary="Shows all users, as an ACL file defines them.",
            run="server:acl.acl_list",
        ),
        Command(
            "acl|load", arity=2, flags=ADMIN, group="server", since="6.0.0",
            summary="Reads the ACL file again.",
            run="server:acl.acl_load",
        ),
        Command(
            "acl|log", arity=-2, flags=ADMIN, group="server", since="6.0.0",
            summary="Shows what was refused, newest first.",
            syntax="[count:integer | RESET]",
            run="server:acl.acl_log",
        ),
        Command(
            "acl|save", arity=2, flags=ADMIN, group="server", since="6.0.0",
            summary="Writes the users in force to the ACL file.",
            tips=NODES, run="server:acl.acl_save",
        ),
        Command(
            "acl|setuser", arity=-3, flags=ADMIN, group="server", since="6.0.0",
            summary="Makes a user or changes its rules.",
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
            summary="Tells the user of this connection.",
            run="server:acl.acl_whoami",
        ),
        help_command("acl", group="server", since="6.0.0", run="server:acl.acl_help"),
    ),
)
# fmt: on
