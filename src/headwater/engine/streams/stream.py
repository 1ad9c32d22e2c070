"""A stream: its entries with their counters, its groups, its producers.

Rule 1. An empty stream still exists. It is removed only with its key.
Rule 2. history.py has the rules of its counters.

Methods from `append` to `destroy_group` are mutators: they make no choices, and write one fact for each change.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from headwater.common.limits import MAX_ENTRIES_COUNT, SMALL_GARBAGE
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.redis_nodes.nodes import NodeIndex
from headwater.engine.shared.history import StreamHistory
from headwater.engine.shared.keyspace_state import KeyspaceState
from headwater.engine.shared.signals import KeySignals
from headwater.engine.streams.idempotency import Idempotency
from headwater.engine.tier.storing import StoredRecord, apply_record, encode_record

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import offset_at, word_at


class StoredStream(StreamHistory):
    """One stream. Facts refer to it by ``sid``. ``db`` and ``key`` are its current place."""

    def __init__(self, keyspace: KeyspaceState, db: KeySignals, key: bytes, sid: int) -> None:
        StreamHistory.__init__(self, keyspace, db, key, sid)
        self.nodes = NodeIndex(keyspace.weighing)
        self.groups: dict[bytes, ConsumerGroup] = {}
        self.used_ms = 0
        """Time at which a command last used the stream, in steady ms. Not a fact: 0 after a restart."""
        self.idempotency = Idempotency(keyspace, sid)

    # --- reading --------------------------------------------------------------------------------

    def sorted_groups(self) -> list[ConsumerGroup]:
        """Return the groups in byte order of their names, the order of Redis."""
        return [self.groups[name] for name in sorted(self.groups)]

    def referenced(self, id: tuple[int, int]) -> bool:
        """Return whether a group has not read ``id`` yet or has it pending. If so, XDELEX ACKED and XACKDEL ACKED keep
        the entry."""
        return any(
            group.last_id < id or group.pel.find(id[0], id[1]) >= 0
            for group in self.groups.values()
        )

    # --- mutators -------------------------------------------------------------------------------

    def expect_entry(self) -> None:
        """Prefetch the memory that the next `append` will write. This memory is not cached if many streams are
        written in turn. Prefetching loads its parts in parallel rather than one after the other."""
        if self.keyspace.near_sid != self.sid:
            self.keyspace.near_sid = self.sid
            self.nodes.prefetch()
            self.log.prefetch()

    def append(self, ms: int, seq: int, wire: bytes, pairs: int, opens_node: bool) -> None:
        """Append the entry ``ms-seq``, which must be above ``last_id``. ``wire`` is its fields in RESP."""
        self.append_part(ms, seq, bytearray(wire), 0, len(wire), pairs, opens_node)

    def append_part(
        self,
        ms: int,
        seq: int,
        wire: bytearray,
        start: int,
        end: int,
        pairs: int,
        opens_node: bool,
    ) -> None:
        """Append an entry whose fields are the bytes of ``wire`` from ``start`` to ``end``-1, part of a request."""
        assert ms > self.last_ms or (ms == self.last_ms and seq > self.last_seq)
        self.log.append(ms, seq, wire, start, end, pairs)
        self.nodes.add(ms, seq, wire, start, end, opens_node)
        self.last_ms = ms
        self.last_seq = seq
        if self.entries_added != MAX_ENTRIES_COUNT:
            self.entries_added += 1
        facts = self.keyspace.facts
        if not facts.muted:
            facts.appended(self.sid, ms, seq, opens_node, pairs, wire, start, end)
        self.db.signal(self.key)

    def append_all(
        self,
        ids: array[int],
        wire: bytearray,
        ends: array[int],
        pairs: array[int],
        first: int,
        end: int,
    ) -> None:
        """Append the entries number ``first`` to ``end``-1, whose fields follow one another in ``wire`` as
        ``ends`` and ``pairs`` specify. Entry number 0 opens a node."""
        at = word_at(ends, first - 1) if first else 0
        for number in range(first, end):
            behind = word_at(ends, number)
            ms, seq = word_at(ids, 2 * number), word_at(ids, 2 * number + 1)
            self.append_part(ms, seq, wire, at, behind, offset_at(pairs, number), not number)
            at = behind

    def trim_through(self, ms: int, seq: int) -> None:
        """Remove the entries up to ``ms-seq``. Pending entries of groups stay."""
        self.nodes.trim_through(ms, seq, self.log.trim_through(ms, seq))
        self.max_trimmed_id = max(self.max_trimmed_id, (ms, seq))
        self.keyspace.facts.trimmed(self.sid, ms, seq)

    def delete(self, ids: Sequence[tuple[int, int]], *, marks: bool, stays: bool = False) -> None:
        """Remove these live entries. With ``marks``, raise ``max_deleted_id``. Trimming calls this without
        ``marks``, and only for entries that no group has pending. With ``stays``, the node of the last entry
        stays even if it is empty (nodes.py, rule 2)."""
        for ms, seq in ids:
            found = self.log.delete(ms, seq)
            assert found, f"{ms}-{seq} does not exist"
            self.nodes.drop(ms, seq, stays=stays and (ms, seq) == ids[-1])
        if marks:
            self.max_deleted_id = max(self.max_deleted_id, *ids)
            for group in self.groups.values():
                group.mark_gone(ids)
        self.keyspace.facts.deleted(self.sid, marks, stays, ids)

    def set_id(
        self, last_id: tuple[int, int], entries_added: int, max_deleted_id: tuple[int, int]
    ) -> None:
        """Set all three counters to absolute values (XSETID). If ``entries_read`` of a group exceeds
        ``entries_added``, it is estimated again from the group's position."""
        self.last_ms, self.last_seq = last_id
        self.entries_added = entries_added
        self.max_deleted_id = max_deleted_id
        for group in self.groups.values():
            if group.entries_read > entries_added:
                group.entries_read = self.entries_read_at(group.last_id)
        self.keyspace.facts.stream_set_id(self.sid, last_id, entries_added, max_deleted_id)

    def store(self, record: StoredRecord) -> str | None:
        """Note that entries are in a blob (storing.py). Return None, or the reason why they stay in memory."""
        problem = apply_record(self.log, record)
        self.note_stored(record)
        return problem

    def note_stored(self, record: StoredRecord) -> None:
        """Write the fact of a block of this stream that has just become stored, or was moved."""
        self.keyspace.facts.stored(self.sid, encode_record(record))

    def create_group(
        self, name: bytes, gid: int, ms: int, seq: int, entries_read: int
    ) -> ConsumerGroup:
        """Create a group that has read up to ``ms-seq``."""
        assert name not in self.groups
        group = ConsumerGroup(self, name, gid, (ms, seq), entries_read)
        self.groups[name] = group
        group.enter()
        self.keyspace.facts.group_created(self.sid, gid, ms, seq, entries_read, name)
        return group

    def destroy_group(self, name: bytes) -> None:
        """Remove a group with its consumers and pending entries. Signals blocked readers."""
        group = self.groups.pop(name)
        group.leave()
        self.keyspace.facts.group_destroyed(group.gid)
        self.db.signal(self.key)

    # --- parts of mutators ----------------------------------------------------------------------

    def enter(self) -> None:
        """Register the stream with the keyspace."""
        keyspace = self.keyspace
        keyspace.streams[self.sid] = self
        keyspace.next_sid = max(keyspace.next_sid, self.sid + 1)

    def leave(self) -> None:
        """Remove the stream and its groups from the keyspace."""
        del self.keyspace.streams[self.sid]
        for group in self.groups.values():
            group.leave()
        size = self.length + self.idempotency.tracked + len(self.groups)
        self.keyspace.discard(self, size)
        if size <= SMALL_GARBAGE:
            # Streams and groups refer to each other; otherwise they would wait for the cyclic collector.
            self.groups = {}
