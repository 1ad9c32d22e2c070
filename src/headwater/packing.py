"""Entries and their ids in the form that they have while a block of them is sealed (entry_block.py).

Compiled modules take these functions from ``packing_c.pxd``; plain Python takes the twins below, as it
does those of ``memory.py``.
"""

from __future__ import annotations

from array import array

# --- entries ------------------------------------------------------------------------------------


def index_entries(data: bytearray, offsets: array[int]) -> None:
    """Add to ``offsets`` where each of the entries in ``data``, as `append_entry` writes them, begins.

    Raises `ValueError` when there is anything else.

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
    """The number in the header at ``at``, and what comes behind it."""
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
# Rising ids as runs of equal steps: how often, by how much ms rises, and then seq: itself where ms
# rose, else by how much it rises. Each is seven bits a byte, least first, the eighth says: more.


def pack_ids(ids: array[int]) -> bytes:
    """Ids, two words each, which rise and begin above 0-0, in a few bytes each or less.

    >>> len(pack_ids(array("Q", [word for seq in range(1000) for word in (1526569498055, seq)])))
    12
    """
    made = bytearray()
    ms = seq = times = 0
    step = (0, 0)
    for at in range(0, len(ids), 2):
        rise = ids[at] - ms
        found = (rise, ids[at + 1] if rise else ids[at + 1] - seq)
        assert rise > 0 or found[1] > 0, "ids rise"
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
    """Put into ``ids``, which is empty, the ``count`` ids that `pack_ids` made ``packed`` of.

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
    assert len(ids) == 2 * count, f"{len(ids)} words of {count} ids"
