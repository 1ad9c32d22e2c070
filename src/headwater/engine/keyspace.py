"""All keys of a store: databases, values, expiry, who waits for what and who watches what.

    Keyspace ── databases[0..15] ──▶ Database ── values ──▶ Stream | bytes | dict
        streams[sid], groups[gid]: the short names that facts use

Rule 1. A key with a time is gone when the time has come, whether or not it was deleted yet: `lookup`
        never returns it, and the node deletes it soon after (`expired`), which is a fact.
Rule 2. Whatever may end a wait signals the key; the waiting command is run again and judges itself.
Rule 3. A mutator that puts a value over another drops the old one wholly, and its expiry with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from headwater.engine.facts import ALL_DATABASES, FactBuffer
from headwater.engine.group import ConsumerGroup
from headwater.engine.key_order import KeyOrder
from headwater.engine.stream import Stream
from headwater.limits import DATABASES

Value = Stream | bytes | dict[bytes, bytes]

NO_EXPIRY = -1


class WatchToken:
    """One client's WATCH: ``broken`` once a watched key was modified."""

    def __init__(self) -> None:
        self.broken = False
        self.keys: list[tuple[Database, bytes]] = []


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
        self.signalled: dict[tuple[int, bytes], None] = {}
        """(database, key) that waiters have to look at again, in order of their first signal."""
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
        times = [due for group in self.delaying.values() if (due := group.next_due()) is not None]
        return min(times, default=None)

    # --- parts of mutators ----------------------------------------------------------------------

    def adopt_group(self, group: ConsumerGroup) -> None:
        self.groups[group.gid] = group
        self.next_gid = max(self.next_gid, group.gid + 1)

    def drop_group(self, group: ConsumerGroup) -> None:
        del self.groups[group.gid]
        self.delaying.pop(group.gid, None)
        for cid in group.by_cid:
            self.unseen.pop((group.gid, cid), None)

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


class Database:
    """One of the numbered databases of a keyspace."""

    def __init__(self, keyspace: Keyspace, index: int) -> None:
        self.keyspace = keyspace
        self.index = index
        self.values: dict[bytes, Value] = {}
        self.order = KeyOrder(self.values)
        self.expiries: dict[bytes, int] = {}
        self.waited: dict[bytes, int] = {}
        """How many blocked clients wait for a key; kept by whoever blocks them."""
        self.watched: dict[bytes, list[WatchToken]] = {}

    # --- reading --------------------------------------------------------------------------------

    def lookup(self, key: bytes, now_ms: int) -> Value | None:
        """The value of ``key``; None if there is none or its time has come."""
        value = self.values.get(key)
        if value is not None and self.expiries and self._over(key, now_ms):
            return None
        return value

    def keys(self, now_ms: int) -> list[bytes]:
        """All keys that are there, in the order in which they came."""
        if not self.expiries:
            return list(self.values)
        return [key for key in self.values if not self._over(key, now_ms)]

    def _over(self, key: bytes, now_ms: int) -> bool:
        return self.expiries.get(key, now_ms + 1) <= now_ms

    # --- who waits, who watches -----------------------------------------------------------------

    def signal(self, key: bytes) -> None:
        """Something happened to ``key`` that may end a wait."""
        if self.waited and key in self.waited:
            self.keyspace.signalled[self.index, key] = None

    def touch(self, key: bytes) -> None:
        """``key`` was modified in the sense of WATCH."""
        if self.watched:
            for token in self.watched.get(key, ()):
                token.broken = True

    def watch(self, key: bytes, token: WatchToken) -> None:
        tokens = self.watched.setdefault(key, [])
        if token not in tokens:
            tokens.append(token)
            token.keys.append((self, key))

    @staticmethod
    def unwatch(token: WatchToken) -> None:
        """Forget all that ``token`` watches."""
        for database, key in token.keys:
            tokens = database.watched[key]
            tokens.remove(token)
            if not tokens:
                del database.watched[key]
        token.keys.clear()
        token.broken = False

    # --- mutators -------------------------------------------------------------------------------

    def create_stream(self, key: bytes, sid: int) -> Stream:
        """An empty stream at ``key``, over whatever was there."""
        self._drop(key)
        stream = Stream(self.keyspace, self, key, sid)
        self._place(key, stream)
        self.keyspace.streams[sid] = stream
        self.keyspace.next_sid = max(self.keyspace.next_sid, sid + 1)
        self.keyspace.facts.stream_created(self.index, sid, key)
        self.signal(key)
        return stream

    def set_string(self, key: bytes, value: bytes) -> None:
        """``value`` at ``key``, over whatever was there."""
        self._drop(key)
        self._place(key, value)
        self.keyspace.facts.string_set(self.index, key, value)
        self.signal(key)

    def set_fields(self, key: bytes, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Set fields of the hash at ``key``; a hash is made where there is none."""
        value = self.values.get(key)
        if not isinstance(value, dict):
            self._drop(key)
            value = {}
            self._place(key, value)
        value.update(pairs)
        self.keyspace.facts.hash_set(self.index, key, pairs)
        self.signal(key)

    def delete_fields(self, key: bytes, fields: Sequence[bytes]) -> None:
        """Remove fields of the hash at ``key``; a hash without fields goes."""
        value = self.values[key]
        assert isinstance(value, dict)
        for field in fields:
            value.pop(field, None)
        if not value:
            self._drop(key)
        self.keyspace.facts.hash_deleted(self.index, key, fields)

    def delete(self, key: bytes) -> None:
        """Remove ``key``, expired or not."""
        self._drop(key)
        self.keyspace.facts.key_deleted(self.index, key)

    def set_expiry(self, key: bytes, at_ms: int) -> None:
        """The key ends at ``at_ms``; `NO_EXPIRY` lets it live."""
        if at_ms == NO_EXPIRY:
            self.expiries.pop(key, None)
        else:
            self.expiries[key] = at_ms
            self.keyspace.note_expiry(at_ms, self.index, key)
        self.keyspace.facts.expiry_set(self.index, key, at_ms)

    def flush(self) -> None:
        """Empty this database."""
        self.clear()
        self.keyspace.facts.flushed(self.index)

    def clear(self) -> None:
        """Drop every key; part of `flush` and `Keyspace.flush_all`."""
        for key in list(self.values):
            self._drop(key)

    def _place(self, key: bytes, value: Value) -> None:
        self.values[key] = value
        self.order.add(key, len(self.values))

    def _drop(self, key: bytes) -> None:
        value = self.values.pop(key, None)
        if value is None:
            return
        self.expiries.pop(key, None)
        if isinstance(value, Stream):
            del self.keyspace.streams[value.sid]
            for group in value.groups.values():
                self.keyspace.drop_group(group)
        self.signal(key)
        self.touch(key)
