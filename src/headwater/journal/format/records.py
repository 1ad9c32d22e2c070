"""The record format of the journal: writes and reads groups of facts.

    group    ┌────────────┬────────────┬──────────┬────────────┬─────────────────────┐
             │ length u32 │ crc32c u32 │ turn u64 │ now_ms u64 │ facts, length bytes │
             └────────────┴────────────┴──────────┴────────────┴─────────────────────┘
              0            4            8          16           24          little-endian

    file     ┌─────────────┬───────┬───────┬───┬──────────────────────────────┐
             │ file header │ group │ group │ … │ zeros, preallocated          │
             └─────────────┴───────┴───────┴───┴──────────────────────────────┘
              0             64

Rule 1. A command, transaction or script is one group, so recovery never applies a part of it.
Rule 2. The checksum covers turn, now_ms and facts. It starts with seed XOR length and therefore covers the
        length as well. The seed is a random number of the data directory that is in every file header:
        no client can send bytes that are valid as a record, and a file of another store is never
        accepted.
        In a file of version 2 the checksum is XORed with a mask of 32 bits, derived from the number of
        the file and the offset of the group (`checksum.place_mask`). A group that is copied to another
        position is not valid there. The position of a group is not known when it is sealed, so
        `Journal.commit` binds it. The file header is not bound, because it contains the file's number.
Rule 3. A length is checked against the limits and the end of the file before it is used.
Rule 4. The first byte of a group's facts is the kind of the first fact. Kinds below 0x10 are the journal's
        and have their own groups. All others are the engine's, and are not interpreted here, except that
        groups of `LOCAL_KIND` do not count for the offset of the store.
Rule 5. Zeros are never a group: a group has at least one byte of facts.

The journal's own facts:

    0x01 file     magic "headwater journal", version u16, seed u32, number u64, size u64
    0x02 synced   number u64, offset u64: the file was durable up to the offset
    0x03 image end  groups u64, bytes u64: the end of an image (`headwater.journal.images.images`)
    0x04 image    magic "headwater image", version u16, seed u32, number u64, turn u64: the start of an image

Version 1 does not bind groups to their positions. Version 2, the version of new files, does. Unknown versions are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from headwater.common.limits import MAX_RECORD_GROUP_BYTES
from headwater.journal.format.checksum import LOCAL_KIND

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # the .pxd files have them in C
    from headwater.journal.format.checksum import extend, extend_view, place_mask
    from headwater.native.memory import append_bytes, resize, set_u32, set_u64, u64_at
    from headwater.native.views import view_u32, view_u64

FORMAT_VERSION = 2
"""The version of new files. All versions from 1 on can be read."""
BOUND_VERSION = 2
"""The first version whose groups are bound to their positions."""
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
_HEADER_BYTES, _LOCAL_KIND = GROUP_HEADER_BYTES, LOCAL_KIND
"""The same numbers as C constants. The public names cannot be C constants, because other modules import them."""
_LENGTH_BITS = 0xFFFFFFFF
"""The length in the first word of a group. As a literal it would be a Python object, which costs 500 instructions."""

assert GROUP_HEADER_BYTES == _GROUP.size
assert GROUP_HEADER_BYTES + _FILE.size == FILE_HEADER_BYTES
assert GROUP_HEADER_BYTES + _SYNCED.size == SYNCED_GROUP_BYTES


class Group(NamedTuple):
    """One complete group of a file, from ``offset`` to ``end``.

    ``facts`` is a view of the file's content. Copy the parts that are needed after the file has been read.
    """

    turn: int
    now_ms: int
    facts: memoryview
    offset: int
    end: int


class FileHeader(NamedTuple):
    """The header of a journal file. ``size`` is the allocated size in bytes."""

    version: int
    seed: int
    number: int
    size: int


class Synced(NamedTuple):
    """The fact that file ``number`` was durable up to ``offset`` when this was written."""

    number: int
    offset: int


# --- writing ------------------------------------------------------------------------------------


def begin_group(buffer: bytearray) -> int:
    """Reserve space for a group's header at the end of ``buffer``. Return the mark for `seal_group`.

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
    """Make a group of the bytes appended since `begin_group`. If there are none, remove the header and return
    False.

    The group must be the last thing in ``buffer``. ``seed`` is `Journal.seed`.
    """
    end = len(buffer)
    length = end - mark - _HEADER_BYTES
    if length == 0:
        resize(buffer, mark)
        return False
    assert 0 < length <= MAX_RECORD_GROUP_BYTES, "admits() was not called"
    set_u32(buffer, mark, length)
    set_u64(buffer, mark + 8, turn)
    set_u64(buffer, mark + 16, now_ms)
    set_u32(buffer, mark + 4, extend(seed ^ length, buffer, mark + 8, end))
    return True


def counted_bytes(buffer: bytearray, at: int, end: int) -> int:
    """Return the number of bytes by which the sealed groups in ``buffer[at:end]`` move the offset of the store: those of
    their facts, without the groups of `LOCAL_KIND`."""
    counted = 0
    while at < end:
        length = u64_at(buffer, at) & _LENGTH_BITS
        if buffer[at + _HEADER_BYTES] != _LOCAL_KIND:  # and none is the journal's own
            counted += length
        at += _HEADER_BYTES + length
    return counted


def group_at(buffer: bytearray | memoryview, offset: int) -> tuple[int, int, int]:
    """Return turn, now_ms and end of the sealed group at ``offset`` of a buffer. The group must be valid."""
    length, _checksum, turn, now_ms = _GROUP.unpack_from(buffer, offset)
    return turn, now_ms, offset + GROUP_HEADER_BYTES + length


def file_key(number: int) -> int:
    """Return the key that binds groups to file ``number``: the argument ``key`` of this module's functions."""
    return place_mask(0, number)


def file_header(number: int, size: int, seed: int, *, version: int = FORMAT_VERSION) -> bytes:
    """Return the first 64 bytes of a journal file."""
    return data_header(_FILE_KIND, _MAGIC, version, seed, number, size)


def data_header(kind: int, magic: bytes, *values: int) -> bytes:
    """Return the first 64 bytes of a data file with these values: version, seed, number, and one more."""
    buffer = bytearray()
    mark = begin_group(buffer)
    buffer += _FILE.pack(kind, magic, *values)
    # Its checksum does not use the seed, which is known only after the header was read.
    seal_group(buffer, mark, 0, 0, 0)
    return bytes(buffer)


def synced_group(synced: Synced, turn: int, now_ms: int, seed: int) -> bytearray:
    """Return the group of 41 bytes that records the last fsync, not yet bound."""
    buffer = bytearray()
    mark = begin_group(buffer)
    buffer += _SYNCED.pack(_SYNCED_KIND, *synced)
    seal_group(buffer, mark, turn, now_ms, seed)
    return buffer


# --- reading ------------------------------------------------------------------------------------


def read_groups(
    data: memoryview, offset: int, *, seed: int, turn: int = 0, key: int | None = None
) -> Iterator[Group]:
    """Yield the consecutive complete groups from ``offset`` on. Stop at the first place without one.

    ``data`` is the content of a file from its start, and ``key`` its `file_key`; None if the groups are not
    bound: in a file of version 1, or in a turn's buffer. Turns never decrease: a group is not valid if its
    turn is less than ``turn`` or than the turn of the group before it. `flaw` describes the bytes after the last
    group.
    """
    while offset + GROUP_HEADER_BYTES < len(data):
        end = whole_group(data, offset, seed, turn, _mask(key, offset))
        if not end:
            return
        turn, now_ms, _end = group_at(data, offset)
        yield Group(turn, now_ms, data[offset + GROUP_HEADER_BYTES : end], offset, end)
        offset = end


def whole_group(data: memoryview, offset: int, seed: int, turn: int, mask: int) -> int:
    """Return the end of the group at ``offset`` if it is complete, valid with this mask, and of a turn not
    before ``turn``; otherwise 0. ``data`` must have at least the header of a group."""
    length = view_u32(data, offset)
    end = offset + _HEADER_BYTES + length
    if length == 0 or length > MAX_RECORD_GROUP_BYTES or end > len(data):
        return 0
    if view_u64(data, offset + 8) < turn:
        return 0
    checksum = view_u32(data, offset + 4) ^ mask
    if extend_view(seed ^ length, data, offset + 8, end) != checksum:
        return 0
    return end


def checksum_of(data: memoryview, crc: int = 0) -> int:
    """Return the checksum ``crc`` continued with ``data``."""
    return extend_view(crc, data, 0, len(data))


def _mask(key: int | None, offset: int) -> int:
    return 0 if key is None else place_mask(key, offset)


def flaw(
    data: memoryview,
    offset: int,
    *,
    seed: int,
    turn: int = 0,
    key: int | None = None,
    base: int = 0,
    file_end: int | None = None,
) -> str:
    """Describe the bytes at ``offset``, which are not a valid group, for an error message. ``base`` is the
    offset in the file of ``data``; ``file_end`` is the offset of the file's end, if ``data`` may end before."""
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
        past = f"which runs past the end of the file at {base + size if file_end is None else file_end}"
        return f"a record of length {length}, {past}"
    found = extend_view(seed ^ length, data, offset + 8, end) ^ _mask(key, base + offset)
    if found != checksum:
        return f"a record with checksum {checksum:08x} whose bytes have {found:08x} at this offset"
    return f"a record of turn {group_turn} after one of turn {turn}"


def read_file_header(data: memoryview) -> FileHeader | None:
    """Return the header at the start of a file, or None if it is not valid."""
    values = read_data_header(data, _FILE_KIND, _MAGIC)
    return None if values is None else FileHeader(*values)


def read_data_header(data: memoryview, kind: int, magic: bytes) -> tuple[int, int, int, int] | None:
    """Return the values at the start of a data file of this kind (see `data_header`); None if they are invalid."""
    group = next(read_groups(data[:FILE_HEADER_BYTES], 0, seed=0), None)
    if group is None or len(group.facts) != _FILE.size:
        return None
    found = _FILE.unpack(group.facts)
    return found[2:] if found[:2] == (kind, magic.ljust(17, b"\0")) else None


def read_synced(facts: memoryview) -> Synced | None:
    """Return the fact ``synced`` if ``facts`` is one, otherwise None."""
    if len(facts) != _SYNCED.size or facts[0] != _SYNCED_KIND:
        return None
    _kind, number, offset = _SYNCED.unpack(facts)
    return Synced(number, offset)


# Both patterns use a lookahead, so that a group that begins inside another match is found as well.
_SYNCED_GROUP = re.compile(
    rb"(?=%b.{20}%c)" % (re.escape(_CHECKSUM.pack(_SYNCED.size)), _SYNCED_KIND), re.DOTALL
)
# A turn and a time below 2**48: the year 10889, or a hundred thousand turns a second for 89 years.
_ANY_GROUP = re.compile(rb"(?=.{14}\0\0.{6}\0\0)", re.DOTALL)
_SEARCH_FACTOR = 64


def find_synced(
    data: memoryview, offset: int, stop: int, *, seed: int, turn: int, key: int | None = None
) -> Iterator[Synced]:
    """Yield every fact ``synced`` whose complete group begins at any byte from ``offset`` to ``stop``.

    Checks checksum and turn. ``key`` is that of `read_groups`. With this, recovery finds out that a place was
    durable although the records in between cannot be read. After bytes were inserted or removed, a group is not at
    its position any more. It is still found if it names the position at which it was written.
    """
    for match in _SYNCED_GROUP.finditer(data, offset, min(stop + SYNCED_GROUP_BYTES, len(data))):
        start = match.start()
        synced = read_synced(data[start + GROUP_HEADER_BYTES : start + SYNCED_GROUP_BYTES])
        if synced is None:
            continue
        for place in {start} if key is None else {start, synced.offset}:
            if whole_group(data, start, seed, turn, _mask(key, place)):
                yield synced
                break


def holds_group(
    data: memoryview, offset: int, stop: int, *, seed: int, turn: int, key: int | None = None
) -> bool:
    """Return whether a complete group begins at any byte from ``offset`` to ``stop``; see `find_group`."""
    return find_group(data, offset, stop, seed=seed, turn=turn, key=key) >= 0


def find_group(
    data: memoryview, offset: int, stop: int, *, seed: int, turn: int, key: int | None = None
) -> int:
    """Return the offset of the first complete group that begins at any byte from ``offset`` to ``stop``, or -1.

    Checks checksum and turn, but reads at most `_SEARCH_FACTOR` times the bytes of ``data``: data of clients
    may look like the beginnings of many large groups, and must not prevent a store from starting.
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
            return -1
        found = extend_view(seed ^ length, data, start + 8, end)
        if found == checksum ^ _mask(key, start):
            return start
    return -1
