"""Listpacks: sequences of integers and strings. The length after each element allows reading backwards. A
node of a stream is a listpack.

    total u32 │ elements u16 (65535: unknown) │ element* │ ff

    element = head and body │ backlen
    0nnnnnnn            0 to 127                    11110001 2 bytes    an integer of 16 bits
    10llllll            a string up to 63           11110010 3          of 24
    110nnnnn 1 byte     -4096 to 4095               11110011 4          of 32
    1110llll 1 byte     a string up to 4095         11110100 8          of 64, little-endian
                                                    11110000 4 bytes    a string up to 4 GiB

    backlen = size of head and body, seven bits a byte, the last byte has the lowest bits; all but the first
              byte have their top bit set

Rule 1. Elements of a node are copied byte by byte between the listpack and RESP bulk strings: no object is
        created for an element.
Rule 2. A `Cursor` checks an element before it moves there. A `NodeReader` checks the total size before it
        adds an entry.

Source: Redis, listpack.c.
"""

from __future__ import annotations

from headwater.rdb.errors import BadPayload

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import (
        append_bytes,
        append_header,
        append_part,
        cut,
        put_u8,
        put_u32,
        set_u32,
    )

_FRAME = 7
_UNKNOWN_COUNT = 0xFFFF
_END = 0xFF
_DOLLAR, _MINUS = b"$-"
_CRLF = b"\r\n"
_ALL = 2**64 - 1
_HALF = 2**63

Element = int | bytes


# --- reading --------------------------------------------------------------------------------------


class Cursor:
    """Iterates over the elements of a listpack. Raises `BadPayload` if any byte is not as specified, or if the
    listpack has more than ``most`` elements."""

    def __init__(self, pack: bytearray, most: int) -> None:
        size = len(pack)
        if size < _FRAME or int.from_bytes(pack[:4], "little") != size or pack[size - 1] != _END:
            raise BadPayload("a listpack does not end where its header says")
        self.pack = pack
        self.at = 6
        self.end = size - 1
        self.most = most
        self.taken = 0
        """Number of elements passed, including the current one."""
        self.is_text = False
        self.number = 0
        """The current element, if it is an integer."""
        self.start = self.stop = 0
        """The range of the current element in ``pack``, if it is a string."""

    def left(self) -> bool:
        """Return whether there are more elements."""
        return self.at < self.end

    def next(self) -> None:
        """Move to the next element."""
        if self.at >= self.end:
            raise BadPayload(f"a listpack ends after {self.taken} elements, but more are expected")
        body = self._body()
        behind = self.at + body
        self._pass_backlen(behind, body)
        self.taken += 1
        if self.taken > self.most:
            raise BadPayload(f"a listpack has more than {self.most} elements")

    def finish(self) -> None:
        """Check the number of elements in the header. `left` must have returned False before."""
        counted = self.pack[4] | self.pack[5] << 8
        if counted not in (_UNKNOWN_COUNT, self.taken):
            raise BadPayload(f"a listpack of {self.taken} elements has the count {counted}")

    def integer(self) -> int:
        """Move to the next element, which must be an integer, and return it."""
        self.next()
        if self.is_text:
            raise BadPayload("a node contains text instead of a number")
        return self.number

    def element(self) -> Element:
        """Return the current element."""
        return cut(self.pack, self.start, self.stop) if self.is_text else self.number

    def put_bulk(self, wire: bytearray) -> int:
        """Append the current element to ``wire``, in RESP. Return the number of bytes of its text."""
        if not self.is_text:
            return _put_number(wire, self.number)
        size = self.stop - self.start
        append_header(wire, _DOLLAR, size)
        append_part(wire, self.pack, self.start, self.stop)
        append_bytes(wire, _CRLF)
        return size

    def _body(self) -> int:
        """Read head and body of the element at ``at``. Return their size."""
        pack, at = self.pack, self.at
        head = pack[at]
        self.is_text, skip, size = False, 1, 1
        if head < 0x80:
            self.number = head
        elif head < 0xC0:
            self.is_text, size = True, 1 + (head & 0x3F)
        elif head < 0xE0:
            size = 2
        elif head < 0xF0:
            self.is_text, skip, size = True, 2, 2 + ((head & 0x0F) << 8 | pack[at + 1])
        elif head == 0xF0:
            self.is_text, skip, size = True, 5, 5
            if at + 5 <= self.end:
                size += int.from_bytes(pack[at + 1 : at + 5], "little")
        elif head <= 0xF4:
            size = 9 if head == 0xF4 else head - 0xF1 + 3
        else:
            raise BadPayload(f"0x{head:02x} does not begin an element of a listpack")
        if at + size > self.end:
            raise BadPayload(f"the element at byte {at} of a listpack exceeds its end")
        if self.is_text:
            self.start, self.stop = at + skip, at + size
        elif 0xC0 <= head < 0xE0:
            number = (head & 0x1F) << 8 | pack[at + 1]
            self.number = number if number < 0x1000 else number - 0x2000
        elif head >= 0xF1:
            self._take_integer(at + 1, at + size)
        return size

    def _take_integer(self, start: int, stop: int) -> None:
        """Read the bytes as a signed little-endian integer."""
        number = self.pack[stop - 1]
        if number >= 128:
            number -= 256
        for at in range(stop - 2, start - 1, -1):
            number = number * 256 + self.pack[at]
        self.number = number

    def _pass_backlen(self, behind: int, body: int) -> None:
        """Skip the length after an element of ``body`` bytes. Raises `BadPayload` if it differs from
        ``body``."""
        count = _backlen_bytes(body)
        shift = 7 * count
        for at in range(behind, behind + count):
            shift -= 7
            byte = body >> shift & 127
            if at > behind:
                byte |= 128
            if at >= self.end or self.pack[at] != byte:
                raise BadPayload(
                    f"the element at byte {self.at} of a listpack is followed by a wrong length"
                )
        self.at = behind + count


def read(pack: bytearray, *, most: int = 4_294_967_296) -> list[Element]:
    """Return all elements, integers of any encoding as int.

    >>> read(bytearray.fromhex("0c000000 0200 05 01 8161 02 ff"))
    [5, b'a']

    Raises `BadPayload` if any byte is not as specified, or if there are more than ``most`` elements.
    """
    cursor = Cursor(pack, most)
    found: list[Element] = []
    while cursor.left():
        cursor.next()
        found.append(cursor.element())
    cursor.finish()
    return found


def text(element: Element) -> bytes:
    """Return an element as the bytes that a client sent."""
    return element if isinstance(element, bytes) else b"%d" % element


def _backlen_bytes(size: int) -> int:
    """Return the size of the length after an element of ``size`` bytes. The limits are Redis's: most are
    one less than seven bits a byte would allow."""
    if size < 128:
        return 1
    if size < 16383:
        return 2
    if size < 2097151:
        return 3
    return 4 if size < 268435455 else 5


def _put_number(wire: bytearray, number: int) -> int:
    """Append an integer to ``wire`` as a bulk string of its digits. Return the number of its bytes."""
    negative = number < 0
    # The magnitude of the least 64-bit integer does not fit into a signed one.
    magnitude = -(number + 1) if negative else number
    if negative:
        magnitude += 1
    digits, power, rest = 1, 1, magnitude // 10
    while rest:
        digits += 1
        power *= 10
        rest //= 10
    size = digits + negative
    append_header(wire, _DOLLAR, size)
    if negative:
        put_u8(wire, _MINUS)
    while power:
        put_u8(wire, 48 + magnitude // power % 10)
        power //= 10
    append_bytes(wire, _CRLF)
    return size


# --- writing --------------------------------------------------------------------------------------


def begin(pack: bytearray) -> None:
    """Begin a listpack in ``pack``, which must be empty."""
    put_u32(pack, 0)
    put_u8(pack, 0)
    put_u8(pack, 0)


def end(pack: bytearray, elements: int) -> None:
    """End a listpack of ``elements`` elements."""
    put_u8(pack, _END)
    set_u32(pack, 0, len(pack))
    counted = min(elements, _UNKNOWN_COUNT)
    pack[4], pack[5] = counted & 255, counted >> 8


def put_integer(pack: bytearray, negative: bool, magnitude: int) -> None:
    """Append a 64-bit integer."""
    bits = (~magnitude + 1) & _ALL if negative else magnitude
    if not negative and magnitude <= 127:
        put_u8(pack, magnitude)
        put_u8(pack, 1)
        return
    if magnitude <= 4095 or (negative and magnitude == 4096):
        put_u8(pack, 0xC0 | (bits >> 8 & 0x1F))
        put_u8(pack, bits & 0xFF)
        put_u8(pack, 2)
        return
    most = magnitude - negative  # the magnitude that two's complement has to represent
    if most < 0x8000:
        width, head = 2, 0xF1
    elif most < 0x800000:
        width, head = 3, 0xF2
    elif most < 0x80000000:
        width, head = 4, 0xF3
    else:
        width, head = 8, 0xF4
    put_u8(pack, head)
    for _ in range(width):
        put_u8(pack, bits & 0xFF)
        bits >>= 8
    put_u8(pack, width + 1)


def put_text(pack: bytearray, source: bytearray, start: int, stop: int) -> None:
    """Append the bytes of ``source`` from ``start`` to ``stop``-1: as an integer if they are its canonical
    spelling, otherwise as a string."""
    size = stop - start
    if 0 < size <= 20:
        negative = source[start] == _MINUS
        magnitude = _spelled(source, start + negative, stop)
        # "-0" is not canonical. The least negative integer has a magnitude of 2**63.
        if (magnitude or not negative) and magnitude < _HALF + negative:
            put_integer(pack, negative, magnitude)
            return
    if size < 64:
        put_u8(pack, 0x80 | size)
        head = 1
    elif size < 4096:
        put_u8(pack, 0xE0 | size >> 8)
        put_u8(pack, size & 0xFF)
        head = 2
    else:
        put_u8(pack, 0xF0)
        put_u32(pack, size)
        head = 5
    append_part(pack, source, start, stop)
    _put_backlen(pack, head + size)


def _spelled(source: bytearray, start: int, stop: int) -> int:
    """Return the number that the bytes spell with at most 19 digits and without leading zeros; 2**64 - 1
    for anything else."""
    if not 0 < stop - start <= 19 or (source[start] == 48 and stop - start > 1):
        return _ALL
    number = 0
    for at in range(start, stop):
        digit = source[at]
        if not 48 <= digit <= 57:
            return _ALL
        number = number * 10 + (digit - 48)
    return number


def _put_backlen(pack: bytearray, size: int) -> None:
    count = _backlen_bytes(size)
    shift = 7 * count
    for at in range(count):
        shift -= 7
        byte = size >> shift & 127
        put_u8(pack, byte | 128 if at else byte)
