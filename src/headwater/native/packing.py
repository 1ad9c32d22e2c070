"""The packed form of entries and their ids in a sealed block (entry_block.py), and of rows of words, such as
those of nodes (node_runs.py).

Compiled modules import these functions from ``packing_c.pxd``. Plain Python uses the equivalents below,
as with ``memory.py``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from headwater.native.memory import Text

# --- entries ------------------------------------------------------------------------------------


def index_entries(data: Text, offsets: array[int]) -> None:
    """Append to ``offsets`` the offset of each entry in ``data``. `append_entry` wrote the entries.

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
        at = pass_entries(data, at, 1)


def pass_entries(data: Text, at: int, count: int) -> int:
    """Return the position ``count`` entries after the one that begins at ``at``. Raises `ValueError` as
    `index_entries` does, and if fewer entries follow.

    >>> entry = bytearray(b"*2\\r\\n$3\\r\\n5-1\\r\\n*2\\r\\n$1\\r\\na\\r\\n$1\\r\\nb\\r\\n")
    >>> pass_entries(entry * 3, 31, 2)
    93
    """
    for _ in range(count):
        outer, at = _number_at(data, at, b"*")
        at = _behind_bulk(data, at)
        words, at = _number_at(data, at, b"*")
        for _ in range(words):
            at = _behind_bulk(data, at)
        if outer != 2:
            raise ValueError("not an entry")
    return at


def _number_at(data: Text, at: int, mark: bytes) -> tuple[int, int]:
    """Return the number in the header at ``at``, and the position after the header."""
    stop = data.find(b"\r\n", at)
    digits = data[at + 1 : stop]
    if stop < 0 or data[at : at + 1] != mark or not digits.isdigit() or len(digits) > 18:
        raise ValueError("not an entry")
    return int(digits), stop + 2


def _behind_bulk(data: Text, at: int) -> int:
    length, at = _number_at(data, at, b"$")
    if at + length + 2 > len(data):
        raise ValueError("not an entry")
    return at + length + 2


# --- ids ----------------------------------------------------------------------------------------
#
# Ascending ids are stored as runs of equal steps. A run is three numbers: the number of repetitions of the
# step, the increase of ms, and for seq its value if ms grew, otherwise its increase. Each number is stored
# seven bits a byte, lowest bits first; the eighth bit says that more bytes follow.


def pack_ids(ids: array[int]) -> bytes:
    """Pack ids, two words each, ascending and starting above 0-0, usually into at most a few bytes each.

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
    ms = seq = 0
    for times, rise, step in _runs(packed):
        for _ in range(times):
            seq = step if rise else seq + step
            ms += rise
            ids.append(ms)
            ids.append(seq)
    assert len(ids) == 2 * count, f"{len(ids)} words for {count} ids"


def find_packed(packed: bytes, ms: int, seq: int) -> int:
    """Return the number of ids that `pack_ids` packed into ``packed`` and that are less than ``ms-seq``. The time
    depends on the number of runs.

    >>> packed = pack_ids(array("Q", [5, 1, 5, 2, 6, 2]))
    >>> find_packed(packed, 5, 2), find_packed(packed, 6, 0), find_packed(packed, 9, 9)
    (1, 2, 3)
    """
    before = last_ms = last_seq = 0
    for times, rise, step in _runs(packed):
        if rise:
            less = min(times, max(0, ms - last_ms - 1) // rise)
            if less < times and last_ms + rise * (less + 1) == ms and step < seq:
                less += 1
            last_ms, last_seq = last_ms + rise * times, step
        else:
            less = times if last_ms < ms else 0
            if last_ms == ms and step:
                less = min(times, max(0, seq - last_seq - 1) // step)
            last_seq += step * times
        before += less
        if less < times:
            break
    return before


def _runs(packed: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the three numbers of each run: repetitions of the step, increase of ms, and seq."""
    at = 0
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
        yield values[0], values[1], values[2]


# --- rows ---------------------------------------------------------------------------------------
#
# Rows of words that resemble the previous row are stored as differences from it, modulo 2^64. The lowest bit of a
# number is 1 if the difference is negative; the other bits are stored as for ids.


def pack_rows(words: array[int], width: int) -> bytes:
    """Pack rows of ``width`` words each. A word that is near the one in the row before takes a byte.

    >>> len(pack_rows(array("Q", [1526569498055, 0, 100, 1526569498175, 0, 100]), 3))
    13
    """
    made = bytearray()
    for at, word in enumerate(words):
        rise = (word - (words[at - width] if at >= width else 0)) % 2**64
        value = 2 * rise if rise < 2**63 else 2 * (2**64 - rise) - 1
        while value > 127:
            made.append(value & 127 | 128)
            value >>= 7
        made.append(value)
    return bytes(made)


def unpack_rows(packed: bytes, width: int, count: int, words: array[int]) -> None:
    """Fill ``words``, which must be empty, with the ``count`` rows that `pack_rows` packed into ``packed``.

    Raises `ValueError` if ``packed`` contains a different number of rows.

    >>> words = array("Q")
    >>> unpack_rows(pack_rows(array("Q", [5, 2**64 - 1, 6, 0]), 2), 2, 2, words)
    >>> words.tolist() == [5, 2**64 - 1, 6, 0]
    True
    """
    if count * width > len(packed):
        raise ValueError("fewer rows than expected")
    at = 0
    while at < len(packed):
        value = shift = 0
        while at < len(packed) - 1 and packed[at] > 127:
            value |= (packed[at] & 127) << shift
            shift += 7
            at += 1
        value |= (packed[at] & 127) << shift
        at += 1
        rise = -(value // 2 + 1) if value & 1 else value // 2
        words.append(((words[-width] if len(words) >= width else 0) + rise) % 2**64)
    if len(words) != width * count:
        raise ValueError(f"{len(words)} words for {count} rows")
