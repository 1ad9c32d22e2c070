"""What acts on keys of any type."""

from __future__ import annotations

from headwater.commands.table.rows import ALL, SUM, UNORDERED, VARIES, CommandRow, row

# fmt: off
ROWS: tuple[CommandRow, ...] = (
    row("del", -2, "write", "RM delete 1:-1", "generic", "1.0.0", "Deletes keys.", tips=SUM),
    row("unlink", -2, "write fast", "RM delete 1:-1", "generic", "4.0.0", "Deletes keys.",
        tips=SUM),
    row("exists", -2, "readonly fast", "RO 1:-1", "generic", "1.0.0",
        "Counts which of the keys exist.", tips=SUM),
    row("type", 2, "readonly fast", "RO 1", "generic", "1.0.0", "Names the type of a key."),
    row("expire", -3, "write fast", "RW update 1", "generic", "1.0.0",
        "Lets a key expire after seconds."),
    row("pexpire", -3, "write fast", "RW update 1", "generic", "2.6.0",
        "Lets a key expire after milliseconds."),
    row("ttl", 2, "readonly fast", "RO access 1", "generic", "1.0.0",
        "Tells the seconds until a key expires.", tips=VARIES),
    row("pttl", 2, "readonly fast", "RO access 1", "generic", "2.6.0",
        "Tells the milliseconds until a key expires.", tips=VARIES),
    row("persist", 2, "write fast", "RW update 1", "generic", "2.2.0",
        "Takes a key's expiry away."),
    row("keys", 2, "readonly", "", "generic", "1.0.0", "Lists the keys that match a pattern.",
        acl="keyspace dangerous", tips=f"request_policy:all_shards {UNORDERED}"),
    row("scan", -2, "readonly", "", "generic", "2.8.0", "Lists keys, a few in each call.",
        tips=f"{VARIES} request_policy:special response_policy:special"),
    row("dump", 2, "readonly", "RO access 1", "generic", "2.6.0",
        "Gives a value as bytes that another store can read.", tips=VARIES),
    row("restore", -4, "write denyoom", "OW update 1", "generic", "2.6.0",
        "Makes a key of the bytes that DUMP gave.", acl="keyspace dangerous"),
    row("dbsize", 1, "readonly fast", "", "server", "1.0.0", "Counts the keys of the database.",
        acl="keyspace", tips="request_policy:all_shards response_policy:agg_sum"),
    row("flushdb", -1, "write", "", "server", "1.0.0", "Deletes all keys of the database.",
        acl="keyspace dangerous", tips=ALL),
    row("flushall", -1, "write", "", "server", "1.0.0", "Deletes all keys of all databases.",
        acl="keyspace dangerous", tips=ALL),
)
# fmt: on
