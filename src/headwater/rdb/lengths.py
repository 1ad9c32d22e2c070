"""Reads and writes lengths, strings and ids of the RDB format. Reading checks every bound.

    00llllll                    a length of 6 bits
    01llllll llllllll           of 14
    10000000 4 bytes            of 32, big-endian
    10000001 8 bytes            of 64
    11eeeeee                    in place of a string: an integer of 8, 16 or 32 bits (e 0, 1, 2,
                                little-endian) that represents its decimal digits; or LZF (3),
                                preceded by two lengths: compressed and uncompressed

Source: Redis, rdb.c (rdbLoadLenByRef, rdbGenericLoadStringObject).
"""

from __future__ import annotations

from struct import Struct

from headwater.common.limits import MAX_RESTORED_BYTES
from headwater.rdb import listpack
from headwater.rdb.codes import decompress
from headwater.rdb.errors import BadPayload, ValueTooLarge
from headwater.rdb.listpack import Element

_U32 = Struct(">I")
_U64 = Struct(">Q")
_TIME = Struct("<q")
_ID = Struct(">QQ")
_INTEGERS = (Struct("<b"), Struct("<h"), Struct("<i"))
_LZF = 3
_ITEM_BYTES = 16
"""Number of bytes that are counted for each string or small part, in addition to the string's length."""

ID_BYTES = 16

ID = tuple[int, int]


class ByteReader:
    """Reads values from ``data``, from ``at`` to ``end``-1. Without ``end``, reads to the end of ``data``.

    >>> reader = ByteReader(bytes.fromhex("03 616263 c07b 4100"))
    >>> reader.string(), reader.string(), reader.length(), reader.left()
    (b'abc', b'123', 256, 0)
    """

    def __init__(self, data: bytes | bytearray, at: int = 0, end: int | None = None) -> None:
        self.data = data if isinstance(data, bytearray) else bytearray(data)
        self._view = memoryview(self.data)
        self.at = at
        self.end = len(data) if end is None else end
        self.room = MAX_RESTORED_BYTES
        """Number of bytes that the value may still take in memory. Compressed values and values of many small
        parts take far more memory than their payload."""

    def left(self) -> int:
        return self.end - self.at

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        start = self.pass_over(size)
        return self._view[start : self.at].tobytes()

    def pass_over(self, size: int) -> int:
        """Skip the next ``size`` bytes. Return their start."""
        if size > self.end - self.at:
            raise BadPayload(f"{size} bytes expected, {self.left()} left")
        self.at += size
        return self.at - size

    def length(self) -> int:
        """Return a length: any unsigned 64-bit number."""
        first = self.take(1)[0]
        if first < 0x40:
            return first
        if first < 0x80:
            return (first & 0x3F) << 8 | self.take(1)[0]
        if first == 0x80:
            return _number(_U32, self.take(4))
        if first == 0x81:
            return _number(_U64, self.take(8))
        raise BadPayload(f"0x{first:02x} does not begin a length")

    def count(self, least: int) -> int:
        """Return the number of items that follow. Check that the remaining bytes are enough for this number
        of items of at least ``least`` bytes each."""
        found = self.length()
        if found * least > self.left():
            raise BadPayload(f"{found} items expected, {self.left()} bytes left")
        return found

    def string(self) -> bytes:
        """Return a string, in any of its encodings."""
        if self.at >= self.end:
            raise BadPayload("a string expected, no bytes left")
        first = self.data[self.at]
        if first < 0xC0:
            text = self.take(self.length())
        else:
            self.at += 1
            text = self._encoded(first & 0x3F)
        self._charge(len(text) + _ITEM_BYTES)
        return text

    def packed(self) -> list[Element]:
        """Return the elements of a listpack that is stored in a string."""
        found = listpack.read(bytearray(self.string()), most=self.most_items())
        self.charge_items(len(found))
        return found

    def most_items(self) -> int:
        """Return the number of small parts that the value may still have."""
        return self.room // _ITEM_BYTES

    def charge_items(self, count: int) -> None:
        """Count ``count`` small parts towards the size of the value."""
        self._charge(count * _ITEM_BYTES)

    def _charge(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise ValueTooLarge(MAX_RESTORED_BYTES)

    def _encoded(self, kind: int) -> bytes:
        if kind < _LZF:
            form = _INTEGERS[kind]
            return b"%d" % _number(form, self.take(form.size))
        if kind != _LZF:
            raise BadPayload(f"a string has the unknown encoding {kind}")
        packed, plain = self.length(), self.length()
        if plain > self.room:
            raise BadPayload(f"a string of {plain} bytes exceeds the maximum size")
        start = self.pass_over(packed)
        return decompress(self.data, start, self.at, plain)

    def time(self) -> int:
        """Return a time in Unix ms, signed."""
        return _number(_TIME, self.take(8))

    def raw_id(self) -> ID:
        """Return a stream id of 16 bytes."""
        ms, seq = _ID.unpack(self.take(ID_BYTES))
        return ms, seq

    def id(self) -> ID:
        """Return a stream id that is encoded as two lengths."""
        return self.length(), self.length()


def _number(form: Struct, data: bytes) -> int:
    number: int = form.unpack(data)[0]
    return number


def put_length(out: bytearray, length: int) -> None:
    """Write a length in its shortest form."""
    if length < 0x40:
        out.append(length)
    elif length < 0x4000:
        out += (0x4000 | length).to_bytes(2, "big")
    elif length < 2**32:
        out.append(0x80)
        out += _U32.pack(length)
    else:
        out.append(0x81)
        out += _U64.pack(length)


def put_string(out: bytearray, text: bytes) -> None:
    """Write a string without compression."""
    put_length(out, len(text))
    out += text


def put_time(out: bytearray, time_ms: int) -> None:
    out += _TIME.pack(time_ms)


def put_id(out: bytearray, entry_id: ID) -> None:
    put_length(out, entry_id[0])
    put_length(out, entry_id[1])
