"""All keys of a store: databases, short names of streams and groups, who waits, what is delayed.

Keyspace ── databases[0..15] ──▶ Database ── values ──▶ Stream | bytes | dict
    streams[sid], groups[gid]: the short names that facts use
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from headwater.engine.database import Database
from headwater.engine.facts import ALL_DATABASES, FactBuffer
from headwater.engine.group import ConsumerGroup
from headwater.engine.stream import Stream
from headwater.limits import DATABASES


class Keyspace:
    """The whole state of a store.

    >>> keyspace = Keyspace()
    >>> stream = keyspace.databases[0].create_stream(b"orders", keyspace.next_sid)
    >>> keyspace.databases[0].lookup(b"orders", 0) is stream
    True
    """

    def __init__(self, facts: FactBuffer | None = None) -> None:
        self.facts = facts if facts is not None else FactBuffer()
        self.databases = [Database(self, index) for index in range(DATABASES)]
        self.streams: dict[int, Stream] = {}
        self.groups: dict[int, ConsumerGroup] = {}
        self.next_sid = 1
        self.next_gid = 1
        self.unseen: dict[tuple[int, int], None] = {}
        """(gid, cid) of consumers whose seen time is newer than its last fact."""
        self.delaying: dict[int, ConsumerGroup] = {}
        """Groups that have delayed entries, by gid."""
        self.due_notes: list[tuple[int, int]] = []
        """Heap of (due, gid); a note that is not its group's earliest any more is stale."""
        self.signalled: dict[tuple[int, bytes], None] = {}
        """(database, key) that waiters have to look at again, in order of their first signal."""
        self.notified = 0
        """The classes of keyspace events that somebody wants, as bits (notify-keyspace-events)."""
        self.events: list[tuple[int, bytes, bytes]] = []
        """(database, event, key) of keyspace events since the node last published them."""
        self.dirty = 0
        """Changes by Redis's count (INFO rdb_changes_since_last_save)."""
        self.expiry_notes: list[tuple[int, int, bytes]] = []
        """Heap of (at, database, key); an entry that the database no longer confirms is stale."""

    # --- reading --------------------------------------------------------------------------------

    def next_expiry(self) -> int | None:
        """The earliest time at which a key ends, Unix ms."""
        heap = self.expiry_notes
        while heap:
            at, db, key = heap[0]
            if self.databases[db].expiries.get(key) == at:
                return at
            heappop(heap)
        return None

    def expired(self, now_ms: int) -> list[tuple[Database, bytes]]:
        """Keys whose time has come and that were not deleted yet."""
        return [
            (database, key)
            for database in self.databases
            for key, at in database.expiries.items()
            if at <= now_ms
        ]

    def next_due(self) -> int | None:
        """The earliest due time of any delayed entry, Unix ms."""
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
        for cid in group.by_cid:
            self.unseen.pop((group.gid, cid), None)

    def note_due(self, due_ms: int, gid: int) -> None:
        """Remember when a group's earliest delay ends; every note but the latest is stale."""
        heappush(self.due_notes, (due_ms, gid))

    def note_expiry(self, at_ms: int, db: int, key: bytes) -> None:
        """Remember when to look; stale notes are swept when they outnumber the true ones."""
        heappush(self.expiry_notes, (at_ms, db, key))
        true = sum(len(database.expiries) for database in self.databases)
        if len(self.expiry_notes) > 2 * true + 64:
            self.expiry_notes = [
                (at, database.index, name)
                for database in self.databases
                for name, at in database.expiries.items()
            ]
            heapify(self.expiry_notes)

    # --- mutators -------------------------------------------------------------------------------

    def flush_all(self) -> None:
        """Empty every database, as one fact."""
        for database in self.databases:
            database.clear()
        self.facts.flushed(ALL_DATABASES)
