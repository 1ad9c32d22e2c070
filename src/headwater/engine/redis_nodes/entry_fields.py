"""Extracts fields from the entries of a block (entry_block.py), and names and values from fields."""

from __future__ import annotations

from array import array

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import append_part, offset_at, push_offset, push_word


def take_fields(
    data: bytearray,
    offsets: array[int],
    first: int,
    end: int,
    wire: bytearray,
    ends: array[int],
    pairs: array[int],
) -> None:
    """Append the fields of the entries ``first`` to ``end``-1 to the last three arguments. ``offsets`` are the
    positions in ``data`` where entries begin. ``wire`` gets the fields in RESP, ``ends`` the position in
    ``wire`` where the fields of each entry end, ``pairs`` the number of pairs of each."""
    for index in range(first, end):
        at = offset_at(offsets, index) + 5  # after *2 CR LF $
        stop = offset_at(offsets, index + 1) if index + 1 < len(offsets) else len(data)
        length = data[at] - 48
        at += 1
        if data[at] != 13:
            length = 10 * length + data[at] - 48
            at += 1
        at += 2 + length + 3  # after CR LF, the id, CR LF and *
        count = 0
        while data[at] != 13:
            count = 10 * count + data[at] - 48
            at += 1
        append_part(wire, data, at + 2, stop)
        push_word(ends, len(wire))
        push_offset(pairs, count // 2)


def elements(wire: bytes) -> list[bytes]:
    """Return the fields and values, alternating, of an entry's canonical RESP.

    >>> elements(b"$1\\r\\na\\r\\n$2\\r\\nbc\\r\\n")
    [b'a', b'bc']
    """
    found: list[bytes] = []
    at = 0
    while at < len(wire):
        stop = wire.index(b"\r\n", at)
        length = int(wire[at + 1 : stop])
        found.append(wire[stop + 2 : stop + 2 + length])
        at = stop + length + 4
    return found


def field_names(wire: bytearray, start: int, end: int) -> bytes:
    """Return the names among the fields from ``start`` to ``end``-1, in RESP."""
    found, at = bytearray(), start
    while at < end:
        for named in (True, False):
            stop = wire.index(b"\r", at)
            behind = stop + 4 + int(wire[at + 1 : stop])
            if named:
                found += wire[at:behind]
            at = behind
    return bytes(found)
