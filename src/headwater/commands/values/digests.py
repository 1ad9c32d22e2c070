"""Conditions on a string's value, for SET (IFEQ, IFNE, IFDEQ, IFDNE) and DELEX, and the digest that they compare.

Source: Redis's command pages (8.4). The digest is the 64-bit XXH3, as 16 hexadecimal digits.
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.commands.keys import delete_key
from headwater.commands.values.typed import reading
from headwater.engine.facts.facts import HEADROOM
from headwater.errors import CommandError

CONDITIONS = frozenset({b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"})
_DIGEST_DIGITS = 16


def holds(condition: bytes, value: bytes | None, wanted: bytes) -> bool:
    """Return whether a string meets a condition. None, for a key that does not exist, is not equal to anything. Raises
    `CommandError` for a digest of the wrong length, unless the key does not exist.

    >>> holds(b"IFEQ", b"a", b"a"), holds(b"IFDNE", None, b"x"), holds(b"IFDEQ", b"", b"2D06800538D394C2")
    (True, True, True)
    """
    negated = condition in (b"IFNE", b"IFDNE")
    if value is None:
        return negated
    if condition in (b"IFDEQ", b"IFDNE"):
        if len(wanted) != _DIGEST_DIGITS:
            raise CommandError("ERR the digest must be exactly 16 hexadecimal characters")
        return (_digest(value) == wanted.lower()) != negated
    return (value == wanted) != negated


def _digest(value: bytes) -> bytes:
    from xxhash import xxh3_64_hexdigest

    return xxh3_64_hexdigest(value).encode()


def digest(call: Call) -> None:
    """DIGEST key → the digest of a string, nil if the key does not exist."""
    value = reading(call, call.arguments.bytes(1), bytes)
    call.reply.bulk_or_nil(None if value is None else _digest(value))


def delex(call: Call) -> None:
    """DELEX key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] → 1, or 0 if the key does not exist
    or the condition is false."""
    arguments = call.arguments
    if arguments.count not in (2, 4):
        raise CommandError("ERR wrong number of arguments for 'delex' command")
    key = arguments.bytes(1)
    value = call.lookup(key)
    wanted = value is not None
    if value is not None and arguments.count == 4:
        condition = arguments.token(2)
        if not isinstance(value, bytes):
            raise CommandError("ERR Key should be of string type if conditions are specified")
        if condition not in CONDITIONS:
            raise CommandError("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")
        wanted = holds(condition, value, arguments.bytes(3))
    if wanted:
        call.admit(HEADROOM + len(key))
        delete_key(call, key)
    call.reply.integer(int(wanted))
