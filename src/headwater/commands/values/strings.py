"""Strings: SET, SETEX, PSETEX, SETNX, GET, GETDEL, GETEX, MSET, MSETNX, MSETEX, MGET, APPEND, STRLEN, INCR,
INCRBY, DECR, DECRBY.

Source: Redis's command pages and t_string.c.
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, WRONGTYPE, Call
from headwater.commands.expire import end_of, let_expire, let_live
from headwater.commands.keys import clear_expired, delete_key, notify_overwritten
from headwater.commands.values.digests import CONDITIONS, holds
from headwater.commands.values.typed import prepare_text, reading, writing
from headwater.common.limits import MAX_BULK_BYTES
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.keyspace.database import Value
from headwater.engine.keyspace.events import GENERIC, STRING
from headwater.errors import CommandError
from headwater.resp.arguments import INTEGER_ERROR, Arguments, parse_integer

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has it in C
    from headwater.native.memory import decimal_text

UNITS = {b"EX": (1000, False), b"PX": (1, False), b"EXAT": (1000, True), b"PXAT": (1, True)}
"""Option → the milliseconds of its unit, and True if its time is absolute."""

_SET = (b"NX", b"XX", b"GET", b"KEEPTTL")
_MSETEX = (b"NX", b"XX", b"KEEPTTL")
_MAX_KEYS = 2**31 - 1
_LEAST, _MOST = -(2**63), 2**63 - 1
_NUMKEYS = "ERR invalid numkeys value"
TOO_LONG = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"


class _Options:
    """The options after ``SET key value`` and ``GETEX key``. ``known`` lists the valid options without a value.

    Source: Redis, parseExtendedStringArgumentsOrReply.
    """

    def __init__(self, arguments: Arguments, index: int, known: tuple[bytes, ...]) -> None:
        self.words: set[bytes] = set()
        self.condition = b""
        self.wanted = b""
        self.unit = b""
        self._time_at = 0
        while index < arguments.count:
            word = arguments.token(index)
            if word in UNITS and index + 1 < arguments.count and self._may_be_timed(word):
                self.unit, self._time_at = word, index + 1
                index += 1
            elif word in known and self._may_stand(word):
                self.words.add(word)
            elif word in CONDITIONS and known == _SET and index + 1 < arguments.count:
                if self.condition or self.words & {b"NX", b"XX"}:
                    raise CommandError(SYNTAX)
                self.condition, self.wanted = word, arguments.bytes(index + 1)
                index += 1
            else:
                raise CommandError(SYNTAX)
            index += 1

    def _may_be_timed(self, word: bytes) -> bool:
        return self.unit in (b"", word) and not self.words & {b"KEEPTTL", b"PERSIST"}

    def _may_stand(self, word: bytes) -> bool:
        if word in (b"KEEPTTL", b"PERSIST"):
            return not self.unit
        if word == b"NX":
            return not self.condition and b"XX" not in self.words
        return word != b"XX" or not (self.condition or b"NX" in self.words)

    def at_ms(self, call: Call, command: str) -> int | None:
        """Return the steady time at which the key will expire; None without such an option. Raises `CommandError`."""
        if not self.unit:
            return None
        return end_of(call, self._time_at, *UNITS[self.unit], command)

    def refuse(self, current: Value | None) -> bool:
        """Return whether the condition is false for the current value. Raises `CommandError` (WRONGTYPE)."""
        if self.condition:
            if current is not None and not isinstance(current, bytes):
                raise CommandError(WRONGTYPE)
            return not holds(self.condition, current, self.wanted)
        if current is None:
            return b"XX" in self.words
        return b"NX" in self.words


def set_string(call: Call) -> None:
    """SET key value [NX|XX|IFEQ v|IFNE v|IFDEQ d|IFDNE d] [GET] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL]
    → OK, or nil if the condition is false; with GET the old value."""
    arguments, reply = call.arguments, call.reply
    if arguments.count == 3:
        _set_plainly(call)
        return
    options = _Options(arguments, 3, _SET)
    at_ms = options.at_ms(call, "set")
    key, value = arguments.bytes(1), arguments.bytes(2)
    old = reading(call, key, bytes) if b"GET" in options.words else None
    current = call.lookup(key)
    refused = options.refuse(current)
    if not refused:
        keeps = b"KEEPTTL" in options.words and current is not None
        kept = call.db.expiries.get(key) if keeps else None
        prepare_text(call, key, value)
        _put(call, key, value, current, at_ms, kept)
    if b"GET" in options.words:
        call.reply.bulk_or_nil(old)
    elif refused:
        reply.nil()
    else:
        reply.ok()


def _set_plainly(call: Call) -> None:
    """Carry out a SET without options."""
    key, value = call.key(1), call.arguments.bytes(2)
    current = call.lookup(key)
    prepare_text(call, key, value)
    _put(call, key, value, current, None, None)
    call.reply.ok()


def _put(
    call: Call,
    key: bytes,
    value: bytes,
    current: Value | None,
    at_ms: int | None,
    kept_ms: int | None,
) -> None:
    """Carry out an admitted SET. The key expires at ``at_ms`` or, if that is None, at ``kept_ms``, its old expiry."""
    ends_ms = at_ms if at_ms is not None else kept_ms
    call.db.set_string(key, value)
    if ends_ms is not None:
        call.db.set_expiry(key, ends_ms)
    call.db.use(key, value, call.now_ms)
    call.modified(key)
    if current is not None and call.keyspace.notified:
        notify_overwritten(call, key, current, value)
    call.notify(STRING, b"set", key)
    if at_ms is not None:
        call.notify(GENERIC, b"expire", key)


def setex(call: Call) -> None:
    """SETEX key seconds value → OK."""
    _set_with_time(call, 1000, "setex")


def psetex(call: Call) -> None:
    """PSETEX key milliseconds value → OK."""
    _set_with_time(call, 1, "psetex")


def _set_with_time(call: Call, unit_ms: int, command: str) -> None:
    arguments = call.arguments
    at_ms = end_of(call, 2, unit_ms, False, command)
    key, value = arguments.bytes(1), arguments.bytes(3)
    current = call.lookup(key)
    prepare_text(call, key, value)
    _put(call, key, value, current, at_ms, None)
    call.reply.ok()


def setnx(call: Call) -> None:
    """SETNX key value → 1, or 0 if the key exists."""
    key, value = call.arguments.bytes(1), call.arguments.bytes(2)
    missing = call.lookup(key) is None
    if missing:
        prepare_text(call, key, value)
        _put(call, key, value, None, None, None)
    call.reply.integer(int(missing))


def get(call: Call) -> None:
    """GET key → the string, nil if the key does not exist."""
    call.reply.bulk_or_nil(reading(call, call.arguments.bytes(1), bytes))


def getdel(call: Call) -> None:
    """GETDEL key → the string; nil if the key does not exist. Deletes the key."""
    key = call.arguments.bytes(1)
    value = reading(call, key, bytes)
    if value is not None:
        call.admit(HEADROOM + len(key))
        delete_key(call, key)
    call.reply.bulk_or_nil(value)


def getex(call: Call) -> None:
    """GETEX key [EX s|PX ms|EXAT s|PXAT ms|PERSIST] → the string; nil if the key does not exist. Changes or
    removes the expiry."""
    arguments, key = call.arguments, call.arguments.bytes(1)
    options = _Options(arguments, 2, (b"PERSIST",))
    value = reading(call, key, bytes)
    if value is not None:
        at_ms = options.at_ms(call, "getex")
        persists = b"PERSIST" in options.words and key in call.db.expiries
        if at_ms is not None or persists:
            call.admit(HEADROOM + len(key))
        if at_ms is not None:
            let_expire(call, key, at_ms)
        elif persists:
            let_live(call, key)
    call.reply.bulk_or_nil(value)


def mget(call: Call) -> None:
    """MGET key [key …] → the strings; nil for a key that does not exist or has another type."""
    keys = call.arguments.values(1)
    call.reply.array(len(keys))
    for key in keys:
        value = call.read(key)
        call.reply.bulk_or_nil(value if isinstance(value, bytes) else None)


def mset(call: Call) -> None:
    """MSET key value [key value …] → OK."""
    _set_all(call, _pairs(call, "mset"))
    call.reply.ok()


def msetnx(call: Call) -> None:
    """MSETNX key value [key value …] → 1, or 0 if one of the keys exists; then nothing is set."""
    pairs = _pairs(call, "msetnx")
    free = all(call.lookup(key) is None for key, _ in pairs)
    if free:
        _set_all(call, pairs)
    call.reply.integer(int(free))


def msetex(call: Call) -> None:
    """MSETEX numkeys key value [key value …] [NX|XX] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL] → 1, or 0 if the
    condition is false for one of the keys; then nothing is set."""
    arguments = call.arguments
    count = arguments.integer(1, error=_NUMKEYS)
    if not 0 < count <= _MAX_KEYS:
        raise CommandError(_NUMKEYS)
    end = 2 + 2 * count
    if end > arguments.count:
        raise CommandError("ERR wrong number of key-value pairs")
    options = _Options(arguments, end, _MSETEX)
    at_ms = options.at_ms(call, "msetex")
    values = arguments.values(2)[: 2 * count]
    pairs = list(zip(values[0::2], values[1::2], strict=True))
    refused = any(options.refuse(call.lookup(key)) for key, _ in pairs)
    if not refused:
        _set_all(call, pairs, at_ms, keeps=b"KEEPTTL" in options.words)
    call.reply.integer(int(not refused))


def _pairs(call: Call, command: str) -> list[tuple[bytes, bytes]]:
    if call.arguments.count % 2 == 0:
        raise CommandError(f"ERR wrong number of arguments for '{command}' command")
    values = call.arguments.values(1)
    return list(zip(values[0::2], values[1::2], strict=True))


def _set_all(
    call: Call, pairs: list[tuple[bytes, bytes]], at_ms: int | None = None, *, keeps: bool = False
) -> None:
    call.admit(sum(3 * HEADROOM + 3 * len(key) + len(value) for key, value in pairs))
    for key, value in pairs:
        current = call.lookup(key)
        kept_ms = call.db.expiries.get(key) if keeps and current is not None else None
        clear_expired(call, key)
        _put(call, key, value, current, at_ms, kept_ms)


def append(call: Call) -> None:
    """APPEND key value → the length of the string after appending."""
    key, more = call.arguments.bytes(1), call.arguments.bytes(2)
    write_part(call, key, len(writing(call, key, bytes) or b""), more, b"append")


def write_part(call: Call, key: bytes, at: int, part: bytes, event: bytes) -> None:
    """Write ``part`` into a string from byte ``at`` on, and reply with the new length. Keeps no reference to the
    string, so that the string can be changed in place."""
    if at + len(part) > MAX_BULK_BYTES:
        raise CommandError(TOO_LONG)
    prepare_text(call, key, part)
    grows = event == b"setrange" or key in call.db.values
    call.db.write_string(key, at, part)
    value = call.db.values[key]
    assert isinstance(value, bytes)
    call.db.use(key, value, call.now_ms)
    if grows:
        call.keyspace.grow(value)
    call.modified(key)
    call.notify(STRING, event, key)
    call.reply.integer(len(value))


def change_string(call: Call, key: bytes, value: bytes, event: bytes) -> None:
    """Change the value of a string but not its expiry."""
    at_ms = None
    if call.db.expiries and call.db.lookup(key, call.now_ms) is not None:
        at_ms = call.db.expiries.get(key)
    prepare_text(call, key, value)
    call.db.set_string(key, value)
    if at_ms is not None:
        call.db.set_expiry(key, at_ms)
    call.db.use(key, value, call.now_ms)
    call.modified(key)
    call.notify(STRING, event, key)


def strlen(call: Call) -> None:
    """STRLEN key → the length of the string, 0 if the key does not exist."""
    call.reply.integer(len(reading(call, call.arguments.bytes(1), bytes) or b""))


# --- numbers -----------------------------------------------------------------------------------


def incr(call: Call) -> None:
    """INCR key → the number after adding 1; a key that does not exist counts as 0."""
    _add(call, 1)


def decr(call: Call) -> None:
    """DECR key → the number after subtracting 1."""
    _add(call, -1)


def incrby(call: Call) -> None:
    """INCRBY key increment → the number after adding ``increment``."""
    _add(call, call.arguments.integer(2))


def decrby(call: Call) -> None:
    """DECRBY key decrement → the number after subtracting ``decrement``."""
    decrement = call.arguments.integer(2)
    if decrement == _LEAST:
        raise CommandError("ERR decrement would overflow")
    _add(call, -decrement)


def _add(call: Call, difference: int) -> None:
    key = call.key(1)
    current = writing(call, key, bytes)
    found = 0 if current is None else parse_integer(current)
    if found is None:
        raise CommandError(INTEGER_ERROR)
    number = found
    if number > _MOST - difference if difference > 0 else number < _LEAST - difference:
        raise CommandError("ERR increment or decrement would overflow")
    number += difference
    change_string(call, key, decimal_text(number), b"incrby")
    call.reply.integer(number)
