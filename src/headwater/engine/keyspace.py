"""All keys of a store: databases, short names of streams and groups, who waits, what is delayed.

Keyspace ── databases[0..15] ──▶ Database ── values ──▶ Stream | bytes | …
    streams[sid], groups[gid]: the short names that facts use
"""

from __future__ import annotations

from heapq import heappop, heappush

from headwater.engine.database import Database, Place
from headwater.engine.facts import ALL_DATABASES, FactBuffer
from headwater.engine.group import ConsumerGroup
from headwater.engine.idempotency import Deadlines
from headwater.engine.nodes import Weighing
from headwater.engine.sealing import Sealing
from headwater.engine.stream import Stream
from headwater.limits import DATABASES, SMALL_GARBAGE


class Keyspace:
    """The whole state of a store.

    >>> keyspace = Keyspace()
    >>> stream = keyspace.databases[0].create_stream(b"orders", keyspace.next_sid)
    >>> keyspace.databases[0].lookup(b"orders", 0) is stream
    True
    """

    def __init__(self, facts: FactBuffer | None = None) -> None:
        self.facts = facts if facts is not None else FactBuffer()
        self.sealing = Sealing()
        """What of all streams stays as it was written, and what is compressed."""
        self.weighing = Weighing()
        """What nodes take of the entry that is being added."""
        self.databases = [Database(self, index) for index in range(DATABASES)]
        self.streams: dict[int, Stream] = {}
        self.groups: dict[int, ConsumerGroup] = {}
        self.next_sid = 1
        self.next_gid = 1
        self.near_sid = 0
        """The stream that was expected to grow last (`Stream.expect_entry`): the processor holds it."""
        self.unseen: dict[int, dict[int, None]] = {}
        """gid → cids of consumers whose seen time is newer than its last fact."""
        self.delaying: dict[int, ConsumerGroup] = {}
        """Groups that have delayed entries, by gid."""
        self.due_notes: list[tuple[int, int]] = []
        """Heap of (due, gid); a note that is not its group's earliest any more is stale."""
        self.signalled: dict[Place, None] = {}
        """Keys that waiters have to look at again, in order of their first signal."""
        self.touched: dict[Place, None] = {}
        """Watched keys that were modified."""
        self.iid_deadlines = Deadlines(self)
        """When which producer's oldest iid may be forgotten."""
        self.notified = 0
        """The classes of keyspace events that somebody wants, as bits (notify-keyspace-events)."""
        self.events: list[tuple[int, bytes, bytes]] = []
        """(database, event, key) of keyspace events since the node last published them."""
        self.expired_count = 0
        """Keys that were deleted because their time had come."""
        self.hits = 0
        self.misses = 0
        """Keys that commands looked up for reading, those that were there and those that were not."""
        self.dirty = 0
        """Changes by Redis's count (INFO rdb_changes_since_last_save)."""
        self.expiring: dict[Database, None] = {}
        """The databases in which a key may have a time to end."""
        self.opened_ms = 0
        """When the store was opened, for the idle times of keys that were not used since."""
        self.garbage: list[object] = []
        """What was let go and is large: streams, groups, lists, sets, hashes, and all values of a
        flushed database (a dict of those). Nothing refers to it any more but each other; whoever
        takes it apart does so in slices."""

    # --- reading --------------------------------------------------------------------------------

    def next_event_ms(self, expiries: bool) -> int | None:
        """The earliest time at which something here is over, steady ms: a delay, an iid, with
        ``expiries`` a key; None when nothing is to come. What is empty is not asked."""
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
        """The earliest time at which a key ends, steady ms."""
        first = self.first_expiry()
        return None if first is None else first[0]

    def first_expiry(self) -> tuple[int, Database, bytes] | None:
        """The key that ends first: when, and where it is."""
        earliest: tuple[int, Database, bytes] | None = None
        for database in tuple(self.expiring):
            first = database.first_expiry()
            if first is None:
                del self.expiring[database]
            elif earliest is None or first[0] < earliest[0]:
                earliest = (first[0], database, first[1])
        return earliest

    def next_due(self) -> int | None:
        """The earliest due time of any delayed entry, steady ms."""
        notes = self.due_notes
        while notes:
            due, gid = notes[0]
            group = self.delaying.get(gid)
            if group is not None and group.next_due() == due:
                return due
            heappop(notes)
        return None

    def next_due_group(self) -> ConsumerGroup:
        """The group of `next_due`, which is not None."""
        return self.delaying[self.due_notes[0][1]]

    # --- parts of mutators ----------------------------------------------------------------------

    def adopt_group(self, group: ConsumerGroup) -> None:
        self.groups[group.gid] = group
        self.next_gid = max(self.next_gid, group.gid + 1)

    def drop_group(self, group: ConsumerGroup) -> None:
        del self.groups[group.gid]
        self.delaying.pop(group.gid, None)
        self.unseen.pop(group.gid, None)
        self.discard(group, len(group.pel) + len(group.by_cid))

    def note_seen(self, gid: int, cid: int) -> None:
        """A consumer was seen; its fact is still to be written."""
        self.unseen.setdefault(gid, {})[cid] = None

    def forget_seen(self, gid: int, cid: int) -> None:
        """A fact says when a consumer was seen, or it is gone."""
        cids = self.unseen.get(gid)
        if cids is not None:
            cids.pop(cid, None)
            if not cids:
                del self.unseen[gid]

    def adopt_stream(self, stream: Stream) -> None:
        self.streams[stream.sid] = stream
        self.next_sid = max(self.next_sid, stream.sid + 1)

    def drop_stream(self, stream: Stream) -> None:
        del self.streams[stream.sid]
        for group in stream.groups.values():
            self.drop_group(group)
        size = stream.length + stream.idempotency.tracked + len(stream.groups)
        self.discard(stream, size)
        if size <= SMALL_GARBAGE:
            # Streams and groups refer to each other; without this each waits for the cyclic collector.
            stream.groups = {}

    def drop_streams(self, database: Database) -> None:
        """Forget the streams of a database, at the cost of what goes or of what stays, whichever is
        less; the database still has its values."""
        others = [other for other in self.databases if other is not database]
        if len(database.values) < sum(len(other.values) for other in others):
            for value in database.values.values():
                if isinstance(value, Stream):
                    self.drop_stream(value)
            return
        self.streams = {
            value.sid: value
            for other in others
            for value in other.values.values()
            if isinstance(value, Stream)
        }
        self.groups = {
            group.gid: group for stream in self.streams.values() for group in stream.groups.values()
        }
        self.delaying = {gid: one for gid, one in self.delaying.items() if gid in self.groups}
        self.unseen = {gid: cids for gid, cids in self.unseen.items() if gid in self.groups}

    def discard(self, value: object, size: int) -> None:
        """Let go of a value of so many parts, which is unreachable but for us."""
        if size > SMALL_GARBAGE:
            self.garbage.append(value)

    def note_due(self, due_ms: int, gid: int) -> None:
        """Remember when a group's earliest delay ends; every note but the latest is stale."""
        heappush(self.due_notes, (due_ms, gid))

    # --- mutators -------------------------------------------------------------------------------

    def flush_all(self) -> None:
        """Empty every database, as one fact."""
        for database in self.databases:
            database.clear()
        self.facts.flushed(ALL_DATABASES)

    def swap(self, first: int, second: int) -> None:
        """Exchange the keys of two databases, which are not the same."""
        assert first != second
        self.databases[first].exchange(self.databases[second])
        self.facts.databases_swapped(first, second)
