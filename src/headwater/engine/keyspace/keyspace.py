"""All keys of a store: databases, the numbers of streams and groups, signals, delayed entries.

Keyspace ── databases[0..15] ──▶ Database ── values ──▶ Stream | bytes | …
    streams[sid], groups[gid]: the numbers by which facts refer to streams and groups
"""

from __future__ import annotations

from heapq import heappop

from headwater.common.limits import DATABASES, GROWN_TEXTS, SMALL_GARBAGE
from headwater.engine.bodies.blobs import BlobPlace
from headwater.engine.entries.entry_block import EntryBlock
from headwater.engine.facts.facts import ALL_DATABASES, FactBuffer
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.keyspace.database import Database
from headwater.engine.shared.keyspace_state import KeyspaceState
from headwater.engine.streams.idempotency import Deadlines
from headwater.engine.streams.stream import StoredStream
from headwater.engine.tier.sealing import CompressionJob
from headwater.engine.tier.storing import record_of

EMBEDDED_BYTES = 44
"""Maximum length of a string that Redis stores as embstr."""


class Keyspace(KeyspaceState):
    """The whole state of a store.

    >>> keyspace = Keyspace()
    >>> stream = keyspace.databases[0].create_stream(b"orders", keyspace.next_sid)
    >>> keyspace.databases[0].lookup(b"orders", 0) is stream
    True
    """

    def __init__(self, facts: FactBuffer | None = None) -> None:
        super().__init__(facts if facts is not None else FactBuffer())
        self.streams: dict[int, StoredStream] = {}
        self.groups: dict[int, ConsumerGroup] = {}
        self.delaying: dict[int, ConsumerGroup] = {}
        self.expiring: dict[Database, None] = {}
        self.iid_deadlines: Deadlines = Deadlines(self)
        """Times at which the oldest iid of each producer expires."""
        self.databases = [Database(self, index) for index in range(DATABASES)]
        self.expired_count = 0
        """Number of keys that were deleted because they had expired."""
        self.hits = 0
        self.misses = 0
        """Numbers of keys that commands looked up for reading: existing (``hits``) and missing ones."""
        self.dirty = 0
        """Number of changes as Redis counts them (INFO rdb_changes_since_last_save)."""
        self.opened_ms = 0
        """Steady time at which the store was opened, for the idle times of keys that were not used since then."""
        self.freed_lazily = 0
        """Number of values that became garbage."""
        self.grown: dict[int, bytes] = {}
        """The last short strings that APPEND or SETRANGE made, by identity: their encoding is raw."""

    # --- reading --------------------------------------------------------------------------------

    def next_event_ms(self, expiries: bool) -> int | None:
        """Return the earliest time, in steady ms, at which a delay ends, an iid expires or (with
        ``expiries``) a key expires; None if none of these will happen. Skips empty collections."""
        if not (self.due_notes or (self.expiring and expiries) or self.iid_deadlines.notes):
            return None
        times = []
        if self.due_notes:
            times.append(self.next_due())
        if self.expiring and expiries:
            times.append(self.next_expiry())
        if self.iid_deadlines.notes:
            times.append(self.iid_deadlines.next_sweep_ms())
        return min([at for at in times if at is not None], default=None)

    def next_expiry(self) -> int | None:
        """Return the earliest time at which a key expires, in steady ms; None if no key has an expiry."""
        first = self.first_expiry()
        return None if first is None else first[0]

    def first_expiry(self) -> tuple[int, Database, bytes] | None:
        """Return the key that expires first, as ``(at_ms, database, key)``; None if no key has an expiry."""
        earliest: tuple[int, Database, bytes] | None = None
        for database in tuple(self.expiring):
            first = database.first_expiry()
            if first is None:
                del self.expiring[database]
            elif earliest is None or first[0] < earliest[0]:
                earliest = (first[0], database, first[1])
        return earliest

    def next_due(self) -> int | None:
        """Return the earliest due time of any delayed entry, in steady ms; None if no entry is delayed."""
        notes = self.due_notes
        while notes:
            due, gid = notes[0]
            group = self.delaying.get(gid)
            if group is not None and group.next_due() == due:
                return due
            heappop(notes)
        return None

    def next_due_group(self) -> ConsumerGroup:
        """Return the group whose entry is due first. `next_due` must just have returned a time."""
        return self.delaying[self.due_notes[0][1]]

    # --- mutators -------------------------------------------------------------------------------

    def flush(self, index: int) -> None:
        """Delete all keys of one database."""
        self.empty(self.databases[index])
        self.facts.flushed(index)

    def flush_all(self) -> None:
        """Delete all keys of all databases, as one fact."""
        for database in self.databases:
            self.empty(database)
        self.facts.flushed(ALL_DATABASES)

    def swap(self, first: int, second: int) -> None:
        """Swap the keys of two different databases."""
        assert first != second
        one, other = self.databases[first], self.databases[second]
        one.exchange(other)
        for stream in self.streams.values():
            if stream.db is one:
                stream.db = other
            elif stream.db is other:
                stream.db = one
        self.facts.databases_swapped(first, second)

    def dismantle(self) -> None:
        """Break the reference cycles of an empty keyspace that is not used any more."""
        self.databases.clear()
        self.iid_deadlines = Deadlines(KeyspaceState(self.facts))  # of another keyspace: no cycle

    def store(
        self,
        job: CompressionJob,
        codec: str,
        wire: bytes | None,
        place: tuple[int, int, int, int] | None,
    ) -> bool:
        """Complete a job (`Sealing.settle`). If the block is stored now, its fact names a stream that has it.
        Return whether a fact was written. No fact is written if the block was compacted meanwhile, or if no stream
        has it any more: then it is not recovered, but a reply that is still being written may read it."""
        block = job.block
        holder = self._holder(block)
        if not self.sealing.settle(job, codec, wire, place) or holder is None:
            return False
        holder.note_stored(record_of(block))
        return True

    def move(self, sid: int, block: EntryBlock, old: BlobPlace, new: BlobPlace) -> bool:
        """Note that the blob of a block of stream number ``sid``, which was at ``old``, has been copied to
        ``new``. Return whether a fact was written; False if the stream does not have the block any more."""
        stream, packed = self.streams.get(sid), block.packed
        if stream is None or packed is None or packed.blob is None or packed.blob.place() != old:
            return False
        if not stream.log.holds(block):
            return False
        packed.blob.move(new)
        stream.note_stored(record_of(block, moved=True))
        return True

    def _holder(self, block: EntryBlock) -> StoredStream | None:
        """Return a stream that has ``block``: the one it was added to, or after COPY another one; else None."""
        origin = self.streams.get(block.origin)
        if origin is not None and origin.log.holds(block):
            return origin
        if block.shared:
            for stream in self.streams.values():
                if stream.log.holds(block):
                    return stream
        return None

    def grow(self, text: bytes) -> None:
        """Remember a short string that a change made, unless it has at most one byte: all keys share such strings."""
        if 1 < len(text) <= EMBEDDED_BYTES:
            if len(self.grown) == GROWN_TEXTS:
                del self.grown[next(iter(self.grown))]
            self.grown[id(text)] = text

    # --- parts of mutators ----------------------------------------------------------------------

    def empty(self, database: Database) -> None:
        """Delete every key of a database without writing a fact."""
        self._drop_streams(database)
        database.clear()

    def discard(self, value: object, size: int) -> None:
        """Discard an unreachable value of ``size`` parts: large ones become garbage, others are freed."""
        if size > SMALL_GARBAGE:
            self.garbage.append(value)
            self.freed_lazily += 1

    def _drop_streams(self, database: Database) -> None:
        """Remove the streams of a database from the keyspace, in time proportional to the number of deleted or
        of remaining keys, whichever is less. The database still has its values."""
        others = [other for other in self.databases if other is not database]
        if len(database.values) < sum(len(other.values) for other in others):
            for value in database.values.values():
                if isinstance(value, StoredStream):
                    value.leave()
            return
        self.streams = {
            value.sid: value
            for other in others
            for value in other.values.values()
            if isinstance(value, StoredStream)
        }
        self.groups = {
            group.gid: group for stream in self.streams.values() for group in stream.groups.values()
        }
        self.delaying = {gid: one for gid, one in self.delaying.items() if gid in self.groups}
        self.unseen = {gid: cids for gid, cids in self.unseen.items() if gid in self.groups}
