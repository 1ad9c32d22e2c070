"""Sets: SADD, SREM, SMEMBERS, SISMEMBER, SMISMEMBER, SCARD.

Source: Redis's command pages and t_set.c.
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.commands.values.typed import changed, prepare, reading, writing
from headwater.engine.keyspace.events import SET


def _read(call: Call) -> set[bytes]:
    """Return the set at argument 1, for a command that only reads; empty if the key does not exist."""
    return reading(call, call.arguments.bytes(1), set) or set()


def sadd(call: Call) -> None:
    """SADD key member [member …] → the number of new members."""
    key = call.arguments.bytes(1)
    current = writing(call, key, set) or set()
    members = [one for one in dict.fromkeys(call.arguments.values(2)) if one not in current]
    if members:
        prepare(call, key, members)
        call.db.add_members(key, members)
        changed(call, key, SET, b"sadd", len(members))
    call.reply.integer(len(members))


def srem(call: Call) -> None:
    """SREM key member [member …] → the number of removed members."""
    key = call.arguments.bytes(1)
    current = writing(call, key, set) or set()
    members = [one for one in dict.fromkeys(call.arguments.values(2)) if one in current]
    if members:
        prepare(call, key, members)
        call.db.remove_members(key, members)
        changed(call, key, SET, b"srem", len(members))
    call.reply.integer(len(members))


def smembers(call: Call) -> None:
    """SMEMBERS key → the members, unordered; empty if the key does not exist."""
    current = _read(call)
    call.reply.set(len(current))
    for member in current:
        call.reply.bulk(member)


def sismember(call: Call) -> None:
    """SISMEMBER key member → 1 if the set has the member, else 0."""
    call.reply.integer(int(call.arguments.bytes(2) in _read(call)))


def smismember(call: Call) -> None:
    """SMISMEMBER key member [member …] → for each member 1 if the set has it, else 0."""
    current = _read(call)
    members = call.arguments.values(2)
    call.reply.array(len(members))
    for member in members:
        call.reply.integer(int(member in current))


def scard(call: Call) -> None:
    """SCARD key → the number of members, 0 if the key does not exist."""
    call.reply.integer(len(_read(call)))
