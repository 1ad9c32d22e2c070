"""Listpacks: a run of integers and strings, each with its length behind it so that it can be read from
either end.

    total u32 │ elements u16 (65535: unknown) │ element* │ ff

    element = head and body │ backlen
    0nnnnnnn            0 to 127                    11110001 2 bytes    an integer of 16 bits
    10llllll            a string up to 63           11110010 3          of 24
    110nnnnn 1 byte     -4096 to 4095               11110011 4          of 32
    1110llll 1 byte     a string up to 4095         11110100 8          of 64, little-endian
                                                    11110000 4 bytes    a string up to 4 GiB

    backlen = bytes of head and body, seven bits a byte, the last byte lowest; all but the first
              have their top bit set

Source: Redis, listpack.c.
"""

from __future__ import annotations

from headwater.rdb.payload import BadPayload

_FRAME = 7
_UNKNOWN_COUNT = 0xFFFF
_END = 0xFF

Element = int | bytes


def read(data: bytes, *, most: int = 2**32) -> list[Element]:
    """All elements, at most ``most``; integers as such, however they came to be.

    >>> read(write([5, b"tea", b"-300"]))
    [5, b'tea', -300]

    Raises `BadPayload` unless every byte is as it should be.
    """
    size = len(data)
    if size < _FRAME or int.from_bytes(data[:4], "little") != size or data[-1] != _END:
        raise BadPayload("a listpack does not end where it says")
    found: list[Element] = []
    at, end = 6, size - 1
    while at < end:
        body = _body(data, at, end)
        back = backlen(body)
        behind = at + body
        if data[behind : min(behind + len(back), end)] != back:
            raise BadPayload(f"the element at byte {at} of a listpack has another length behind it")
        found.append(_value(data, at, behind))
        at = behind + len(back)
        if len(found) > most:
            raise BadPayload(f"a listpack has more than {most} elements")
    counted = int.from_bytes(data[4:6], "little")
    if counted != _UNKNOWN_COUNT and counted != len(found):
        raise BadPayload(f"a listpack of {len(found)} elements says that it has {counted}")
    return found


def _body(data: bytes, at: int, end: int) -> int:
    """Bytes of head and body of the element at ``at``."""
    head = data[at]
    if head < 0x80:
        size = 1
    elif head < 0xC0:
        size = 1 + (head & 0x3F)
    elif head < 0xE0:
        size = 2
    elif head < 0xF0:
        size = 2 + ((head & 0x0F) << 8 | data[at + 1])
    elif head == 0xF0:
        size = 5 + int.from_bytes(data[at + 1 : at + 5], "little")
    elif head <= 0xF4:
        size = _INTEGER_BYTES[head]
    else:
        raise BadPayload(f"0x{head:02x} begins no element of a listpack")
    if at + size > end:
        raise BadPayload(f"the element at byte {at} of a listpack goes beyond its end")
    return size


_INTEGER_BYTES = {0xF1: 3, 0xF2: 4, 0xF3: 5, 0xF4: 9}


def _value(data: bytes, at: int, behind: int) -> Element:
    head = data[at]
    if head < 0x80:
        return head
    if head < 0xC0:
        return data[at + 1 : behind]
    if head < 0xE0:
        number = (head & 0x1F) << 8 | data[at + 1]
        return number if number < 0x1000 else number - 0x2000
    if head < 0xF0:
        return data[at + 2 : behind]
    if head == 0xF0:
        return data[at + 5 : behind]
    return int.from_bytes(data[at + 1 : behind], "little", signed=True)


def text(element: Element) -> bytes:
    """An element as the bytes that a client gave."""
    return element if isinstance(element, bytes) else b"%d" % element


def backlen(size: int) -> bytes:
    """What stands behind an element of ``size`` bytes. The bounds are Redis's, one below what seven
    bits a byte would allow."""
    if size < 128:
        return bytes((size,))
    if size < 16383:
        return bytes((size >> 7, size & 127 | 128))
    if size < 2097151:
        return bytes((size >> 14, size >> 7 & 127 | 128, size & 127 | 128))
    behind = bytes((size >> 14 & 127 | 128, size >> 7 & 127 | 128, size & 127 | 128))
    if size < 268435455:
        return bytes((size >> 21,)) + behind
    return bytes((size >> 28, size >> 21 & 127 | 128)) + behind


def write(elements: list[Element]) -> bytes:
    """A listpack of these elements; bytes that spell an integer are written as one."""
    out = bytearray(6)
    for element in elements:
        number = element if isinstance(element, int) else spelled(element)
        body = _string(element) if number is None else _integer(number)  # type: ignore[arg-type]
        out += body
        out += backlen(len(body))
    out.append(_END)
    out[:4] = len(out).to_bytes(4, "little")
    out[4:6] = min(len(elements), _UNKNOWN_COUNT).to_bytes(2, "little")
    return bytes(out)


def spelled(value: bytes) -> int | None:
    """The integer of 64 bits that ``value`` is the only spelling of.

    >>> spelled(b"-12"), spelled(b"012"), spelled(b"-0"), spelled(b"9223372036854775808")
    (-12, None, None, None)
    """
    if not 0 < len(value) <= 20:
        return None
    digits = value[1:] if value[0] == 0x2D else value
    if not digits.isdigit() or (digits[0] == 0x30 and value != b"0"):
        return None
    number = int(value)
    return number if -(2**63) <= number < 2**63 else None


def _integer(number: int) -> bytes:
    if 0 <= number <= 127:
        return bytes((number,))
    if -4096 <= number <= 4095:
        number &= 0x1FFF
        return bytes((0xC0 | number >> 8, number & 0xFF))
    for head, size in _INTEGER_BYTES.items():
        if -(1 << (8 * size - 9)) <= number < 1 << (8 * size - 9):
            return bytes((head,)) + number.to_bytes(size - 1, "little", signed=True)
    raise AssertionError(f"{number} has more than 64 bits")


def _string(value: bytes) -> bytes:
    length = len(value)
    if length < 64:
        return bytes((0x80 | length,)) + value
    if length < 4096:
        return bytes((0xE0 | length >> 8, length & 0xFF)) + value
    return b"\xf0" + length.to_bytes(4, "little") + value
