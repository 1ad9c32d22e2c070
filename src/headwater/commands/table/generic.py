"""Commands on keys of any type and on whole databases."""

from __future__ import annotations

from headwater.commands.table.command import ALL, ANY_STATE, SUM, UNORDERED, VARIES, Command

# fmt: off
DEL = Command(
    "del", arity=-2, flags="write", keys="RM delete 1:-1", group="generic", since="1.0.0",
    summary="Deletes keys.",
    syntax="key [key ...]",
    tips=SUM, run="keys.delete",
)

UNLINK = Command(
    "unlink", arity=-2, flags="write fast", keys="RM delete 1:-1", group="generic", since="4.0.0",
    summary="Deletes keys.",
    syntax="key [key ...]",
    tips=SUM, run="keys.delete",
)

EXISTS = Command(
    "exists", arity=-2, flags="readonly fast", keys="RO 1:-1", group="generic", since="1.0.0",
    summary="Counts the keys that exist.",
    syntax="key [key ...]",
    tips=SUM, run="keys.exists",
)

TOUCH = Command(
    "touch", arity=-2, flags="readonly fast", keys="RO 1:-1", group="generic", since="3.2.1",
    summary="Counts the keys that exist and resets their idle times.",
    syntax="key [key ...]",
    tips=SUM, run="keys.touch",
)

TYPE = Command(
    "type", arity=2, flags="readonly fast", keys="RO 1", group="generic", since="1.0.0",
    summary="Returns the type of a key.",
    syntax="key",
    run="keys.type_of",
)

RENAME = Command(
    "rename", arity=3, flags="write", keys="RW access delete 1, OW update 2", group="generic",
    since="1.0.0",
    summary="Renames a key, overwriting a key of the new name.",
    syntax="key newkey",
    run="rename.rename",
)

RENAMENX = Command(
    "renamenx", arity=3, flags="write fast", keys="RW access delete 1, OW insert 2",
    group="generic", since="1.0.0",
    summary="Renames a key if the new name does not exist.",
    syntax="key newkey",
    run="rename.renamenx",
)

COPY = Command(
    "copy", arity=-3, flags="write denyoom", keys="RO access 1, OW update 2", group="generic",
    since="6.2.0",
    summary="Copies a value to another key, in the same or another database.",
    syntax="source destination [DB destination-db:integer] [REPLACE]",
    run="copy.copy",
)

MOVE = Command(
    "move", arity=3, flags="write fast", keys="RW access update 1", group="generic", since="1.0.0",
    summary="Moves a key to another database.",
    syntax="key db:integer",
    run="rename.move",
)

EXPIRE = Command(
    "expire", arity=-3, flags="write fast", keys="RW update 1", group="generic", since="1.0.0",
    summary="Sets the expiry of a key in seconds.",
    syntax="key seconds:integer [NX | XX | GT | LT]",
    run="expire.expire",
)

PEXPIRE = Command(
    "pexpire", arity=-3, flags="write fast", keys="RW update 1", group="generic", since="2.6.0",
    summary="Sets the expiry of a key in milliseconds.",
    syntax="key milliseconds:integer [NX | XX | GT | LT]",
    run="expire.pexpire",
)

EXPIREAT = Command(
    "expireat", arity=-3, flags="write fast", keys="RW update 1", group="generic", since="1.2.0",
    summary="Sets the expiry of a key to a Unix time in seconds.",
    syntax="key unix-time-seconds:unix-time [NX | XX | GT | LT]",
    run="expire.expireat",
)

PEXPIREAT = Command(
    "pexpireat", arity=-3, flags="write fast", keys="RW update 1", group="generic", since="2.6.0",
    summary="Sets the expiry of a key to a Unix time in milliseconds.",
    syntax="key unix-time-milliseconds:unix-time [NX | XX | GT | LT]",
    run="expire.pexpireat",
)

TTL = Command(
    "ttl", arity=2, flags="readonly fast", keys="RO access 1", group="generic", since="1.0.0",
    summary="Returns the seconds until a key expires.",
    syntax="key",
    tips=VARIES, run="expire.ttl",
)

PTTL = Command(
    "pttl", arity=2, flags="readonly fast", keys="RO access 1", group="generic", since="2.6.0",
    summary="Returns the milliseconds until a key expires.",
    syntax="key",
    tips=VARIES, run="expire.pttl",
)

EXPIRETIME = Command(
    "expiretime", arity=2, flags="readonly fast", keys="RO access 1", group="generic",
    since="7.0.0",
    summary="Returns the Unix time in seconds at which a key expires.",
    syntax="key",
    run="expire.expiretime",
)

PEXPIRETIME = Command(
    "pexpiretime", arity=2, flags="readonly fast", keys="RO access 1", group="generic",
    since="7.0.0",
    summary="Returns the Unix time in milliseconds at which a key expires.",
    syntax="key",
    run="expire.pexpiretime",
)

PERSIST = Command(
    "persist", arity=2, flags="write fast", keys="RW update 1", group="generic", since="2.2.0",
    summary="Removes the expiry of a key.",
    syntax="key",
    run="expire.persist",
)

OBJECT = Command(
    "object", arity=-2, group="generic", since="2.2.3",
    summary="Shows how a value is stored.",
    subcommands=(
        Command(
            "object|encoding", arity=3, flags="readonly", keys="RO 2", group="generic",
            since="2.2.3",
            summary="Returns the encoding that Redis would use for a value.",
            syntax="key",
            tips=VARIES, run="object.object_encoding",
        ),
        Command(
            "object|freq", arity=3, flags="readonly", keys="RO 2", group="generic", since="4.0.0",
            summary="Returns how often a key is used; an error, because it is not counted.",
            syntax="key",
            tips=VARIES, run="object.object_freq",
        ),
        Command(
            "object|idletime", arity=3, flags="readonly", keys="RO 2", group="generic",
            since="2.2.3",
            summary="Returns the seconds since a key was last used.",
            syntax="key",
            tips=VARIES, run="object.object_idletime",
        ),
        Command(
            "object|refcount", arity=3, flags="readonly", keys="RO 2", group="generic",
            since="2.2.3",
            summary="Counts the keys that share a value.",
            syntax="key",
            tips=VARIES, run="object.object_refcount",
        ),
        Command(
            "object|help", arity=2, flags=ANY_STATE, group="generic", since="6.2.0",
            summary="Lists the subcommands of OBJECT.",
            run="object.object_help",
        ),
    ),
)

DUMP = Command(
    "dump", arity=2, flags="readonly", keys="RO access 1", group="generic", since="2.6.0",
    summary="Returns a value as bytes that RESTORE reads, here or on another server.",
    syntax="key",
    tips=VARIES, run="dump.dump",
)

RESTORE = Command(
    "restore", arity=-4, flags="write denyoom", keys="OW update 1", group="generic", since="2.6.0",
    summary="Creates a key from the bytes that DUMP returned.",
    syntax="key ttl:integer serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds:integer] "
    "[FREQ frequency:integer]",
    acl="keyspace dangerous", run="restore.restore",
)

KEYS = Command(
    "keys", arity=2, flags="readonly", group="generic", since="1.0.0",
    summary="Lists the keys that match a pattern.",
    syntax="pattern:pattern",
    acl="keyspace dangerous", tips=f"request_policy:all_shards {UNORDERED}", run="keys.keys",
)

SCAN = Command(
    "scan", arity=-2, flags="readonly", group="generic", since="2.8.0",
    summary="Lists keys, a part in each call.",
    syntax="cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [TYPE type]",
    tips=f"{VARIES} request_policy:special response_policy:special", run="scan.scan",
)

RANDOMKEY = Command(
    "randomkey", arity=1, flags="readonly", group="generic", since="1.0.0",
    summary="Returns a random key.",
    tips=f"request_policy:all_shards response_policy:special {VARIES}", run="keys.randomkey",
)

DBSIZE = Command(
    "dbsize", arity=1, flags="readonly fast", group="server", since="1.0.0",
    summary="Counts the keys of the database.",
    acl="keyspace", tips="request_policy:all_shards response_policy:agg_sum",
    run="databases.dbsize",
)

SWAPDB = Command(
    "swapdb", arity=3, flags="write fast", group="server", since="4.0.0",
    summary="Exchanges the keys of two databases.",
    syntax="index1:integer index2:integer",
    acl="keyspace dangerous", run="databases.swapdb",
)

FLUSHDB = Command(
    "flushdb", arity=-1, flags="write", group="server", since="1.0.0",
    summary="Deletes all keys of the database.",
    syntax="[ASYNC | SYNC]",
    acl="keyspace dangerous", tips=ALL, run="databases.flushdb",
)

FLUSHALL = Command(
    "flushall", arity=-1, flags="write", group="server", since="1.0.0",
    summary="Deletes all keys of all databases.",
    syntax="[ASYNC | SYNC]",
    acl="keyspace dangerous", tips=ALL, run="databases.flushall",
)
# fmt: on
