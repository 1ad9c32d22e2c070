"""Writes replies into a session's output, in RESP2 or RESP3.

A writer does not check its calls: after an array header of n, the command must write n replies. Integers,
bulk strings, arrays and stored entries are the same bytes in both versions; only nil, maps and the few types
below differ. Source: the RESP specification, redis.io.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        """The rest of the current reply (commands/reply_tail.py)."""

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

    def integer_or_nil(self, value: int | None) -> None:
        """Write an integer, or nil for None."""
        if value is None:
            self.nil()
        else:
            self.integer(value)

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

    def verbatim(self, text: bytes) -> None:
        """Write plain text for people; a bulk string in RESP2."""
        if self.resp == 3:
            self.out += b"=%d\r\ntxt:%b\r\n" % (len(text) + 4, text)
        else:
            self.bulk(text)

    def bulks(self, values: Sequence[bytes]) -> None:
        """Write an array of bulk strings."""
        self.array(len(values))
        for value in values:
            self.bulk(value)

    def raw(self, wire: bytes | bytearray | memoryview) -> None:
        """Write bytes that are a reply already."""
        self.out += wire

    def part(self, wire: Text, start: int, end: int) -> None:
        """Write the bytes of ``wire`` from ``start`` to ``end``-1, a reply already: a slice of a block."""
        append_part(self.out, wire, start, end)
