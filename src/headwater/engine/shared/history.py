"""The entries of a stream, and the counters of all entries that it ever had. With these, its groups count the
entries that they have not read.

Rule 1. ``last_id`` is at least the id of every entry in the stream. Only XSETID can lower it.
Rule 2. ``entries_added`` counts all entries ever appended. ``max_deleted_id`` is the greatest id that was
        deleted by XDEL or a similar command. Trimming changes neither; XSETID sets both.
Rule 3. ``max_trimmed_id`` is at least the id of every trimmed entry, and pending lists mark the blocks that
        may contain a deleted one. A scan for idle entries can therefore skip the check whether an
        entry still exists (XAUTOCLAIM, commands/xclaim.py).
"""

from __future__ import annotations

from headwater.common.model import UNKNOWN
from headwater.engine.entries.entry_log import EntryLog
from headwater.engine.shared.keyspace_state import KeyspaceState
from headwater.engine.shared.signals import KeySignals


class StreamHistory:
    """A stream as its groups see it (`headwater.engine.streams.stream.StoredStream` extends it)."""

    def __init__(self, keyspace: KeyspaceState, db: KeySignals, key: bytes, sid: int) -> None:
        self.keyspace = keyspace
        self.db = db
        self.key = key
        self.sid = sid
        self.log = EntryLog(keyspace.sealing, sid)
        self.last_ms = self.last_seq = 0
        self.max_deleted_id = (0, 0)
        self.max_trimmed_id = (0, 0)
        self.entries_added = 0

    @property
    def length(self) -> int:
        return self.log.length

    @property
    def last_id(self) -> tuple[int, int]:
        """The id of the entry that was appended last, or the id that XSETID has set since."""
        return self.last_ms, self.last_seq

    @last_id.setter
    def last_id(self, entry_id: tuple[int, int]) -> None:
        self.last_ms, self.last_seq = entry_id

    def has_tombstone_from(self, ms: int, seq: int) -> bool:
        """Return whether an entry at or after ``ms-seq`` was deleted by id; False for an empty stream, as in Redis."""
        if self.log.length == 0 or self.max_deleted_id == (0, 0):
            return False
        return (ms, seq) <= self.max_deleted_id

    def entries_read_at(self, id: tuple[int, int]) -> int:
        """Return the number of entries added up to and including ``id``, or `UNKNOWN`.

        Source: Redis, streamEstimateDistanceFromFirstEverEntry.
        """
        if self.entries_added == 0:
            return 0
        if self.log.length == 0 and id <= self.last_id:
            return self.entries_added
        if id != (0, 0) and id < self.max_deleted_id:
            return UNKNOWN
        if id == self.last_id:
            return self.entries_added
        if id > self.last_id:
            return UNKNOWN
        first = self.log.first()
        if self.max_deleted_id == (0, 0) or self.max_deleted_id < first:
            if id < first:
                return self.entries_added - self.log.length
            if id == first:
                return self.entries_added - self.log.length + 1
        return UNKNOWN
