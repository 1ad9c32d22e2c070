"""Lengths, strings and ids of the RDB format, read with every bound checked, and written.

    00llllll                    a length of 6 bits
    01llllll llllllll           of 14
    10000000 4 bytes            of 32, big-endian
    10000001 8 bytes            of 64
    11eeeeee                    where a string is meant: an integer of 8, 16 or 32 bits (e 0, 1, 2,
                                little-endian) that stands for its digits; LZF (3), two lengths
                                before it: compressed and plain

Source: Redis, rdb.c (rdbLoadLenByRef, rdbGenericLoadStringObject).
"""

from __future__ import annotations

from struct import Struct

from headwater.limits import MAX_RESTORED_BYTES
from headwater.rdb import listpack
from headwater.rdb.codes import decompress
from headwater.rdb.errors import BadPayload
from headwater.rdb.listpack import Element

_U32 = Struct(">I")
_U64 = Struct(">Q")
_TIME = Struct("<q")
_ID = Struct(">QQ")
_INTEGERS = (Struct("<b"), Struct("<h"), Struct("<i"))
_LZF = 3
_ITEM_BYTES = 16
"""What a string takes here at least, however short it is."""

ID_BYTES = 16

ID = tuple[int, int]


class ByteReader:
    """Takes values off ``data`` from ``at`` on, up to ``end``.

    >>> reader = Reader(bytes.fromhex("03 616263 c07b 4100"))
    >>> reader.string(), reader.string(), reader.length(), reader.left()
    (b'abc', b'123', 256, 0)
    """

    def __init__(self, data: bytes | bytearray, at: int = 0, end: int | None = None) -> None:
        self.data = data if isinstance(data, bytearray) else bytearray(data)
        self._view = memoryview(self.data)
        self.at = at
        self.end = len(data) if end is None else end
        self.room = MAX_RESTORED_BYTES
        """How many more bytes the value may take: what is compressed, or of many small parts, takes
        far more than its payload."""

    def left(self) -> int:
        return self.end - self.at

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        start = self.pass_over(size)
        return self._view[start : self.at].tobytes()

    def pass_over(self, size: int) -> int:
        """Stand behind the next ``size`` bytes; where they begin."""
        if size > self.end - self.at:
            raise BadPayload(f"{size} bytes are promised, {self.left()} are left")
        self.at += size
        return self.at - size

    def length(self) -> int:
        """A length; any number of 64 bits without a sign."""
        first = self.take(1)[0]
        if first < 0x40:
            return first
        if first < 0x80:
            return (first & 0x3F) << 8 | self.take(1)[0]
        if first == 0x80:
            return _number(_U32, self.take(4))
        if first == 0x81:
            return _number(_U64, self.take(8))
        raise BadPayload(f"0x{first:02x} begins no length")

    def count(self, least: int) -> int:
        """How many follow, of at least ``least`` bytes each: more than fit are not believed."""
        found = self.length()
        if found * least > self.left():
            raise BadPayload(f"{found} items are promised, {self.left()} bytes are left")
        return found

    def string(self) -> bytes:
        """A string, in whichever way it is written."""
        if self.at >= self.end:
            raise BadPayload("a string is promised, nothing is left")
        first = self.data[self.at]
        if first < 0xC0:
            text = self.take(self.length())
        else:
            self.at += 1
            text = self._encoded(first & 0x3F)
        self._charge(len(text) + _ITEM_BYTES)
        return text

    def packed(self) -> list[Element]:
        """The elements of a listpack, which stands in a string."""
        found = listpack.read(bytearray(self.string()), most=self.most_items())
        self.charge_items(len(found))
        return found

    def most_items(self) -> int:
        """How many small parts there is room for."""
        return self.room // _ITEM_BYTES

    def charge_items(self, count: int) -> None:
        """The value has so many small parts more."""
        self._charge(count * _ITEM_BYTES)

    def _charge(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise BadPayload(f"the value takes more than {MAX_RESTORED_BYTES} bytes")

    def _encoded(self, kind: int) -> bytes:
        if kind < _LZF:
            form = _INTEGERS[kind]
            return b"%d" % _number(form, self.take(form.size))
        if kind != _LZF:
            raise BadPayload(f"a string has the unknown encoding {kind}")
        packed, plain = self.length(), self.length()
        if plain > self.room:
            raise BadPayload(f"a string of {plain} bytes is more than may be")
        start = self.pass_over(packed)
        return decompress(self.data, start, self.at, plain)

    def time(self) -> int:
        """Unix ms, signed."""
        return _number(_TIME, self.take(8))

    def raw_id(self) -> ID:
        """A stream id as 16 bytes."""
        ms, seq = _ID.unpack(self.take(ID_BYTES))
        return ms, seq

    def id(self) -> ID:
        """A stream id as two lengths."""
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
    """Write a string as it is."""
    put_length(out, len(text))
    out += text


def put_time(out: bytearray, time_ms: int) -> None:
    out += _TIME.pack(time_ms)


def put_id(out: bytearray, entry_id: ID) -> None:
    put_length(out, entry_id[0])
    put_length(out, entry_id[1])
