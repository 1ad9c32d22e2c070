"""The bytes that a primary sends to a replica after the reply to HWSYNC.

    replica                                             primary
    HWSYNC version history offset ────────────────────▶
                                  ◀──── +CONTINUE seed history offset [left…]    or    +FULL …
                                  ◀──── groups, from that offset on; for +FULL, first a copy of the store
    REPLCONF ACK offset FACK offset ──────────────────▶

Rule 1. Everything after the line is record groups as they are in the buffer of a turn (`headwater.journal.format.records`,
        not bound to a position), with the primary's seed. So each has a length, a checksum, and the primary's time.
Rule 2. Groups whose first byte is one of the kinds below are the link's own. They do not count for the offset and
        never reach a journal.
Rule 3. A length is checked before memory is taken for it, and a checksum before a group is used. After one group that is not
        valid, the link is closed.

        0x0a  sign of life  offset u64, wanted u8: the offset of the primary, and whether it wants an
                            acknowledgement after each turn
        0x0b  file          size u64, name: begins a file of the copy
        0x0c  part          bytes: the next bytes of that file
        0x0d  manifest      text: MANIFEST of the copy, which is complete
        0x0e  history       the line +CONTINUE, as the reply to HWSYNC would be now: another history begins
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from headwater.common.limits import MAX_RECORD_GROUP_BYTES
from headwater.errors import HeadwaterError
from headwater.journal.format.batches import FOREIGN, FULL, STOPPED, GroupScanner
from headwater.journal.format.checksum import ENGINE_KINDS, LOCAL_KIND
from headwater.journal.format.manifest import Left, StoreHistory
from headwater.journal.format.records import (
    GROUP_HEADER_BYTES,
    begin_group,
    flaw,
    group_at,
    seal_group,
)

LINK_VERSION = 1
"""The version of the link that this server speaks. It follows primaries of this version and of the one before."""

ALIVE, FILE, PART, MANIFEST, HISTORY = 0x0A, 0x0B, 0x0C, 0x0D, 0x0E
_ALIVE = Struct("<BQB")
_FILE = Struct("<BQ")
PART_BYTES = 256 * 1024
"""Maximum number of bytes of a file in one group."""
MAX_NAME_BYTES = 64


class LinkRefused(HeadwaterError):
    """What arrived over the link cannot be used, or the primary refuses this server."""


class SignOfLife(NamedTuple):
    """The primary's offset and time in steady ms, and whether it wants an acknowledgement after each turn."""

    offset: int
    now_ms: int
    wanted: bool


class FileBegins(NamedTuple):
    """The next file of a copy: its name and size in bytes."""

    name: str
    size: int


class FilePart(NamedTuple):
    """The next bytes of a file of a copy."""

    data: bytes


class CopyEnds(NamedTuple):
    """The MANIFEST of a copy, all files of which have been sent."""

    manifest: bytes


class Groups(NamedTuple):
    """Groups of facts. Number ``i`` is ``data[starts[i]:ends[i]]`` of the time ``times[i]``, in steady ms."""

    data: memoryview
    starts: array[int]
    ends: array[int]
    times: array[int]


class Continuation(NamedTuple):
    """The reply to HWSYNC: whether a copy follows, the seed of the groups, and the state that the replica then has."""

    full: bool
    seed: int
    history: StoreHistory
    offset: int

    def line(self) -> bytes:
        """Return the line of the reply."""
        word = "FULL" if self.full else "CONTINUE"
        left = "".join(f" {one.history} {one.offset}" for one in self.history.left)
        return f"+{word} {self.seed:08x} {self.history.id} {self.offset}{left}\r\n".encode()

    @classmethod
    def read(cls, line: bytes) -> Continuation:
        """Read the line of the reply. Raises `LinkRefused`."""
        words = line.decode("utf-8", "replace").split()
        try:
            full = {"+FULL": True, "+CONTINUE": False}[words[0]]
            pairs = zip(words[4::2], words[5::2], strict=True)
            left = tuple(Left(history, int(offset)) for history, offset in pairs)
            return cls(full, int(words[1], 16), StoreHistory(words[2], left), int(words[3]))
        except (KeyError, IndexError, ValueError):
            text = line.decode("utf-8", "replace").strip()
            raise LinkRefused(f"the primary answered HWSYNC with {text[:200]!r}") from None


Received = Groups | SignOfLife | FileBegins | FilePart | CopyEnds | Continuation

# --- what a primary writes ------------------------------------------------------------------------


def _group(facts: bytes, turn: int, now_ms: int, seed: int) -> bytearray:
    buffer = bytearray()
    mark = begin_group(buffer)
    buffer += facts
    seal_group(buffer, mark, turn, now_ms, seed)
    return buffer


def sign_of_life(offset: int, *, wanted: bool, turn: int, now_ms: int, seed: int) -> bytearray:
    """Return a sign of life; ``turn`` is the number of the primary's last turn."""
    return _group(_ALIVE.pack(ALIVE, offset, wanted), turn, now_ms, seed)


def file_begins(name: str, size: int, seed: int) -> bytearray:
    """Return the beginning of a file of the copy."""
    return _group(_FILE.pack(FILE, size) + name.encode(), 0, 0, seed)


def file_part(data: bytes, seed: int) -> bytearray:
    """Return the next bytes of that file, `PART_BYTES` at most."""
    return _group(bytes([PART]) + data, 0, 0, seed)


def copy_ends(manifest: bytes, seed: int) -> bytearray:
    """Return the end of a copy."""
    return _group(bytes([MANIFEST]) + manifest, 0, 0, seed)


def history_begins(state: Continuation, turn: int, now_ms: int) -> bytearray:
    """Return the beginning of the history of ``state``; ``turn`` is the number of the primary's last turn."""
    return _group(bytes([HISTORY]) + state.line(), turn, now_ms, state.seed)


def counted_groups(buffer: bytearray) -> bytes:
    """Return those of a turn's sealed groups that count for the offset (`headwater.journal.format.records`)."""
    found, at = bytearray(), 0
    while at < len(buffer):
        _turn, _now_ms, end = group_at(buffer, at)
        if buffer[at + GROUP_HEADER_BYTES] != LOCAL_KIND:
            found += buffer[at:end]
        at = end
    return bytes(found)


# --- what a replica reads -------------------------------------------------------------------------


class LinkReader:
    """Divides what arrives over a link.

    >>> reader = LinkReader(seed=5)
    >>> reader.feed(sign_of_life(100, wanted=True, turn=3, now_ms=1526569498055, seed=5))
    >>> list(reader.read())
    [SignOfLife(offset=100, now_ms=1526569498055, wanted=True)]
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._scanner = GroupScanner(memoryview(b""), 0, 0, seed, 0, None)
        self._parts: list[bytes] = []
        """What has arrived after the scanner's data."""
        self._size = 0
        """Number of bytes that are not read, including the parts."""
        self._needed = 0
        """Number of bytes with which the next group may be complete."""

    def feed(self, data: bytes) -> None:
        """Append what has arrived."""
        self._parts.append(data)
        self._size += len(data)

    def read(self) -> Iterator[Received]:
        """Yield all complete groups in order. Raises `LinkRefused` at one that is not valid."""
        if self._size < self._needed:
            return
        scanner = self._join()
        self._needed = 0  # the caller may stop before the end
        state = FULL
        while state != STOPPED:
            starts, ends, times = array("Q"), array("Q"), array("Q")
            state = scanner.scan(starts, ends, times)
            self._size = len(scanner.data) - scanner.offset
            if starts:
                yield self._checked(Groups(scanner.data, starts, ends, times))
            if state == FOREIGN:
                own = _own(scanner.data, scanner.offset)
                turn, _now_ms, end = group_at(scanner.data, scanner.offset)
                scanner.offset, scanner.turn = end, turn
                self._size = len(scanner.data) - end
                yield own
        self._needed = self._bytes_needed(scanner)

    def _join(self) -> GroupScanner:
        """Continue with a scanner of everything that is not read."""
        former = self._scanner
        data = b"".join([former.data[former.offset :], *self._parts])
        self._parts.clear()
        self._scanner = GroupScanner(memoryview(data), 0, 0, self._seed, former.turn, None)
        return self._scanner

    def _checked(self, groups: Groups) -> Groups:
        if any(groups.data[start] == LOCAL_KIND for start in groups.starts):
            raise LinkRefused("the primary sent where it stores bodies, which concerns only itself")
        return groups

    def _bytes_needed(self, scanner: GroupScanner) -> int:
        """Return the size of the group that follows, or of its header. Raises `LinkRefused` unless it is incomplete."""
        rest = scanner.data[scanner.offset :]
        if len(rest) <= GROUP_HEADER_BYTES:
            return GROUP_HEADER_BYTES + 1
        length = int.from_bytes(rest[:4], "little")
        if 0 < length <= MAX_RECORD_GROUP_BYTES and len(rest) < GROUP_HEADER_BYTES + length:
            return GROUP_HEADER_BYTES + length
        found = flaw(rest, 0, seed=self._seed, turn=scanner.turn)
        raise LinkRefused(f"the primary sent {found}")


assert HISTORY < ENGINE_KINDS


def _own(data: memoryview, at: int) -> Received:
    """Return the link's own group at ``at``. Raises `LinkRefused` for one that this version does not know."""
    _turn, now_ms, end = group_at(data, at)
    facts = bytes(data[at + GROUP_HEADER_BYTES : end])
    kind, size = facts[0], len(facts)
    if kind == ALIVE and size == _ALIVE.size:
        _kind, offset, wanted = _ALIVE.unpack(facts)
        return SignOfLife(offset, now_ms, bool(wanted))
    if kind == FILE and _FILE.size < size <= _FILE.size + MAX_NAME_BYTES:
        return FileBegins(
            facts[_FILE.size :].decode("ascii", "replace"), _FILE.unpack_from(facts)[1]
        )
    if kind == PART and size <= 1 + PART_BYTES:
        return FilePart(facts[1:])
    if kind == MANIFEST:
        return CopyEnds(facts[1:])
    if kind == HISTORY:
        return Continuation.read(facts[1:])
    raise LinkRefused(f"the primary sent a group of kind {kind:#04x} and {size} bytes")
