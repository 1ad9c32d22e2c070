"""Commands on strings, lists, sets and hashes."""

from __future__ import annotations

from headwater.commands.table.command import UNORDERED, VARIES, Command

_READ = "readonly fast"
_ADD = "write denyoom fast"

# fmt: off
SET = Command(
    "set", arity=-3, flags="write denyoom", keys="RW access update variable_flags 1",
    group="string", since="1.0.0",
    summary="Sets a key to a string.",
    syntax="key value [NX | XX | IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest "
    "| IFDNE ifdne-digest] [GET] [EX seconds:integer | PX milliseconds:integer | EXAT "
    "unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | KEEPTTL]",
    finder="set", run="values.strings.set_string",
)

GET = Command(
    "get", arity=2, flags=_READ, keys="RO access 1", group="string", since="1.0.0",
    summary="Returns a string.",
    syntax="key",
    run="values.strings.get",
)

GETDEL = Command(
    "getdel", arity=2, flags="write fast", keys="RW access delete 1", group="string", since="6.2.0",
    summary="Returns a string and deletes it.",
    syntax="key",
    run="values.strings.getdel",
)

GETEX = Command(
    "getex", arity=-2, flags="write fast", keys="RW access update 1", group="string", since="6.2.0",
    summary="Returns a string and changes its expiry.",
    syntax="key [EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time "
    "| PXAT unix-time-milliseconds:unix-time | PERSIST]",
    run="values.strings.getex",
)

SETEX = Command(
    "setex", arity=4, flags="write denyoom", keys="OW update 1", group="string", since="2.0.0",
    summary="Sets a key to a string that expires after a number of seconds.",
    syntax="key seconds:integer value",
    run="values.strings.setex",
)

PSETEX = Command(
    "psetex", arity=4, flags="write denyoom", keys="OW update 1", group="string", since="2.6.0",
    summary="Sets a key to a string that expires after a number of milliseconds.",
    syntax="key milliseconds:integer value",
    run="values.strings.psetex",
)

SETNX = Command(
    "setnx", arity=3, flags=_ADD, keys="OW insert 1", group="string", since="1.0.0",
    summary="Sets a key to a string if the key does not exist.",
    syntax="key value",
    run="values.strings.setnx",
)

MSET = Command(
    "mset", arity=-3, flags="write denyoom", keys="OW update 1:-1:0:2", group="string",
    since="1.0.1",
    summary="Sets several keys to strings.",
    syntax="key value [key value ...]",
    tips="request_policy:multi_shard response_policy:all_succeeded", run="values.strings.mset",
)

MSETNX = Command(
    "msetnx", arity=-3, flags="write denyoom", keys="OW insert 1:-1:0:2", group="string",
    since="1.0.1",
    summary="Sets several keys to strings if none of them exists.",
    syntax="key value [key value ...]",
    run="values.strings.msetnx",
)

MSETEX = Command(
    "msetex", arity=-4, flags="write denyoom", keys="OW update 1:0:0:2#", group="string",
    since="8.4.0",
    summary="Sets several keys to strings and their expiry, if a condition holds for all of them.",
    syntax="numkeys:integer key value [key value ...] [NX | XX] [EX seconds:integer "
    "| PX milliseconds:integer | EXAT unix-time-seconds:unix-time "
    "| PXAT unix-time-milliseconds:unix-time | KEEPTTL]",
    tips="request_policy:multi_shard response_policy:all_succeeded", run="values.strings.msetex",
)

DELEX = Command(
    "delex", arity=-2, flags="write fast", keys="RW delete variable_flags 1", group="string",
    since="8.4.0",
    summary="Deletes a key if a condition on its string, or on the digest of it, holds.",
    syntax="key [IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest]",
    finder="delex", run="values.digests.delex",
)

DIGEST = Command(
    "digest", arity=2, flags=_READ, keys="RO access 1", group="string", since="8.4.0",
    summary="Returns the digest of a string.",
    syntax="key",
    run="values.digests.digest",
)

INCREX = Command(
    "increx", arity=-2, flags=_ADD, keys="RW access update 1", group="string", since="8.8.0",
    summary="Adds to a number within bounds, and sets its expiry.",
    syntax="key [BYFLOAT float:double | BYINT integer:integer] [LBOUND lowerbound] "
    "[UBOUND upperbound] [SATURATE] [EX seconds:integer | PX milliseconds:integer "
    "| EXAT unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | PERSIST] [ENX]",
    run="values.increx.increx",
)

MGET = Command(
    "mget", arity=-2, flags=_READ, keys="RO access 1:-1", group="string", since="1.0.0",
    summary="Returns several strings.",
    syntax="key [key ...]",
    tips="request_policy:multi_shard", run="values.strings.mget",
)

INCR = Command(
    "incr", arity=2, flags=_ADD, keys="RW access update 1", group="string", since="1.0.0",
    summary="Adds one to a number.",
    syntax="key",
    run="values.strings.incr",
)

INCRBY = Command(
    "incrby", arity=3, flags=_ADD, keys="RW access update 1", group="string", since="1.0.0",
    summary="Adds to a number.",
    syntax="key increment:integer",
    run="values.strings.incrby",
)

DECR = Command(
    "decr", arity=2, flags=_ADD, keys="RW access update 1", group="string", since="1.0.0",
    summary="Subtracts one from a number.",
    syntax="key",
    run="values.strings.decr",
)

DECRBY = Command(
    "decrby", arity=3, flags=_ADD, keys="RW access update 1", group="string", since="1.0.0",
    summary="Subtracts from a number.",
    syntax="key decrement:integer",
    run="values.strings.decrby",
)

APPEND = Command(
    "append", arity=3, flags=_ADD, keys="RW insert 1", group="string", since="2.0.0",
    summary="Appends to a string.",
    syntax="key value",
    run="values.strings.append",
)

STRLEN = Command(
    "strlen", arity=2, flags=_READ, keys="RO 1", group="string", since="2.2.0",
    summary="Returns the length of a string.",
    syntax="key",
    run="values.strings.strlen",
)

GETRANGE = Command(
    "getrange", arity=4, flags="readonly", keys="RO access 1", group="string", since="2.4.0",
    summary="Returns a part of a string.",
    syntax="key start:integer end:integer",
    run="values.string_parts.getrange",
)

SETRANGE = Command(
    "setrange", arity=4, flags="write denyoom", keys="RW update 1", group="string", since="2.2.0",
    summary="Overwrites a part of a string.",
    syntax="key offset:integer value",
    run="values.string_parts.setrange",
)

LPUSH = Command(
    "lpush", arity=-3, flags=_ADD, keys="RW insert 1", group="list", since="1.0.0",
    summary="Inserts elements at the start of a list.",
    syntax="key element [element ...]",
    run="values.lists.lpush",
)

RPUSH = Command(
    "rpush", arity=-3, flags=_ADD, keys="RW insert 1", group="list", since="1.0.0",
    summary="Appends elements to a list.",
    syntax="key element [element ...]",
    run="values.lists.rpush",
)

LRANGE = Command(
    "lrange", arity=4, flags="readonly", keys="RO access 1", group="list", since="1.0.0",
    summary="Returns a part of a list.",
    syntax="key start:integer stop:integer",
    run="values.lists.lrange",
)

LINDEX = Command(
    "lindex", arity=3, flags="readonly", keys="RO access 1", group="list", since="1.0.0",
    summary="Returns an element of a list.",
    syntax="key index:integer",
    run="values.lists.lindex",
)

LLEN = Command(
    "llen", arity=2, flags=_READ, keys="RO 1", group="list", since="1.0.0",
    summary="Returns the length of a list.",
    syntax="key",
    run="values.lists.llen",
)

LPOP = Command(
    "lpop", arity=-2, flags="write fast", keys="RW access delete 1", group="list", since="1.0.0",
    summary="Removes and returns the first elements of a list.",
    syntax="key [count:integer]",
    run="values.lists.lpop",
)

RPOP = Command(
    "rpop", arity=-2, flags="write fast", keys="RW access delete 1", group="list", since="1.0.0",
    summary="Removes and returns the last elements of a list.",
    syntax="key [count:integer]",
    run="values.lists.rpop",
)

LSET = Command(
    "lset", arity=4, flags="write denyoom", keys="RW update 1", group="list", since="1.0.0",
    summary="Replaces an element of a list.",
    syntax="key index:integer element",
    run="values.list_changes.lset",
)

LREM = Command(
    "lrem", arity=4, flags="write", keys="RW delete 1", group="list", since="1.0.0",
    summary="Removes elements equal to a value from a list.",
    syntax="key count:integer element",
    run="values.list_changes.lrem",
)

LTRIM = Command(
    "ltrim", arity=4, flags="write", keys="RW delete 1", group="list", since="1.0.0",
    summary="Removes all elements outside of a range from a list.",
    syntax="key start:integer stop:integer",
    run="values.list_changes.ltrim",
)

BLPOP = Command(
    "blpop", arity=-3, flags="write blocking", keys="RW access delete 1:-2", group="list",
    since="2.0.0",
    summary="Removes and returns the first element of the first list that exists; can wait for "
    "one.",
    syntax="key [key ...] timeout:double",
    run="values.lists.blpop",
)

BRPOP = Command(
    "brpop", arity=-3, flags="write blocking", keys="RW access delete 1:-2", group="list",
    since="2.0.0",
    summary="Removes and returns the last element of the first list that exists; can wait for one.",
    syntax="key [key ...] timeout:double",
    run="values.lists.brpop",
)

SADD = Command(
    "sadd", arity=-3, flags=_ADD, keys="RW insert 1", group="set", since="1.0.0",
    summary="Adds members to a set.",
    syntax="key member [member ...]",
    run="values.sets.sadd",
)

SREM = Command(
    "srem", arity=-3, flags="write fast", keys="RW delete 1", group="set", since="1.0.0",
    summary="Removes members from a set.",
    syntax="key member [member ...]",
    run="values.sets.srem",
)

SMEMBERS = Command(
    "smembers", arity=2, flags="readonly", keys="RO access 1", group="set", since="1.0.0",
    summary="Returns all members of a set.",
    syntax="key",
    tips=UNORDERED, run="values.sets.smembers",
)

SISMEMBER = Command(
    "sismember", arity=3, flags=_READ, keys="RO 1", group="set", since="1.0.0",
    summary="Returns whether a set has a member.",
    syntax="key member",
    run="values.sets.sismember",
)

SMISMEMBER = Command(
    "smismember", arity=-3, flags=_READ, keys="RO access 1", group="set", since="6.2.0",
    summary="Returns for several members whether a set has them.",
    syntax="key member [member ...]",
    run="values.sets.smismember",
)

SCARD = Command(
    "scard", arity=2, flags=_READ, keys="RO 1", group="set", since="1.0.0",
    summary="Counts the members of a set.",
    syntax="key",
    run="values.sets.scard",
)

SSCAN = Command(
    "sscan", arity=-3, flags="readonly", keys="RO access 1", group="set", since="2.8.0",
    summary="Lists the members of a set, a part in each call.",
    syntax="key cursor:integer [MATCH pattern:pattern] [COUNT count:integer]",
    tips=VARIES, run="values.scanning.sscan",
)

HSET = Command(
    "hset", arity=-4, flags=_ADD, keys="RW update 1", group="hash", since="2.0.0",
    summary="Sets fields of a hash.",
    syntax="key field value [field value ...]",
    run="values.hashes.hset",
)

HSETNX = Command(
    "hsetnx", arity=4, flags=_ADD, keys="RW insert 1", group="hash", since="2.0.0",
    summary="Sets a field of a hash if the field does not exist.",
    syntax="key field value",
    run="values.hashes.hsetnx",
)

HMSET = Command(
    "hmset", arity=-4, flags=_ADD, keys="RW update 1", group="hash", since="2.0.0",
    summary="Sets fields of a hash; HSET does too.",
    syntax="key field value [field value ...]",
    run="values.hashes.hmset",
)

HINCRBY = Command(
    "hincrby", arity=4, flags=_ADD, keys="RW access update 1", group="hash", since="2.0.0",
    summary="Adds to a number in a field of a hash.",
    syntax="key field increment:integer",
    run="values.hashes.hincrby",
)

HGET = Command(
    "hget", arity=3, flags=_READ, keys="RO access 1", group="hash", since="2.0.0",
    summary="Returns the value of a field of a hash.",
    syntax="key field",
    run="values.hashes.hget",
)

HMGET = Command(
    "hmget", arity=-3, flags=_READ, keys="RO access 1", group="hash", since="2.0.0",
    summary="Returns the values of several fields of a hash.",
    syntax="key field [field ...]",
    run="values.hashes.hmget",
)

HDEL = Command(
    "hdel", arity=-3, flags="write fast", keys="RW delete 1", group="hash", since="2.0.0",
    summary="Deletes fields of a hash.",
    syntax="key field [field ...]",
    run="values.hashes.hdel",
)

HGETALL = Command(
    "hgetall", arity=2, flags="readonly", keys="RO access 1", group="hash", since="2.0.0",
    summary="Returns all fields and values of a hash.",
    syntax="key",
    tips=UNORDERED, run="values.hashes.hgetall",
)

HKEYS = Command(
    "hkeys", arity=2, flags="readonly", keys="RO access 1", group="hash", since="2.0.0",
    summary="Returns all fields of a hash.",
    syntax="key",
    tips=UNORDERED, run="values.hashes.hkeys",
)

HVALS = Command(
    "hvals", arity=2, flags="readonly", keys="RO access 1", group="hash", since="2.0.0",
    summary="Returns all values of a hash.",
    syntax="key",
    tips=UNORDERED, run="values.hashes.hvals",
)

HSCAN = Command(
    "hscan", arity=-3, flags="readonly", keys="RO access 1", group="hash", since="2.8.0",
    summary="Lists the fields and values of a hash, a part in each call.",
    syntax="key cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [NOVALUES]",
    tips=VARIES, run="values.scanning.hscan",
)

HSTRLEN = Command(
    "hstrlen", arity=3, flags=_READ, keys="RO 1", group="hash", since="3.2.0",
    summary="Returns the length of a value of a hash.",
    syntax="key field",
    run="values.hashes.hstrlen",
)

HLEN = Command(
    "hlen", arity=2, flags=_READ, keys="RO 1", group="hash", since="2.0.0",
    summary="Counts the fields of a hash.",
    syntax="key",
    run="values.hashes.hlen",
)

HEXISTS = Command(
    "hexists", arity=3, flags=_READ, keys="RO 1", group="hash", since="2.0.0",
    summary="Returns whether a hash has a field.",
    syntax="key field",
    run="values.hashes.hexists",
)
# fmt: on
