"""Replies as values that preserve differences on the wire: kinds of nil, kinds of strings, the order of maps.

redis-py converts a map to a dictionary and every nil to None, which hides such differences between servers.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Nil(Enum):
    """The three forms of nil."""

    BULK = b"$-1"
    ARRAY = b"*-1"
    NULL = b"_"


class Simple(NamedTuple):
    """A simple string, such as ``+OK``."""

    text: bytes


class Failure(NamedTuple):
    """An error reply, code first."""

    text: bytes


class Map(NamedTuple):
    """A map of RESP3, in its order. Keys may occur more than once."""

    pairs: tuple[tuple[Reply, Reply], ...]


class Push(NamedTuple):
    """An out-of-band message of RESP3."""

    items: tuple[Reply, ...]


class Verbatim(NamedTuple):
    """A verbatim string of RESP3. ``form`` is its format, three letters."""

    form: bytes
    text: bytes


Reply = bytes | int | float | bool | list["Reply"] | Nil | Simple | Failure | Map | Push | Verbatim
"""A reply. Bulk strings are bytes, integers are int, arrays and sets are lists."""


class ReplyReader:
    """Parses replies from bytes that arrive in pieces.

    >>> reader = ReplyReader()
    >>> reader.feed(b"*2\\r\\n:1\\r\\n$-1\\r\\n+O")
    >>> reader.next(), reader.next()
    ([1, <Nil.BULK: b'$-1'>], None)
    >>> reader.feed(b"K\\r\\n")
    >>> reader.next()
    Simple(text=b'OK')
    """

    def __init__(self) -> None:
        self.buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        self.buffer += data

    def next(self) -> Reply | None:
        """Remove the next reply from the buffer and return it; None if the reply is incomplete."""
        try:
            value, end = _parse(self.buffer, 0)
        except _NotWhole:
            return None
        del self.buffer[:end]
        return value


class _NotWhole(Exception):
    """More bytes are needed."""


def _line(data: bytearray, at: int) -> tuple[bytes, int]:
    end = data.find(b"\r\n", at)
    if end < 0:
        raise _NotWhole
    return bytes(data[at:end]), end + 2


def _blob(data: bytearray, at: int, length: int) -> tuple[bytes, int]:
    if len(data) < at + length + 2:
        raise _NotWhole
    return bytes(data[at : at + length]), at + length + 2


def _many(data: bytearray, at: int, count: int) -> tuple[list[Reply], int]:
    found: list[Reply] = []
    for _ in range(count):
        value, at = _parse(data, at)
        found.append(value)
    return found, at


def _parse(data: bytearray, at: int) -> tuple[Reply, int]:
    line, at = _line(data, at)
    kind, rest = line[:1], line[1:]
    if kind in b"+-_:#,(":
        return _scalar(kind, rest), at
    count = int(rest)
    if count < 0:
        return (Nil.ARRAY if kind == b"*" else Nil.BULK), at
    if kind in b"$=":
        text, at = _blob(data, at, count)
        return (text if kind == b"$" else Verbatim(text[:3], text[4:])), at
    items, at = _many(data, at, 2 * count if kind == b"%" else count)
    if kind == b"%":
        return Map(tuple(zip(items[0::2], items[1::2], strict=True))), at
    assert kind in b"*~>", f"{kind!r} does not begin a reply"
    return (Push(tuple(items)) if kind == b">" else items), at


def _scalar(kind: bytes, rest: bytes) -> Reply:
    if kind == b"+":
        return Simple(rest)
    if kind == b"-":
        return Failure(rest)
    if kind == b"_":
        return Nil.NULL
    if kind == b"#":
        return rest == b"t"
    return float(rest) if kind == b"," else int(rest)
