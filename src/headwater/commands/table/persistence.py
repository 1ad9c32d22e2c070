"""Commands for durability and replication."""

from __future__ import annotations

from headwater.commands.table.command import VARIES, Command

_ACKNOWLEDGED = "request_policy:all_shards response_policy:agg_min"
_SAVES = "admin noscript no_async_loading"
_ROLES = "admin noscript stale no_async_loading"

# fmt: off
WAIT = Command(
    "wait", arity=3, flags="blocking", group="generic", since="3.0.0",
    summary="Waits for replicas to receive this client's writes; returns 0, because there are no replicas.",
    syntax="numreplicas:integer timeout:integer",
    acl="connection", tips=_ACKNOWLEDGED, run="server:wait.wait",
)

WAITAOF = Command(
    "waitaof", arity=4, flags="blocking", group="generic", since="7.2.0",
    summary="Waits until this client's writes are durable in the journal.",
    syntax="numlocal:integer numreplicas:integer timeout:integer",
    acl="connection", tips=_ACKNOWLEDGED, run="server:wait.waitaof",
)

LASTSAVE = Command(
    "lastsave", arity=1, flags="loading stale fast", group="server", since="1.0.0",
    summary="Returns when the last image was written, in Unix seconds.",
    acl="admin dangerous", tips=VARIES, run="server:save.lastsave",
)

SAVE = Command(
    "save", arity=1, flags=f"{_SAVES} no_multi", group="server", since="1.0.0",
    summary="Writes an image of the store and waits until it is durable; blocks this client only.",
    run="server:save.save",
)

BGSAVE = Command(
    "bgsave", arity=-1, flags=_SAVES, group="server", since="1.0.0",
    summary="Writes an image of the store in the background.",
    syntax="[SCHEDULE]",
    run="server:save.bgsave",
)

BGREWRITEAOF = Command(
    "bgrewriteaof", arity=1, flags=_SAVES, group="server", since="1.0.0",
    summary="Writes an image in the background and removes the journal files that it replaces.",
    run="server:save.bgrewriteaof",
)

ROLE = Command(
    "role", arity=1, flags="noscript loading stale fast", group="server", since="2.8.12",
    summary="Returns the role: a primary without replicas.",
    acl="admin dangerous", run="server:role.role",
)

REPLICAOF = Command(
    "replicaof", arity=3, flags=_ROLES, group="server", since="5.0.0",
    summary="Accepts NO ONE; refuses other arguments, because this release does not replicate.",
    syntax="<host port:integer | NO ONE>",
    run="server:role.replicaof",
)

SLAVEOF = Command(
    "slaveof", arity=3, flags=_ROLES, group="server", since="1.0.0",
    summary="The old name of REPLICAOF.",
    syntax="<host port:integer | NO ONE>",
    run="server:role.replicaof",
)
# fmt: on
