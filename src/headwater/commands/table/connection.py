"""The connection and what a client says of itself."""

from __future__ import annotations

from headwater.commands.table.rows import (
    ADMIN,
    ALL,
    LOGIN,
    NODES,
    SESSION,
    VARIES,
    CommandRow,
    help_row,
    row,
)

# fmt: off
ROWS: tuple[CommandRow, ...] = (
    row("hello", -1, LOGIN, "", "connection", "6.0.0",
        "Chooses the protocol version; can authenticate and name the client."),
    row("auth", -2, LOGIN, "", "connection", "1.0.0", "Authenticates the client."),
    row("select", 2, "loading stale fast", "", "connection", "1.0.0", "Chooses the database."),
    row("ping", -1, "fast", "", "connection", "1.0.0", "Answers PONG, or its argument.",
        tips=ALL),
    row("echo", 2, "loading stale fast", "", "connection", "1.0.0", "Answers its argument."),
    row("quit", -1, LOGIN, "", "connection", "1.0.0", "Closes the connection."),
    row("reset", 1, LOGIN, "", "connection", "6.2.0",
        "Puts the connection back as it was when it was made."),
    row("client", -2, "", "", "connection", "2.4.0", "Shows and manages clients.",
        row("client|id", 2, SESSION, "", "connection", "5.0.0", "Tells the client's own id."),
        row("client|info", 2, SESSION, "", "connection", "6.2.0", "Shows this client.",
            tips=VARIES),
        row("client|list", -2, ADMIN, "", "connection", "2.4.0", "Shows the clients.",
            acl="connection", tips=VARIES),
        row("client|kill", -3, ADMIN, "", "connection", "2.4.0", "Disconnects clients."),
        row("client|unblock", -3, ADMIN, "", "connection", "5.0.0",
            "Ends the waiting of a blocked client."),
        row("client|pause", -3, ADMIN, "", "connection", "3.0.0",
            "Lets commands, or writes only, wait for a time."),
        row("client|unpause", 2, ADMIN, "", "connection", "6.2.0", "Ends CLIENT PAUSE."),
        row("client|getname", 2, SESSION, "", "connection", "2.6.9",
            "Tells the client's own name."),
        row("client|setname", 3, SESSION, "", "connection", "2.6.9", "Names the client.",
            tips=NODES),
        row("client|setinfo", 4, SESSION, "", "connection", "7.2.0",
            "Tells the server which library the client uses.", tips=NODES),
        row("client|reply", 3, SESSION, "", "connection", "3.2.0",
            "Turns replies to the client off and on."),
        row("client|no-evict", 3, ADMIN, "", "connection", "7.0.0",
            "Keeps the client when memory for clients runs out."),
        row("client|no-touch", 3, SESSION, "", "connection", "7.2.0",
            "Keeps the client's reads from counting as use of a key."),
        help_row("client", "connection", "5.0.0"), acl=""),
)
# fmt: on
