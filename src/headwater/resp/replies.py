"""Writes replies into a session's output, in RESP2 or RESP3.

A writer does not check its calls: after an array header of n, the command must write n replies. Integers,
bulk strings, arrays and stored entries are the same bytes in both versions; only nil, maps and the few types
below differ. Source: the RESP specification, redis.io.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.native.memory import Text

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import append_bytes, append_header, append_id, append_part

_CRLF, _PLUS = b"\r\n", b"+"
_INTEGER, _BULK, _ARRAY, _MAP = b":$*%"


class Status(str):
    """A text that `ReplyWriter.value` writes as a simple string."""

    __slots__ = ()


class Double(str):
    """The text of a number that `ReplyWriter.value` writes as a double."""

    __slots__ = ()


class Members(tuple[object, ...]):
    """Values that `ReplyWriter.value` writes as a set, in this order."""

    __slots__ = ()


class ReplyWriter:
    """Appends replies to ``out``.

    >>> out = bytearray()
    >>> reply = ReplyWriter(out, resp=3)
    >>> reply.map(1); reply.bulk(b"a"); reply.nil()
    >>> bytes(out)
    b'%1\\r\\n$1\\r\\na\\r\\n_\\r\\n'
    """

    def __init__(self, out: bytearray, resp: int = 2) -> None:
        self.out = out
        self.resp = resp
        self.piece_bytes = 0
        """Number of bytes after which the rest of the entries is left to a tail; 0 if the reply is written whole."""
        self.tail: Any = None
        """The rest of the current reply (commands/reply_tail.py); None if nothing is left."""

    def ok(self) -> None:
        append_bytes(self.out, b"+OK\r\n")

    def simple(self, text: bytes) -> None:
        """Write a simple string. ``text`` must not contain CR or LF."""
        append_bytes(self.out, _PLUS)
        append_bytes(self.out, text)
        append_bytes(self.out, _CRLF)

    def error(self, text: str) -> None:
        """Write an error reply, code first. CR and LF become spaces, as in Redis."""
        line = text.replace("\r", " ").replace("\n", " ")
        self.out += b"-%b\r\n" % line.encode("utf-8", "surrogateescape")

    def integer(self, value: int) -> None:
        if value >= 0:
            append_header(self.out, _INTEGER, value)
        else:
            append_bytes(self.out, b":%d\r\n" % value)

    def bulk(self, value: bytes) -> None:
        append_header(self.out, _BULK, len(value))
        append_bytes(self.out, value)
        append_bytes(self.out, _CRLF)

    def id(self, ms: int, seq: int) -> None:
        """Write a stream id as a bulk string."""
        append_id(self.out, ms, seq)

    def nil(self) -> None:
        """Write nil in place of a value."""
        append_bytes(self.out, b"_\r\n" if self.resp == 3 else b"$-1\r\n")

    def nil_array(self) -> None:
        """Write nil in place of an array."""
        append_bytes(self.out, b"_\r\n" if self.resp == 3 else b"*-1\r\n")

    def bulk_or_nil(self, value: bytes | None) -> None:
        """Write a bulk string, or nil for None."""
        if value is None:
            self.nil()
        else:
            self.bulk(value)

    def array(self, length: int) -> None:
        """Write a header: ``length`` replies follow."""
        append_header(self.out, _ARRAY, length)

    def map(self, pairs: int) -> None:
        """Write a header: ``pairs`` keys and values follow, alternating."""
        if self.resp == 3:
            append_header(self.out, _MAP, pairs)
        else:
            append_header(self.out, _ARRAY, pairs * 2)

    def set(self, length: int) -> None:
        """Write a header: ``length`` members follow."""
        self.out += b"~%d\r\n" % length if self.resp == 3 else b"*%d\r\n" % length

    def push(self, length: int) -> None:
        """Write the header of an out-of-band message: ``length`` replies follow."""
        self.out += b">%d\r\n" % length if self.resp == 3 else b"*%d\r\n" % length

    def verbatim(self, text: bytes, form: bytes = b"txt") -> None:
        """Write text for people, in a format of three letters; a bulk string in RESP2."""
        if self.resp == 3:
            self.out += b"=%d\r\n%b:%b\r\n" % (len(text) + 4, form, text)
        else:
            self.bulk(text)

    def double(self, text: bytes) -> None:
        """Write the text of a number; a bulk string in RESP2."""
        if self.resp == 3:
            self.out += b",%b\r\n" % text
        else:
            self.bulk(text)

    def boolean(self, value: bool) -> None:
        """Write true or false; 1 or 0 in RESP2."""
        if self.resp == 3:
            self.out += b"#t\r\n" if value else b"#f\r\n"
        else:
            self.integer(int(value))

    def bulks(self, values: Sequence[bytes]) -> None:
        """Write an array of bulk strings."""
        self.array(len(values))
        for value in values:
            self.bulk(value)

    def value(self, value: object) -> None:
        """Write a value: None (as nil), a number, a text, or a map, set or array of such values. Use this method only
        for rare replies: the methods above are faster.

        >>> out = bytearray()
        >>> ReplyWriter(out).value({"id": 7, "flags": Members(["off"])})
        >>> bytes(out)
        b'*4\\r\\n$2\\r\\nid\\r\\n:7\\r\\n$5\\r\\nflags\\r\\n*1\\r\\n$3\\r\\noff\\r\\n'
        """
        if isinstance(value, bytes):
            self.bulk(value)
        elif isinstance(value, Status):
            self.simple(value.encode())
        elif isinstance(value, Double):
            self.double(value.encode())
        elif isinstance(value, str):
            self.bulk(value.encode())
        elif isinstance(value, int):
            self.integer(value)
        elif isinstance(value, float):
            self.double(repr(value).encode())
        elif isinstance(value, dict):
            self.map(len(value))
            self.pairs(value)
        elif isinstance(value, (list, tuple)):
            if isinstance(value, Members):
                self.set(len(value))
            else:
                self.array(len(value))
            for one in value:
                self.value(one)
        else:
            assert value is None, value
            self.nil()

    def pairs(self, values: Mapping[Any, object]) -> None:
        """Write names and values alternately, as `value` does. The caller must have written the map's header."""
        for name, one in values.items():
            self.value(name)
            self.value(one)

    def raw(self, wire: bytes | bytearray | memoryview) -> None:
        """Write bytes that are a reply already."""
        self.out += wire

    def part(self, wire: Text, start: int, end: int) -> None:
        """Write the bytes of ``wire`` from ``start`` to ``end``-1, a slice of a block that is a reply already."""
        append_part(self.out, wire, start, end)
