"""Commands on streams, including Headwater's own."""

from __future__ import annotations

from headwater.commands.table.command import VARIES, Command, help_command

# fmt: off
XADD = Command(
    "xadd", arity=-5, flags="write denyoom fast", keys="RW update 1", group="stream", since="5.0.0",
    summary="Appends an entry; creates the stream if it does not exist.",
    syntax="key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] "
    "[IDMPAUTO producer-id | IDMP producer-id iid] [<MAXLEN | MINID> [= | ~] threshold [LIMIT "
    "count:integer]] <* | id> field value [field value ...]",
    tips=VARIES, run="xadd.xadd",
)

XLEN = Command(
    "xlen", arity=2, flags="readonly fast", keys="RO 1", group="stream", since="5.0.0",
    summary="Counts the entries.",
    syntax="key",
    run="xrange.xlen",
)

XRANGE = Command(
    "xrange", arity=-4, flags="readonly", keys="RO access 1", group="stream", since="5.0.0",
    summary="Reads the entries between two ids.",
    syntax="key start end [COUNT count:integer]",
    run="xrange.xrange",
)

XREVRANGE = Command(
    "xrevrange", arity=-4, flags="readonly", keys="RO access 1", group="stream", since="5.0.0",
    summary="Reads the entries between two ids, newest first.",
    syntax="key end start [COUNT count:integer]",
    run="xrange.xrevrange",
)

XDEL = Command(
    "xdel", arity=-3, flags="write fast", keys="RW delete 1", group="stream", since="5.0.0",
    summary="Deletes entries by id.",
    syntax="key id [id ...]",
    run="xdel.xdel",
)

XDELEX = Command(
    "xdelex", arity=-5, flags="write fast", keys="RW delete 1", group="stream", since="8.2.0",
    summary="Deletes entries by id, depending on the groups that still reference them.",
    syntax="key [KEEPREF | DELREF | ACKED] IDS numids:integer id [id ...]",
    run="xdel.xdelex",
)

XTRIM = Command(
    "xtrim", arity=-4, flags="write", keys="RW delete 1", group="stream", since="5.0.0",
    summary="Deletes the oldest entries, down to a length or an id.",
    syntax="key <MAXLEN | MINID> [= | ~] threshold [LIMIT count:integer] "
    "[KEEPREF | DELREF | ACKED]",
    tips=VARIES, run="xtrim.xtrim",
)

XSETID = Command(
    "xsetid", arity=-3, flags="write denyoom fast", keys="RW update 1", group="stream",
    since="5.0.0",
    summary="Sets the last id and the counters of a stream.",
    syntax="key last-id [ENTRIESADDED entries-added:integer] [MAXDELETEDID max-deleted-id]",
    run="xsetid.xsetid",
)

XCFGSET = Command(
    "xcfgset", arity=-2, flags="write fast", keys="RW update 1", group="stream", since="8.6.0",
    summary="Sets how long idempotent ids are remembered, and how many of each producer.",
    syntax="key [IDMP-DURATION seconds:integer] [IDMP-MAXSIZE count:integer]",
    run="idempotency.xcfgset",
)

XIDMPRECORD = Command(
    "xidmprecord", arity=5, flags="write denyoom fast", keys="RW update 1", group="stream",
    since="8.6.2",
    summary="Records the entry that belongs to an idempotent id of a producer.",
    syntax="key producer-id iid id",
    run="idempotency.xidmprecord",
)

XREAD = Command(
    "xread", arity=-4, flags="readonly blocking", keys="RO access STREAMS/1:-1:2", group="stream",
    since="5.0.0",
    summary="Reads the entries after an id, from several streams; can wait for them.",
    syntax="[COUNT count:integer] [MAXCOUNT count:integer] [MAXSIZE bytes:integer] "
    "[BLOCK milliseconds:integer] STREAMS key [key ...] id [id ...]",
    finder="streams", run="xread.xread",
)

XREADGROUP = Command(
    "xreadgroup", arity=-7, flags="write blocking", keys="RO access STREAMS/4:-1:2", group="stream",
    since="5.0.0",
    summary="Delivers entries to a consumer of a group: new, idle or its own; can wait for them.",
    syntax="GROUP group consumer [COUNT count:integer] [MAXCOUNT count:integer] "
    "[MAXSIZE bytes:integer] [BLOCK milliseconds:integer] [CLAIM min-idle-time:integer] [NOACK] "
    "STREAMS key [key ...] id [id ...]",
    finder="streams", run="xreadgroup.xreadgroup",
)

XACK = Command(
    "xack", arity=-4, flags="write fast", keys="RW update 1", group="stream", since="5.0.0",
    summary="Acknowledges entries: they are no longer pending in the group.",
    syntax="key group id [id ...]",
    run="xack.xack",
)

XACKDEL = Command(
    "xackdel", arity=-6, flags="write fast", keys="RW update delete 1", group="stream",
    since="8.2.0",
    summary="Acknowledges entries and deletes them.",
    syntax="key group [KEEPREF | DELREF | ACKED] IDS numids:integer id [id ...]",
    run="xdel.xackdel",
)

XNACK = Command(
    "xnack", arity=-7, flags="write fast", keys="RW update 1", group="stream", since="8.8.0",
    summary="Releases pending entries, so that any consumer can claim them at once.",
    syntax="key group <SILENT | FAIL | FATAL> IDS numids:integer id [id ...] "
    "[RETRYCOUNT count:integer] [FORCE]",
    run="xack.xnack",
)

XPENDING = Command(
    "xpending", arity=-3, flags="readonly", keys="RO access 1", group="stream", since="5.0.0",
    summary="Shows the entries that are delivered and not acknowledged.",
    syntax="key group [[IDLE min-idle-time:integer] start end count:integer [consumer]]",
    tips=VARIES, run="xpending.xpending",
)

XCLAIM = Command(
    "xclaim", arity=-6, flags="write fast", keys="RW update 1", group="stream", since="5.0.0",
    summary="Claims pending entries by id, if they are idle for long enough.",
    syntax="key group consumer min-idle-time id [id ...] [IDLE ms:integer] "
    "[TIME unix-time-milliseconds:unix-time] [RETRYCOUNT count:integer] [FORCE] [JUSTID] "
    "[LASTID lastid]",
    tips=VARIES, run="xclaim.xclaim",
)

XAUTOCLAIM = Command(
    "xautoclaim", arity=-6, flags="write fast", keys="RW delete 1", group="stream", since="6.2.0",
    summary="Claims idle pending entries by scanning for them.",
    syntax="key group consumer min-idle-time start [COUNT count:integer] [JUSTID]",
    tips=VARIES, run="xclaim.xautoclaim",
)

XRENEW = Command(
    "xrenew", arity=-7, flags="write fast", keys="RW update 1", group="stream", since="0.1.0",
    summary="Renews the lease on entries that the consumer still owns.",
    syntax="key group consumer [IDLE milliseconds:integer] IDS numids:integer id [id ...]",
    run="xsettle.xrenew",
)

XSETTLE = Command(
    "xsettle", arity=-8, flags="write denyoom",
    keys="RW update delete 1, RW update incomplete TO/5", group="stream", since="0.1.0",
    summary="Settles entries that the consumer still owns and appends their results.",
    syntax="key group consumer <ACK | ACKDEL | SILENT | FAIL | FATAL> [KEEPREF | DELREF | ACKED] "
    "[ANYOWNER] [DELAY milliseconds:integer] IDS numids:integer id [id ...] "
    "[TO destination [<MAXLEN | MINID> [= | ~] threshold] <* | id> FIELDS numpairs:integer field "
    "value [field value ...] [TO destination [<MAXLEN | MINID> [= | ~] threshold] <* | id> FIELDS "
    "numpairs:integer field value [field value ...] ...]]",
    tips=VARIES, finder="xsettle", run="xsettle.xsettle",
)

XRETIRE = Command(
    "xretire", arity=4, flags="write fast", keys="RW delete 1", group="stream", since="0.1.0",
    summary="Removes a consumer that owns no pending entry.",
    syntax="key group consumer",
    run="xgroup.xretire",
)

XLAG = Command(
    "xlag", arity=-2, flags="readonly", keys="RO access 1", group="stream", since="0.1.0",
    summary="Shows how many entries groups have not read and what they have pending, in exact "
    "numbers.",
    syntax="key [group [group ...]]",
    tips=VARIES, run="xlag.xlag",
)

XDELAYED = Command(
    "xdelayed", arity=-3, flags="readonly", keys="RO access 1", group="stream", since="0.1.0",
    summary="Shows the delayed entries of a group and the time until they are due.",
    syntax="key group [start end count:integer]",
    run="xdelayed.xdelayed",
)

XSPLIT = Command(
    "xsplit", arity=5, flags="readonly fast", keys="RO access 1", group="stream", since="0.1.0",
    summary="Counts the entries of a range and returns the ids that divide it into parts of nearly equal size.",
    syntax="key start end parts:integer",
    run="xsplit.xsplit",
)

XCOUNTERS = Command(
    "xcounters", arity=-2, flags="readonly fast", keys="RO access 1:-1", group="stream", since="0.1.0",
    summary="Returns the counters of streams.",
    syntax="key [key ...]",
    tips="request_policy:multi_shard", run="xcounters.xcounters",
)

XGROUP = Command(
    "xgroup", arity=-2, group="stream", since="5.0.0",
    summary="Manages consumer groups.",
    subcommands=(
        Command(
            "xgroup|create", arity=-5, flags="write denyoom", keys="RW insert 2", group="stream",
            since="5.0.0",
            summary="Creates a group.",
            syntax="key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read:integer]",
            run="xgroup.xgroup_create",
        ),
        Command(
            "xgroup|createconsumer", arity=5, flags="write denyoom", keys="RW insert 2",
            group="stream", since="6.2.0",
            summary="Creates a consumer.",
            syntax="key group consumer",
            run="xgroup.xgroup_createconsumer",
        ),
        Command(
            "xgroup|setid", arity=-5, flags="write", keys="RW update 2", group="stream",
            since="5.0.0",
            summary="Sets the id up to which entries count as delivered to a group.",
            syntax="key group <id | $> [ENTRIESREAD entries-read:integer]",
            run="xgroup.xgroup_setid",
        ),
        Command(
            "xgroup|delconsumer", arity=5, flags="write", keys="RW delete 2", group="stream",
            since="5.0.0",
            summary="Deletes a consumer and its pending entries.",
            syntax="key group consumer",
            run="xgroup.xgroup_delconsumer",
        ),
        Command(
            "xgroup|destroy", arity=4, flags="write", keys="RW delete 2", group="stream",
            since="5.0.0",
            summary="Deletes a group.",
            syntax="key group",
            run="xgroup.xgroup_destroy",
        ),
        help_command("xgroup", group="stream", since="5.0.0", run="xgroup.xgroup_help"),
    ),
)

XINFO = Command(
    "xinfo", arity=-2, group="stream", since="5.0.0",
    summary="Shows streams, groups and consumers.",
    subcommands=(
        Command(
            "xinfo|groups", arity=3, flags="readonly", keys="RO access 2", group="stream",
            since="5.0.0",
            summary="Shows the groups of a stream.",
            syntax="key",
            run="xinfo.xinfo_groups",
        ),
        Command(
            "xinfo|consumers", arity=4, flags="readonly", keys="RO access 2", group="stream",
            since="5.0.0",
            summary="Shows the consumers of a group.",
            syntax="key group",
            tips=VARIES, run="xinfo.xinfo_consumers",
        ),
        Command(
            "xinfo|stream", arity=-3, flags="readonly", keys="RO access 2", group="stream",
            since="5.0.0",
            summary="Shows a stream; FULL includes entries, groups and pending entries.",
            syntax="key [FULL [COUNT count:integer]]",
            run="xinfo.xinfo_stream",
        ),
        help_command("xinfo", group="stream", since="5.0.0", run="xinfo.xinfo_help"),
    ),
)
# fmt: on
