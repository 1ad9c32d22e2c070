"""The connection, and CLIENT."""

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
    summary="Chooses the protocol version; can authenticate and name the client.",
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
    summary="Chooses the database.",
    syntax="index:integer",
    run="server:connection.select",
)

PING = Command(
    "ping", arity=-1, flags="fast", group="connection", since="1.0.0",
    summary="Answers PONG, or its argument.",
    syntax="[message]",
    tips=ALL, run="server:connection.ping",
)

ECHO = Command(
    "echo", arity=2, flags="loading stale fast", group="connection", since="1.0.0",
    summary="Answers its argument.",
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
    summary="Puts the connection back as it was when it was made.",
    run="server:connection.reset",
)

CLIENT = Command(
    "client", arity=-2, group="connection", since="2.4.0",
    summary="Shows and manages clients.",
    acl="",
    subcommands=(
        Command(
            "client|id", arity=2, flags=SESSION, group="connection", since="5.0.0",
            summary="Tells the client's own id.",
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
            summary="Ends the waiting of a blocked client.",
            syntax="client-id:integer [TIMEOUT | ERROR]",
            run="server:client.client_unblock",
        ),
        Command(
            "client|pause", arity=-3, flags=ADMIN, group="connection", since="3.0.0",
            summary="Lets commands, or writes only, wait for a time.",
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
            summary="Tells the client's own name.",
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
            summary="Tells the server which library the client uses.",
            syntax="<LIB-NAME libname | LIB-VER libver>",
            tips=NODES, run="server:client.client_setinfo",
        ),
        Command(
            "client|reply", arity=3, flags=SESSION, group="connection", since="3.2.0",
            summary="Turns replies to the client off and on.",
            syntax="<ON | OFF | SKIP>",
            run="server:client.client_reply",
        ),
        Command(
            "client|no-evict", arity=3, flags=ADMIN, group="connection", since="7.0.0",
            summary="Keeps the client when memory for clients runs out.",
            syntax="<ON | OFF>",
            run="server:client.client_switch",
        ),
        Command(
            "client|no-touch", arity=3, flags=SESSION, group="connection", since="7.2.0",
            summary="Keeps the client's reads from counting as use of a key.",
            syntax="<ON | OFF>",
            run="server:client.client_switch",
        ),
        Command(
            "client|trackinginfo", arity=2, flags=SESSION, group="connection", since="6.2.0",
            summary="Tells that this client's reads are not tracked.",
            run="server:client_tracking.client_trackinginfo",
        ),
        Command(
            "client|getredir", arity=2, flags=SESSION, group="connection", since="6.0.0",
            summary="Tells to whom invalidations go: to nobody.",
            run="server:client_tracking.client_getredir",
        ),
        Command(
            "client|caching", arity=3, flags=SESSION, group="connection", since="6.0.0",
            summary="Tells that nothing is tracked that could be cached.",
            syntax="<YES | NO>",
            run="server:client_tracking.client_caching",
        ),
        help_command("client", group="connection", since="5.0.0", run="server:client.client_help"),
    ),
)
# fmt: on
