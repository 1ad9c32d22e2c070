"""The other types: strings, hashes."""

from __future__ import annotations

from headwater.commands.table.rows import UNORDERED, CommandRow, row

# fmt: off
ROWS: tuple[CommandRow, ...] = (
    row("set", -3, "write denyoom", "RW access update variable_flags 1", "string", "1.0.0",
        "Sets a key to a string."),
    row("get", 2, "readonly fast", "RO access 1", "string", "1.0.0", "Reads a string."),
    row("hset", -4, "write denyoom fast", "RW update 1", "hash", "2.0.0",
        "Sets fields of a hash."),
    row("hsetnx", 4, "write denyoom fast", "RW insert 1", "hash", "2.0.0",
        "Sets a field of a hash that has no such field."),
    row("hget", 3, "readonly fast", "RO access 1", "hash", "2.0.0", "Reads a field of a hash."),
    row("hdel", -3, "write fast", "RW delete 1", "hash", "2.0.0", "Deletes fields of a hash."),
    row("hgetall", 2, "readonly", "RO access 1", "hash", "2.0.0", "Reads a whole hash.",
        tips=UNORDERED),
)
# fmt: on
