"""The packed form of entries and their ids in a sealed block (entry_block.py).

Compiled modules import these functions from ``packing_c.pxd``. Plain Python uses the equivalents below,
as with ``memory.py``.
"""

from __future__ import annotations

from array import array

# --- entries ------------------------------------------------------------------------------------


def index_entries(data: bytearray, offsets: array[int]) -> None:
    """Append to ``offsets`` where each entry in ``data`` begins. `append_entry` wrote the entries.

    Raises `ValueError` if ``data`` contains anything else.

    >>> entry = bytearray(b"*2\\r\\n$3\\r\\n5-1\\r\\n*2\\r\\n$1\\r\\na\\r\\n$1\\r\\nb\\r\\n")
    >>> offsets = array("I")
    >>> index_entries(entry * 2, offsets)
    >>> list(offsets)
    [0, 31]
    """
    at = 0
    while at < len(data):
        offsets.append(at)
        outer, at = _number_at(data, at, b"*")
        at = _behind_bulk(data, at)
        count, at = _number_at(data, at, b"*")
        for _ in range(count):
            at = _behind_bulk(data, at)
        if outer != 2:
            raise ValueError("not an entry")


def _number_at(data: bytearray, at: int, mark: bytes) -> tuple[int, int]:
    """The number in the header at ``at``, and the position after the header."""
    stop = data.find(b"\r\n", at)
    if stop < 0 or data[at : at + 1] != mark:
        raise ValueError("not an entry")
    return int(data[at + 1 : stop]), stop + 2


def _behind_bulk(data: bytearray, at: int) -> int:
    length, at = _number_at(data, at, b"$")
    if at + length + 2 > len(data):
        raise ValueError("not an entry")
    return at + length + 2


# --- ids ----------------------------------------------------------------------------------------
#
# Ascending ids are stored as runs of equal steps. A run is three numbers: how often the step repeats, by
# how much ms grows, and seq: its value if ms grew, otherwise by how much it grows. Each number is stored
# seven bits a byte, lowest bits first; the eighth bit says that more bytes follow.


def pack_ids(ids: array[int]) -> bytes:
    """Pack ids, two words each, ascending and starting above 0-0, into at most a few bytes each.

    >>> len(pack_ids(array("Q", [word for seq in range(1000) for word in (1526569498055, seq)])))
    12
    """
    made = bytearray()
    ms = seq = times = 0
    step = (0, 0)
    for at in range(0, len(ids), 2):
        rise = ids[at] - ms
        found = (rise, ids[at + 1] if rise else ids[at + 1] - seq)
        assert rise > 0 or found[1] > 0, "ids must ascend"
        if times and found == step:
            times += 1
        else:
            _pack_run(made, times, step)
            times, step = 1, found
        ms, seq = ids[at], ids[at + 1]
    _pack_run(made, times, step)
    return bytes(made)


def _pack_run(made: bytearray, times: int, step: tuple[int, int]) -> None:
    for value in (times, *step) if times else ():
        while value > 127:
            made.append(value & 127 | 128)
            value >>= 7
        made.append(value)


def unpack_ids(packed: bytes, count: int, ids: array[int]) -> None:
    """Fill ``ids``, which must be empty, with the ``count`` ids that `pack_ids` packed into ``packed``.

    >>> ids = array("Q")
    >>> unpack_ids(pack_ids(array("Q", [5, 1, 5, 2, 6, 2])), 3, ids)
    >>> list(ids)
    [5, 1, 5, 2, 6, 2]
    """
    at = ms = seq = 0
    while at < len(packed):
        values: list[int] = []
        while len(values) < 3:
            value = shift = 0
            while packed[at] > 127:
                value |= (packed[at] & 127) << shift
                shift += 7
                at += 1
            values.append(value | packed[at] << shift)
            at += 1
        times, rise, step = values
        for _ in range(times):
            seq = step if rise else seq + step
            ms += rise
            ids.append(ms)
            ids.append(seq)
    assert len(ids) == 2 * count, f"{len(ids)} words for {count} ids"
