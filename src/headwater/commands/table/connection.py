"""Commands on the connection, and CLIENT."""

from __future__ import annotations

from headwater.commands.table.command import (
    ADMIN,
    ALL,
    LOGIN,
    NODES,
    SESSION,
    VARIES,
    Command,
    help_command,
)

# fmt: off
HELLO = Command(
    "hello", arity=-1, flags=LOGIN, group="connection", since="6.0.0",
    summary="Selects the protocol version; can authenticate and name the client.",
    syntax="[protover:integer [AUTH username password] [SETNAME clientname]]",
    run="server:connection.hello",
)

AUTH = Command(
    "auth", arity=-2, flags=LOGIN, group="connection", since="1.0.0",
    summary="Authenticates the client.",
    syntax="[username] password",
    run="server:connection.auth",
)

SELECT = Command(
    "select", arity=2, flags="loading stale fast", group="connection", since="1.0.0",
    summary="Selects the database.",
    syntax="index:integer",
    run="server:connection.select",
)

PING = Command(
    "ping", arity=-1, flags="fast", group="connection", since="1.0.0",
    summary="Returns PONG, or its argument.",
    syntax="[message]",
    tips=ALL, run="server:connection.ping",
)

ECHO = Command(
    "echo", arity=2, flags="loading stale fast", group="connection", since="1.0.0",
    summary="Returns its argument.",
    syntax="message",
    run="server:connection.echo",
)

QUIT = Command(
    "quit", arity=-1, flags=LOGIN, group="connection", since="1.0.0",
    summary="Closes the connection.",
    run="server:connection.quit_",
)

RESET = Command(
    "reset", arity=1, flags=LOGIN, group="connection", since="6.2.0",
    summary="Resets the connection to its initial state.",
    run="server:connection.reset",
)

CLIENT = Command(
    "client", arity=-2, group="connection", since="2.4.0",
    summary="Shows and manages clients.",
    subcommands=(
        Command(
            "client|id", arity=2, flags=SESSION, group="connection", since="5.0.0",
            summary="Returns the id of this client.",
            run="server:client.client_id",
        ),
        Command(
            "client|info", arity=2, flags=SESSION, group="connection", since="6.2.0",
            summary="Shows this client.",
            tips=VARIES, run="server:client.client_info",
        ),
        Command(
            "client|list", arity=-2, flags=ADMIN, group="connection", since="2.4.0",
            summary="Shows the clients.",
            syntax="[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] "
            "[ID client-id:integer [client-id:integer ...]]",
            acl="connection", tips=VARIES, run="server:client.client_list",
        ),
        Command(
            "client|kill", arity=-3, flags=ADMIN, group="connection", since="2.4.0",
            summary="Disconnects clients.",
            syntax="<ip:port | <ID client-id:integer | TYPE <NORMAL | MASTER | SLAVE | REPLICA | "
            "PUBSUB> | USER username | ADDR ip:port | LADDR ip:port | SKIPME <YES | "
            "NO> | MAXAGE maxage:integer> [<ID client-id:integer | TYPE "
            "<NORMAL | MASTER | SLAVE | REPLICA | PUBSUB> | USER username | ADDR ip:port | LADDR "
            "ip:port | SKIPME <YES | NO> | MAXAGE maxage:integer> ...]>",
            run="server:client.client_kill",
        ),
        Command(
            "client|unblock", arity=-3, flags=ADMIN, group="connection", since="5.0.0",
            summary="Unblocks a blocked client.",
            syntax="client-id:integer [TIMEOUT | ERROR]",
            run="server:client.client_unblock",
        ),
        Command(
            "client|pause", arity=-3, flags=ADMIN, group="connection", since="3.0.0",
            summary="Delays all commands, or only writes, for a time.",
            syntax="timeout:integer [WRITE | ALL]",
            run="server:client_pause.client_pause",
        ),
        Command(
            "client|unpause", arity=2, flags=ADMIN, group="connection", since="6.2.0",
            summary="Ends CLIENT PAUSE.",
            run="server:client_pause.client_unpause",
        ),
        Command(
            "client|getname", arity=2, flags=SESSION, group="connection", since="2.6.9",
            summary="Returns the name of this client.",
            run="server:client.client_getname",
        ),
        Command(
            "client|setname", arity=3, flags=SESSION, group="connection", since="2.6.9",
            summary="Names the client.",
            syntax="connection-name",
            tips=NODES, run="server:client.client_setname",
        ),
        Command(
            "client|setinfo", arity=4, flags=SESSION, group="connection", since="7.2.0",
            summary="Sets the name or version of the client's library.",
            syntax="<LIB-NAME libname | LIB-VER libver>",
            tips=NODES, run="server:client.client_setinfo",
        ),
        Command(
            "client|reply", arity=3, flags=SESSION, group="connection", since="3.2.0",
            summary="Turns replies to the client on or off, or skips the reply to the next command.",
            syntax="<ON | OFF | SKIP>",
            run="server:client.client_reply",
        ),
        Command(
            "client|no-evict", arity=3, flags=ADMIN, group="connection", since="7.0.0",
            summary="Accepted without effect: no client is evicted.",
            syntax="<ON | OFF>",
            run="server:client.client_switch",
        ),
        Command(
            "client|no-touch", arity=3, flags=SESSION, group="connection", since="7.2.0",
            summary="Controls whether the client's commands reset the idle times of keys.",
            syntax="<ON | OFF>",
            run="server:client.client_switch",
        ),
        Command(
            "client|trackinginfo", arity=2, flags=SESSION, group="connection", since="6.2.0",
            summary="Shows that tracking is off.",
            run="server:client_tracking.client_trackinginfo",
        ),
        Command(
            "client|getredir", arity=2, flags=SESSION, group="connection", since="6.0.0",
            summary="Returns -1: tracking is off.",
            run="server:client_tracking.client_getredir",
        ),
        Command(
            "client|caching", arity=3, flags=SESSION, group="connection", since="6.0.0",
            summary="Refused: tracking is off.",
            syntax="<YES | NO>",
            run="server:client_tracking.client_caching",
        ),
        help_command("client", group="connection", since="5.0.0"),
    ),
)
# fmt: on
