"""The record format of the journal: how a group of facts is written, and how it is read back.

    group    ┌────────────┬────────────┬──────────┬────────────┬─────────────────────┐
             │ length u32 │ crc32c u32 │ turn u64 │ now_ms u64 │ facts, length bytes │
             └────────────┴────────────┴──────────┴────────────┴─────────────────────┘
              0            4            8          16           24          little-endian

    file     ┌─────────────┬───────┬───────┬───┬──────────────────────────────┐
             │ file header │ group │ group │ … │ zeros, preallocated          │
             └─────────────┴───────┴───────┴───┴──────────────────────────────┘
              0             64

Rule 1. One command is one group, so a torn tail never halves a command.
Rule 2. The checksum covers turn, now_ms and facts, and begins with seed XOR length, so it covers the
        length as well. The seed is drawn once for a data directory and stands in every file header:
        no client can send bytes that read as a record of ours, and a file from another store never
        passes for one of this.
        In a file of version 2 it is XORed with a mask of 32 bits, drawn from the file's number and
        the offset at which the group begins (`checksum.place_mask`). A group that is copied to
        another place does not fit there. A group is sealed before its place is known, so
        `Journal.commit` binds it. The file header is not bound: it holds its number itself.
Rule 3. A length is checked against the limits and the end of the file before anything is read by it.
Rule 4. The first byte of a group's facts is the first fact's kind. Kinds below 0x10 are the
        journal's own and stand in groups of their own; all others are the engine's, opaque here.
Rule 5. Zeros are never a group: a group holds at least one byte of facts.

The journal's own facts:

    0x01 file     magic "headwater journal", version u16, seed u32, number u64, size u64
    0x02 synced   number u64, offset u64: that file was durable up to that offset

Version 1 does not bind groups to their places. Version 2 does, and is what new files have. A reader
refuses versions that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from headwater.limits import MAX_RECORD_GROUP_BYTES

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # checksum_c.pxd and memory_c.pxd have them in C
    from headwater.journal.checksum import extend, extend_view, place_mask
    from headwater.memory import append_bytes, resize, set_u32, set_u64

FORMAT_VERSION = 2
"""Of new files; all versions from 1 on are read."""
BOUND_VERSION = 2
"""The first version whose groups are bound to their places."""
ENGINE_KINDS = 0x10
"""The first kind of fact that is the engine's."""

GROUP_HEADER_BYTES = 24
FILE_HEADER_BYTES = 64
SYNCED_GROUP_BYTES = 41

_GROUP = Struct("<IIQQ")
_CHECKSUM = Struct("<I")
_FILE = Struct("<B17sHIQQ")
_SYNCED = Struct("<BQQ")
_FILE_KIND = 0x01
_SYNCED_KIND = 0x02
_MAGIC = b"headwater journal"
_BLANK = bytes(GROUP_HEADER_BYTES)

assert GROUP_HEADER_BYTES == _GROUP.size
assert GROUP_HEADER_BYTES + _FILE.size == FILE_HEADER_BYTES
assert GROUP_HEADER_BYTES + _SYNCED.size == SYNCED_GROUP_BYTES


class Group(NamedTuple):
    """One whole group as it stands in a file, from ``offset`` to ``end``.

    ``facts`` is a view into what was read; copy what must outlive the reading of its file.
    """

    turn: int
    now_ms: int
    facts: memoryview
    offset: int
    end: int


class FileHeader(NamedTuple):
    """What a journal file says of itself; ``size`` is what it was allocated with, in bytes."""

    version: int
    seed: int
    number: int
    size: int


class Synced(NamedTuple):
    """The fact that file ``number`` was durable up to ``offset`` when it was written."""

    number: int
    offset: int


# --- writing ------------------------------------------------------------------------------------


def begin_group(buffer: bytearray) -> int:
    """Make place for a group's header at the end of ``buffer``; the mark that `seal_group` takes.

    >>> buffer = bytearray()
    >>> mark = begin_group(buffer)
    >>> buffer += b"\\x21the facts"
    >>> seal_group(buffer, mark, turn=7, now_ms=1526569498055, seed=5)
    True
    >>> [(group.turn, bytes(group.facts)) for group in read_groups(memoryview(buffer), 0, seed=5)]
    [(7, b'!the facts')]
    """
    mark = len(buffer)
    append_bytes(buffer, _BLANK)
    return mark


def seal_group(buffer: bytearray, mark: int, turn: int, now_ms: int, seed: int) -> bool:
    """Turn what was appended since `begin_group` into a group; False, and no trace, if that is
    nothing.

    The group is the last thing in ``buffer``. ``seed`` is `Journal.seed`.
    """
    end = len(buffer)
    length = end - mark - GROUP_HEADER_BYTES
    if length == 0:
        resize(buffer, mark)
        return False
    assert 0 < length <= MAX_RECORD_GROUP_BYTES, "admits() was not asked"
    set_u32(buffer, mark, length)
    set_u64(buffer, mark + 8, turn)
    set_u64(buffer, mark + 16, now_ms)
    set_u32(buffer, mark + 4, extend(seed ^ length, buffer, mark + 8, end))
    return True


def group_at(buffer: bytearray | memoryview, offset: int) -> tuple[int, int, int]:
    """Turn, now_ms and end of the sealed group at ``offset`` of a buffer that we wrote ourselves."""
    length, _checksum, turn, now_ms = _GROUP.unpack_from(buffer, offset)
    return turn, now_ms, offset + GROUP_HEADER_BYTES + length


def file_key(number: int) -> int:
    """What binds the groups of file ``number`` to it: the ``key`` of all functions here."""
    return place_mask(0, number)


def file_header(number: int, size: int, seed: int, *, version: int = FORMAT_VERSION) -> bytes:
    """The first 64 bytes of a journal file."""
    buffer = bytearray()
    mark = begin_group(buffer)
    buffer += _FILE.pack(_FILE_KIND, _MAGIC, version, seed, number, size)
    # Its checksum cannot begin with a seed that is only known once it has been read.
    seal_group(buffer, mark, 0, 0, 0)
    return bytes(buffer)


def synced_group(synced: Synced, turn: int, now_ms: int, seed: int) -> bytearray:
    """The group of 41 bytes that says what the last fsync made durable, not yet bound to a place."""
    buffer = bytearray()
    mark = begin_group(buffer)
    buffer += _SYNCED.pack(_SYNCED_KIND, *synced)
    seal_group(buffer, mark, turn, now_ms, seed)
    return buffer


# --- reading ------------------------------------------------------------------------------------


def read_groups(
    data: memoryview, offset: int, *, seed: int, turn: int = 0, key: int | None = None
) -> Iterator[Group]:
    """The whole groups that follow one another from ``offset`` on; ends where none stands.

    ``data`` is a file from its start, and ``key`` its `file_key`; None when the groups are not bound
    to places: in a file of version 1, or in a turn's buffer. Turns do not fall: a group with a turn
    before ``turn`` or before its predecessor's is none. What stands at the end of the last group,
    `flaw` says.
    """
    unpack = _GROUP.unpack_from
    while offset + GROUP_HEADER_BYTES < len(data):
        header = unpack(data, offset)
        end = _whole(data, offset, header, seed, turn, _mask(key, offset))
        if not end:
            return
        _length, _checksum, turn, now_ms = header
        yield Group(turn, now_ms, data[offset + GROUP_HEADER_BYTES : end], offset, end)
        offset = end


def _whole(
    data: memoryview,
    offset: int,
    header: tuple[int, int, int, int],
    seed: int,
    turn: int,
    mask: int,
) -> int:
    """Where the group with this header ends, if a whole one stands there at a place with that mask and
    its turn is not before ``turn``; else 0."""
    length, checksum, group_turn, _now_ms = header
    end = offset + GROUP_HEADER_BYTES + length
    if length == 0 or length > MAX_RECORD_GROUP_BYTES or end > len(data) or group_turn < turn:
        return 0
    if extend_view(seed ^ length, data, offset + 8, end) != checksum ^ mask:
        return 0
    return end


def _mask(key: int | None, offset: int) -> int:
    return 0 if key is None else place_mask(key, offset)


def flaw(data: memoryview, offset: int, *, seed: int, turn: int = 0, key: int | None = None) -> str:
    """What stands at ``offset`` where no whole group does, in words for an error message."""
    size = len(data)
    if offset + GROUP_HEADER_BYTES >= size:
        return f"{size - offset} bytes, too few for a record"
    length, checksum, group_turn, _now_ms = _GROUP.unpack_from(data, offset)
    end = offset + GROUP_HEADER_BYTES + length
    if length == 0:
        return "a record of length 0"
    if length > MAX_RECORD_GROUP_BYTES:
        return f"a record of length {length}, more than the limit of {MAX_RECORD_GROUP_BYTES}"
    if end > size:
        return f"a record of length {length}, which runs past the end of the file at {size}"
    found = extend_view(seed ^ length, data, offset + 8, end) ^ _mask(key, offset)
    if found != checksum:
        return f"a record with checksum {checksum:08x} whose bytes have {found:08x} at this place"
    return f"a record of turn {group_turn} after one of turn {turn}"


def read_file_header(data: memoryview) -> FileHeader | None:
    """The header at the start of a file, None when what stands there is none."""
    group = next(read_groups(data[:FILE_HEADER_BYTES], 0, seed=0), None)
    if group is None or len(group.facts) != _FILE.size:
        return None
    kind, magic, version, seed, number, size = _FILE.unpack(group.facts)
    if kind != _FILE_KIND or magic != _MAGIC:
        return None
    return FileHeader(version, seed, number, size)


def read_synced(facts: memoryview) -> Synced | None:
    """The fact ``synced`` when that is what ``facts`` is, else None."""
    if len(facts) != _SYNCED.size or facts[0] != _SYNCED_KIND:
        return None
    _kind, number, offset = _SYNCED.unpack(facts)
    return Synced(number, offset)


# Both look ahead, so that a group that begins inside another match is found as well.
_SYNCED_GROUP = re.compile(
    rb"(?=%b.{20}%c)" % (re.escape(_CHECKSUM.pack(_SYNCED.size)), _SYNCED_KIND), re.DOTALL
)
# A turn and a time below 2**48: the year 10889, or a hundred thousand turns a second for 89 years.
_ANY_GROUP = re.compile(rb"(?=.{14}\0\0.{6}\0\0)", re.DOTALL)
_SEARCH_FACTOR = 64


def find_synced(
    data: memoryview, offset: int, stop: int, *, seed: int, turn: int, key: int | None = None
) -> Iterator[Synced]:
    """Every fact ``synced`` whose whole group begins at any byte from ``offset`` to ``stop``.

    Checksum and turn are checked. This is how the reader finds out that a place was durable
    although the records between cannot be read. Where bytes were inserted or removed, a group is not
    at its place any more; one that names the place where it was itself written is found all the same.
    """
    for match in _SYNCED_GROUP.finditer(data, offset, min(stop + SYNCED_GROUP_BYTES, len(data))):
        start = match.start()
        synced = read_synced(data[start + GROUP_HEADER_BYTES : start + SYNCED_GROUP_BYTES])
        if synced is None:
            continue
        header = _GROUP.unpack_from(data, start)
        for place in {start} if key is None else {start, synced.offset}:
            if _whole(data, start, header, seed, turn, _mask(key, place)):
                yield synced
                break


def holds_group(
    data: memoryview, offset: int, stop: int, *, seed: int, turn: int, key: int | None = None
) -> bool:
    """Whether a whole group begins at any byte from ``offset`` to ``stop``.

    Checksum and turn are checked, at most `_SEARCH_FACTOR` times the bytes there are: what a client
    sent may look like the beginnings of many large groups, and must not keep a store from starting.
    """
    unpack = _GROUP.unpack_from
    allowed = _SEARCH_FACTOR * len(data)
    for match in _ANY_GROUP.finditer(data, offset, min(stop + GROUP_HEADER_BYTES, len(data))):
        start = match.start()
        length, checksum, group_turn, _now_ms = unpack(data, start)
        end = start + GROUP_HEADER_BYTES + length
        if length == 0 or end > len(data) or group_turn < turn:
            continue
        allowed -= length
        if allowed < 0:
            return False
        found = extend_view(seed ^ length, data, start + 8, end)
        if found == checksum ^ _mask(key, start):
            return True
    return False
