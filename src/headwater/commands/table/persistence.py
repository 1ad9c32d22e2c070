"""What is on disk and on replicas."""

from __future__ import annotations

from headwater.commands.table.rows import VARIES, CommandRow, row

_ACKNOWLEDGED = "request_policy:all_shards response_policy:agg_min"
_SAVES = "admin noscript no_async_loading"
_ROLES = "admin noscript stale no_async_loading"

# fmt: off
ROWS: tuple[CommandRow, ...] = (
    row("wait", 3, "blocking", "", "generic", "3.0.0",
        "Waits until replicas have what this client wrote; there are none.", acl="connection",
        tips=_ACKNOWLEDGED),
    row("waitaof", 4, "blocking", "", "generic", "7.2.0",
        "Waits until what this client wrote is durable in the journal.", acl="connection",
        tips=_ACKNOWLEDGED),
    row("lastsave", 1, "loading stale fast", "", "server", "1.0.0",
        "Refused in this release: nothing is saved as a whole.",
        acl="admin dangerous", tips=VARIES),
    row("save", 1, f"{_SAVES} no_multi", "", "server", "1.0.0",
        "Refused in this release: the journal already holds everything."),
    row("bgsave", -1, _SAVES, "", "server", "1.0.0",
        "Refused in this release: the journal already holds everything."),
    row("bgrewriteaof", 1, _SAVES, "", "server", "1.0.0",
        "Refused in this release: the journal is not rewritten yet."),
    row("role", 1, "noscript loading stale fast", "", "server", "2.8.12",
        "Tells that this is a primary, and its replicas: none.", acl="admin dangerous"),
    row("replicaof", 3, _ROLES, "", "server", "5.0.0",
        "Takes NO ONE; refused otherwise, there is no replication in this release."),
    row("slaveof", 3, _ROLES, "", "server", "1.0.0", "The old name of REPLICAOF."),
)
# fmt: on
