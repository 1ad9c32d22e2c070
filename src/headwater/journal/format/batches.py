"""Reads groups in batches, so that a replay spends its time in the engine and not on reading groups.

    data   ┌────────┬───────┬────────┬───────┬────────┬───────┬───┐
           │ header │ facts │ header │ facts │ synced │ facts │ … │
           └────────┴───────┴────────┴───────┴────────┴───────┴───┘
           starts ──┘       ends ─┘

Rule 1. A batch contains only the engine's groups. The scanner handles the journal's own groups: it keeps the
        content of the last fact ``synced``, and stops at any other fact of the journal.
Rule 2. A batch ends after `BATCH_GROUPS` groups, or at the end of its piece of the file.
Rule 3. Only `records.whole_group` decides whether a group is valid.
Rule 4. `PieceReader` needs memory for one piece of a file, or for its largest group.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from headwater.errors import JournalDamaged
from headwater.journal.disk.content import Content
from headwater.journal.format.checksum import ENGINE_KINDS, LOCAL_KIND
from headwater.journal.format.records import (
    GROUP_HEADER_BYTES,
    SYNCED_GROUP_BYTES,
    Group,
    Synced,
    flaw,
    group_at,
    whole_group,
)

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # the .pxd files have them in C
    from headwater.journal.format.checksum import place_mask
    from headwater.native.memory import push_word
    from headwater.native.views import view_u8, view_u32, view_u64

BATCH_GROUPS = 4096
PIECE_BYTES = 1024 * 1024
"""Number of bytes that `PieceReader` reads at once. A piece stays in the processor's cache until it is replayed, and
the next one uses the same memory: replaying takes a fifth less time than from a whole file in memory."""

FULL = 0
"""The batch is full; more groups may follow."""
STOPPED = 1
"""No complete group follows."""
FOREIGN = 2
"""A group of the journal follows that is not a plausible fact ``synced``."""

_SYNCED_KIND = 0x02


class JournalBatch(NamedTuple):
    """Consecutive groups of the engine in one file.

    The facts of group ``i`` are ``data[starts[i]:ends[i]]``, and ``times[i]`` is its now_ms. ``base`` is the
    offset in the file of ``data[0]``. The batch is valid until the next one is requested.
    """

    name: str
    data: memoryview
    starts: array[int]
    ends: array[int]
    times: array[int]
    base: int = 0

    def offset(self, index: int) -> int:
        """Return the offset in the file at which group ``index`` begins, for a message."""
        return self.base + self.starts[index] - GROUP_HEADER_BYTES

    def until(self, at_ms: int) -> JournalBatch:
        """Return the groups before the first one whose time is after ``at_ms``."""
        later = (index for index, now_ms in enumerate(self.times) if now_ms > at_ms)
        first = next(later, len(self.times))
        return self._replace(
            starts=self.starts[:first], ends=self.ends[:first], times=self.times[:first]
        )

    def groups(self) -> Iterator[Group]:
        """Yield the groups one by one."""
        base = self.base
        for start in self.starts:
            turn, now_ms, end = group_at(self.data, start - GROUP_HEADER_BYTES)
            facts = self.data[start:end]
            yield Group(turn, now_ms, facts, base + start - GROUP_HEADER_BYTES, base + end)


class GroupScanner:
    """Finds the groups in a part of a file.

    ``data`` is a part of file ``number`` that begins at ``base``; ``key`` is the file's `records.file_key`,
    None if its groups are not bound. ``turn`` is the turn of the last group before ``data``.

        offset                 the offset in ``data`` of the next group
        turn                   the turn of the last group
        last_now_ms            the latest time of the engine's groups
        synced_number, synced_offset
                               the last fact ``synced``; number 0 if none was found
        clean                  True if the last group says that all before it is durable
        counted                by how many bytes these groups move the offset of the store
                               (`records.counted_bytes`)
    """

    def __init__(
        self, data: memoryview, base: int, number: int, seed: int, turn: int, key: int | None
    ) -> None:
        self.data = data
        self.base = base
        self.number = number
        self.seed = seed
        self.turn = turn
        self.binds = key is not None
        self.key = key or 0
        self.offset = 0
        self.last_now_ms = 0
        self.synced_number = 0
        self.synced_offset = 0
        self.clean = False
        self.counted = 0

    def scan(self, starts: array[int], ends: array[int], times: array[int]) -> int:
        """Append the next groups to the three arrays. Return `FULL`, `STOPPED` or `FOREIGN`."""
        data, base, seed = self.data, self.base, self.seed
        offset, turn, size = self.offset, self.turn, len(self.data)
        last_now_ms, clean = self.last_now_ms, self.clean
        left, result, mask = BATCH_GROUPS, STOPPED, 0
        while offset + GROUP_HEADER_BYTES < size:
            if left == 0:
                result = FULL
                break
            if self.binds:
                mask = place_mask(self.key, base + offset)
            end = whole_group(data, offset, seed, turn, mask)
            if end == 0:
                break
            if view_u8(data, offset + GROUP_HEADER_BYTES) < ENGINE_KINDS:
                if not self._is_synced(offset, end):
                    result = FOREIGN
                    break
                clean = self.clean
            else:
                now_ms = view_u64(data, offset + 16)
                last_now_ms = max(last_now_ms, now_ms)
                push_word(starts, offset + GROUP_HEADER_BYTES)
                push_word(ends, end)
                push_word(times, now_ms)
                if view_u8(data, offset + GROUP_HEADER_BYTES) != LOCAL_KIND:
                    self.counted += end - offset - GROUP_HEADER_BYTES
                left -= 1
                clean = False
            turn = view_u64(data, offset + 8)
            offset = end
        self.offset, self.turn = offset, turn
        self.last_now_ms, self.clean = last_now_ms, clean
        return result

    def _is_synced(self, offset: int, end: int) -> bool:
        """Keep the content of the fact ``synced`` from ``offset`` to ``end``. Return False if it is another fact,
        or declares a later place of this file durable."""
        data, at = self.data, offset + GROUP_HEADER_BYTES
        if end - offset != SYNCED_GROUP_BYTES or view_u8(data, at) != _SYNCED_KIND:
            return False
        number, synced = view_u64(data, at + 1), view_u64(data, at + 9)
        here = self.base + offset
        if number == self.number and synced > here:
            return False
        self.synced_number, self.synced_offset = number, synced
        self.clean = number == self.number and synced == here
        return True

    def foreign(self) -> memoryview:
        """Return the facts of the group at which `scan` stopped with `FOREIGN`."""
        end = self.offset + GROUP_HEADER_BYTES + view_u32(self.data, self.offset)
        return self.data[self.offset + GROUP_HEADER_BYTES : end]

    def last_synced(self) -> Synced | None:
        """Return the last fact ``synced`` of this part, or None if none was found."""
        return Synced(self.synced_number, self.synced_offset) if self.synced_number else None


class PieceReader:
    """Reads the groups of a file in pieces, from an offset to ``end``, or until no complete group follows.

    The other arguments are those of `GroupScanner`.

        offset, turn           the offset of the next group, and the turn of the last one
        groups                 number of the engine's groups that were read
        last_now_ms, last_synced, clean, counted
                               as in `GroupScanner`, of all groups that were read
        foreign                the facts of the group that follows, if it is not the engine's and not a
                               plausible fact ``synced``
    """

    def __init__(
        self, name: str, content: Content, end: int, *, number: int, seed: int, key: int | None
    ) -> None:
        self._name = name
        self._content = content
        self._end = end
        self._number = number
        self._seed = seed
        self._key = key
        self.offset = 0
        self.turn = 0
        self.groups = 0
        self.last_now_ms = 0
        self.last_synced: Synced | None = None
        self.clean = False
        self.counted = 0
        self.foreign: memoryview | None = None
        self._rest = memoryview(b"")
        """The bytes after the last complete group that was read."""

    def batches(self, offset: int, turn: int) -> Iterator[JournalBatch]:
        """Yield the engine's groups from ``offset`` on. ``turn`` is the turn of the last group before that."""
        self.offset, self.turn = offset, turn
        end = min(self._end, self._content.size)
        wanted = PIECE_BYTES
        while wanted:
            begin = self.offset
            data = self._content.part(begin, min(wanted, end - begin))
            scanner = GroupScanner(data, begin, self._number, self._seed, self.turn, self._key)
            scanner.clean = self.clean
            yield from self._scanned(scanner)
            self._rest = data[self.offset - begin :]
            needed = _group_bytes(self._rest)
            # A group that was read whole, or that would end after the file, is not valid.
            is_cut = len(self._rest) < needed <= end - self.offset
            wanted = max(PIECE_BYTES, needed) if is_cut else 0

    def refuse_rest(self, damaged: Callable[[int, str], JournalDamaged]) -> None:
        """Raise the error that ``damaged`` returns for an offset and a description of the bytes there, unless the
        groups end at ``end``."""
        if self.foreign is not None:
            raise damaged(self.offset, f"a fact of unknown kind {self.foreign[0]:#04x}")
        if self.offset == self._end:
            return
        size = self._content.size
        if size < self._end:
            raise damaged(size, f"the end of the file instead of {self._end - size} bytes")
        found = flaw(
            self._rest,
            0,
            seed=self._seed,
            turn=self.turn,
            key=self._key,
            base=self.offset,
            file_end=self._end,
        )
        raise damaged(self.offset, found)

    def _scanned(self, scanner: GroupScanner) -> Iterator[JournalBatch]:
        state, before = FULL, self.counted
        while state == FULL:
            batch = JournalBatch(
                self._name, scanner.data, array("Q"), array("Q"), array("Q"), scanner.base
            )
            state = scanner.scan(batch.starts, batch.ends, batch.times)
            self.offset, self.turn = scanner.base + scanner.offset, scanner.turn
            self.groups += len(batch.starts)
            self.last_now_ms = max(self.last_now_ms, scanner.last_now_ms)
            self.last_synced = scanner.last_synced() or self.last_synced
            self.clean = scanner.clean
            self.counted = before + scanner.counted
            if batch.starts:
                yield batch
        if state == FOREIGN:
            self.foreign = scanner.foreign()


def groups_of(batches: Iterable[JournalBatch]) -> Iterator[Group]:
    """Yield the groups of ``batches`` one by one. A group is valid until the next one is requested."""
    for batch in batches:
        yield from batch.groups()


def _group_bytes(data: memoryview) -> int:
    """Return the number of bytes that are needed to judge the group at the start of ``data``."""
    if len(data) <= GROUP_HEADER_BYTES:
        return GROUP_HEADER_BYTES + 1
    return GROUP_HEADER_BYTES + int.from_bytes(data[:4], "little")
