"""Replies as Lua values, and Lua values as replies, by Redis's table of conversions.

    RESP              Lua                             RESP
    integer           number                          integer (cut, not rounded)
    bulk string       string                          bulk string
    nil               false (RESP3's: nil)            nil
    status            {ok = text}                     status
    error             {err = text}                    error
    array             table from 1 on                 array, up to the first nil
    map, set          {map = {…}}, {set = {…}}        likewise
    double, boolean   {double = n}, true or false     likewise; true is 1 for a RESP2 client

Source: redis.io, Redis Lua API reference, data type conversion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.errors import CommandError
from headwater.limits import MAX_SCRIPT_MEMORY_BYTES
from headwater.resp.replies import ReplyWriter

MAX_DEPTH = 200
"""Tables in tables that become a reply. Precedent: Redis, the Lua C stack (LUAI_MAXCSTACK 8000)."""

_EXACT = 2**52
"""Whole numbers below are written without a fraction. Precedent: Redis, util.c, double2ll."""

Table = Any
"""A table of Lua; lupa has no annotations."""


class ScriptFailed(Exception):
    """An error reply to a command that a script has called."""


class ReplyDecoder:
    """Turns one whole reply into a Lua value; ``table`` makes an empty table of Lua."""

    def __init__(self, table: Any, data: bytearray) -> None:
        self._table = table
        self._data = data
        self._at = 0

    def value(self) -> Any:
        """The reply's value. Raises `ScriptFailed` with the text of an error reply."""
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return False if rest == b"-1" else self._text(int(rest))
        if kind == b":":
            return int(rest)
        if kind == b"*":
            return False if rest == b"-1" else self._items(int(rest))
        if kind == b"+":
            return self._named(b"ok", rest)
        if kind == b"-":
            raise ScriptFailed(rest)
        return self._resp3(kind, rest)

    def _resp3(self, kind: bytes, rest: bytes) -> Any:
        if kind == b"_":
            return None
        if kind == b"#":
            return rest == b"t"
        if kind == b",":
            return self._named(b"double", float(rest))
        if kind == b"%":
            return self._named(b"map", self._pairs(int(rest)))
        if kind == b"~":
            members = self._table()
            for _ in range(int(rest)):
                members[self._inner()] = True
            return self._named(b"set", members)
        if kind == b"=":
            text = self._text(int(rest))
            verbatim = self._table()
            verbatim[b"format"], verbatim[b"string"] = text[:3], text[4:]
            return self._named(b"verbatim_string", verbatim)
        raise AssertionError(f"no reply begins with {kind!r}")

    def _inner(self) -> Any:
        """A value within another: an error there is a value as well (EXEC's replies have them)."""
        try:
            return self.value()
        except ScriptFailed as failed:
            return self._named(b"err", failed.args[0])

    def _items(self, count: int) -> Table:
        items = self._table()
        for index in range(1, count + 1):
            items[index] = self._inner()
        return items

    def _pairs(self, count: int) -> Table:
        pairs = self._table()
        for _ in range(count):
            name = self._inner()
            pairs[name] = self._inner()
        return pairs

    def _named(self, name: bytes, value: Any) -> Table:
        made = self._table()
        made[name] = value
        return made

    def _line(self) -> bytes:
        end = self._data.index(b"\r\n", self._at)
        line = bytes(self._data[self._at : end])
        self._at = end + 2
        return line

    def _text(self, length: int) -> bytes:
        text = bytes(self._data[self._at : self._at + length])
        self._at += length + 2
        return text


class ReplyEncoder:
    """Writes what a script returned; ``kind`` tells Lua's tables from its other values. Only a script
    that has chosen RESP3 itself (redis.setresp) can say false rather than nil. ``expired`` tells when
    the script has had its time: small tables in each other can be a reply of any length."""

    def __init__(
        self,
        reply: ReplyWriter,
        kind: Any,
        *,
        expired: Callable[[], bool],
        chosen_resp: int = 2,
    ) -> None:
        self._reply = reply
        self._kind = kind
        self._expired = expired
        self._most = len(reply.out) + MAX_SCRIPT_MEMORY_BYTES
        self._says_false = chosen_resp == 3

    def write(self, value: Any, *, depth: int = 0) -> None:
        """Write one value. Raises `CommandError` when tables stand too deep in each other, or the
        reply is too long or takes too long."""
        reply = self._reply
        if len(reply.out) > self._most:
            raise CommandError("ERR the script's reply is too long; let it answer less at a time")
        if depth > MAX_DEPTH:
            raise CommandError("ERR reached lua stack limit")
        if value is None or (value is False and not self._says_false):
            reply.nil()
        elif isinstance(value, bool):
            if reply.resp == 3:
                reply.raw(b"#t\r\n" if value else b"#f\r\n")
            else:
                reply.integer(int(value))
        elif isinstance(value, bytes):
            reply.bulk(value)
        elif isinstance(value, int | float):
            reply.integer(_integer(value))
        elif self._kind(value) == "table":
            self._table(value, depth)
        else:
            reply.nil()  # a function, a coroutine: there is nothing of the kind on the wire

    def _table(self, table: Table, depth: int) -> None:
        reply = self._reply
        if self._expired():
            raise CommandError(
                "ERR the script ran longer than lua-time-limit; what it wrote stands"
            )
        for name, write in (
            (b"err", self._error),
            (b"ok", self._status),
            (b"double", self._double),
            (b"map", self._map),
            (b"set", self._set),
            (b"big_number", self._big_number),
            (b"verbatim_string", self._verbatim),
        ):
            found = table[name]
            if found is not None and write(found, depth):
                return
        items: list[Any] = []
        while (item := table[len(items) + 1]) is not None:
            items.append(item)
        reply.array(len(items))
        for item in items:
            self.write(item, depth=depth + 1)

    def _error(self, text: Any, _depth: int) -> bool:
        if isinstance(text, bytes):
            self._reply.error(text.decode("utf-8", "surrogateescape"))
        return isinstance(text, bytes)

    def _status(self, text: Any, _depth: int) -> bool:
        if isinstance(text, bytes):
            self._reply.simple(text.replace(b"\r", b" ").replace(b"\n", b" "))
        return isinstance(text, bytes)

    def _double(self, number: Any, _depth: int) -> bool:
        if isinstance(number, bool) or not isinstance(number, int | float):
            return False
        whole = abs(number) < _EXACT and number == int(number)
        text = b"%d" % int(number) if whole else repr(float(number)).encode()
        if self._reply.resp == 3:
            self._reply.raw(b",%b\r\n" % text)
        else:
            self._reply.bulk(text)
        return True

    def _map(self, pairs: Any, depth: int) -> bool:
        if self._kind(pairs) != "table":
            return False
        content = list(pairs.items())
        self._reply.map(len(content))
        for name, value in content:
            self.write(name, depth=depth + 1)
            self.write(value, depth=depth + 1)
        return True

    def _set(self, members: Any, depth: int) -> bool:
        if self._kind(members) != "table":
            return False
        content = list(members.keys())
        self._reply.set(len(content))
        for member in content:
            self.write(member, depth=depth + 1)
        return True

    def _big_number(self, text: Any, _depth: int) -> bool:
        if not isinstance(text, bytes):
            return False
        cleaned = text.replace(b"\r", b" ").replace(b"\n", b" ")
        if self._reply.resp == 3:
            self._reply.raw(b"(%b\r\n" % cleaned)
        else:
            self._reply.bulk(cleaned)
        return True

    def _verbatim(self, parts: Any, _depth: int) -> bool:
        if self._kind(parts) != "table" or not isinstance(text := parts[b"string"], bytes):
            return False
        form = parts[b"format"]
        if not isinstance(form, bytes):
            return False
        if self._reply.resp == 3:
            self._reply.raw(b"=%d\r\n%b:%b\r\n" % (len(text) + 4, form[:3].ljust(3), text))
        else:
            self._reply.bulk(text)
        return True


def _integer(number: int | float) -> int:
    """A number of Lua as RESP's integer, as a cast of C does it."""
    if isinstance(number, int):
        return max(-(2**63), min(number, 2**63 - 1))
    return int(number) if -(2**63) <= number < 2**63 else -(2**63)
