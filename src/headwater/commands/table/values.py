"""The other types: strings, lists, sets, hashes."""

from __future__ import annotations

from headwater.commands.table.rows import UNORDERED, CommandRow, row

_READ = "readonly fast"
_ADD = "write denyoom fast"

# fmt: off
ROWS: tuple[CommandRow, ...] = (
    row("set", -3, "write denyoom", "RW access update variable_flags 1", "string", "1.0.0",
        "Sets a key to a string.", finder="set"),
    row("get", 2, _READ, "RO access 1", "string", "1.0.0", "Reads a string."),
    row("getdel", 2, "write fast", "RW access delete 1", "string", "6.2.0",
        "Reads a string and deletes it."),
    row("getex", -2, "write fast", "RW access update 1", "string", "6.2.0",
        "Reads a string and sets when it expires."),
    row("setex", 4, "write denyoom", "OW update 1", "string", "2.0.0",
        "Sets a key to a string that expires after seconds."),
    row("psetex", 4, "write denyoom", "OW update 1", "string", "2.6.0",
        "Sets a key to a string that expires after milliseconds."),
    row("setnx", 3, _ADD, "OW insert 1", "string", "1.0.0",
        "Sets a key that does not exist to a string."),
    row("mset", -3, "write denyoom", "OW update 1:-1:0:2", "string", "1.0.1",
        "Sets several keys to strings.",
        tips="request_policy:multi_shard response_policy:all_succeeded"),
    row("msetnx", -3, "write denyoom", "OW insert 1:-1:0:2", "string", "1.0.1",
        "Sets several keys to strings, if none of them exists."),
    row("mget", -2, _READ, "RO access 1:-1", "string", "1.0.0", "Reads several strings.",
        tips="request_policy:multi_shard"),
    row("incr", 2, _ADD, "RW access update 1", "string", "1.0.0", "Adds one to a number."),
    row("incrby", 3, _ADD, "RW access update 1", "string", "1.0.0", "Adds to a number."),
    row("decr", 2, _ADD, "RW access update 1", "string", "1.0.0", "Subtracts one from a number."),
    row("decrby", 3, _ADD, "RW access update 1", "string", "1.0.0", "Subtracts from a number."),
    row("append", 3, _ADD, "RW insert 1", "string", "2.0.0", "Adds to the end of a string."),
    row("strlen", 2, _READ, "RO 1", "string", "2.2.0", "Tells the length of a string."),
    row("lpush", -3, _ADD, "RW insert 1", "list", "1.0.0", "Adds elements before a list."),
    row("rpush", -3, _ADD, "RW insert 1", "list", "1.0.0", "Adds elements behind a list."),
    row("lrange", 4, "readonly", "RO access 1", "list", "1.0.0", "Reads a part of a list."),
    row("llen", 2, _READ, "RO 1", "list", "1.0.0", "Tells the length of a list."),
    row("lpop", -2, "write fast", "RW access delete 1", "list", "1.0.0",
        "Takes the first elements off a list."),
    row("rpop", -2, "write fast", "RW access delete 1", "list", "1.0.0",
        "Takes the last elements off a list."),
    row("blpop", -3, "write blocking", "RW access delete 1:-2", "list", "2.0.0",
        "Takes the first element off the first list that there is; can wait for one."),
    row("brpop", -3, "write blocking", "RW access delete 1:-2", "list", "2.0.0",
        "Takes the last element off the first list that there is; can wait for one."),
    row("sadd", -3, _ADD, "RW insert 1", "set", "1.0.0", "Adds members to a set."),
    row("srem", -3, "write fast", "RW delete 1", "set", "1.0.0", "Takes members off a set."),
    row("smembers", 2, "readonly", "RO access 1", "set", "1.0.0", "Reads a whole set.",
        tips=UNORDERED),
    row("sismember", 3, _READ, "RO 1", "set", "1.0.0", "Tells whether a set has a member."),
    row("scard", 2, _READ, "RO 1", "set", "1.0.0", "Counts the members of a set."),
    row("hset", -4, _ADD, "RW update 1", "hash", "2.0.0", "Sets fields of a hash."),
    row("hsetnx", 4, _ADD, "RW insert 1", "hash", "2.0.0",
        "Sets a field of a hash that has no such field."),
    row("hget", 3, _READ, "RO access 1", "hash", "2.0.0", "Reads a field of a hash."),
    row("hmget", -3, _READ, "RO access 1", "hash", "2.0.0", "Reads fields of a hash."),
    row("hdel", -3, "write fast", "RW delete 1", "hash", "2.0.0", "Deletes fields of a hash."),
    row("hgetall", 2, "readonly", "RO access 1", "hash", "2.0.0", "Reads a whole hash.",
        tips=UNORDERED),
    row("hlen", 2, _READ, "RO 1", "hash", "2.0.0", "Counts the fields of a hash."),
    row("hexists", 3, _READ, "RO 1", "hash", "2.0.0", "Tells whether a hash has a field."),
)
# fmt: on
