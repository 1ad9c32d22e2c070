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
    summary="Returns the role, the offset, and the replicas or the primary.",
    acl="admin dangerous", run="server:replication.role",
)

REPLICAOF = Command(
    "replicaof", arity=3, flags=_ROLES, group="server", since="5.0.0",
    summary="Makes this server a replica of another, or a primary.",
    syntax="<host port:integer | NO ONE>",
    run="server:replication.replicaof",
)

SLAVEOF = Command(
    "slaveof", arity=3, flags=_ROLES, group="server", since="1.0.0",
    summary="The old name of REPLICAOF.",
    syntax="<host port:integer | NO ONE>",
    run="server:replication.replicaof",
)

REPLCONF = Command(
    "replconf", arity=-1, flags="admin noscript loading stale allow_busy", group="server", since="3.0.0",
    summary="Tells a primary about a replica; replicas send it.",
    syntax="[option value [option value ...]]",
    run="server:replication.replconf",
)

PSYNC = Command(
    "psync", arity=-3, flags="admin noscript no_async_loading no_multi", group="server", since="2.8.0",
    summary="Refused: replicas of Headwater are Headwater servers.",
    syntax="replicationid offset:integer",
    run="server:replication.psync",
)

SYNC = Command(
    "sync", arity=1, flags="admin noscript no_async_loading no_multi", group="server", since="1.0.0",
    summary="Refused: replicas of Headwater are Headwater servers.",
    run="server:replication.psync",
)

FAILOVER = Command(
    "failover", arity=-1, flags="admin noscript stale", group="server", since="6.2.0",
    summary="Hands over to a replica that has everything; writes are paused meanwhile.",
    syntax="[TO host port:integer [FORCE]] [ABORT] [TIMEOUT milliseconds:integer]",
    run="server:replication.failover",
)

HWSYNC = Command(
    "hwsync", arity=-4, flags="admin noscript no_async_loading no_multi", group="server", since="0.2",
    summary="Follows this server from a state on; replicas send it.",
    syntax="version:integer history offset:integer [FAILOVER]",
    run="server:replication.hwsync",
)
# fmt: on
