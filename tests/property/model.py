"""A simple and slow model of a stream store: dicts and lists, one method for each command.

It follows the command pages and docs/guide/streams.md and shares nothing with the engine but the types of
replies. This module has streams and their entries, `model_groups` what groups do with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.testing.replies import Failure, Nil, Reply, Simple
from tests.property.model_idempotency import IID, Producers

ID = tuple[int, int]
Fields = list[bytes]

UNKNOWN = -1
NEVER = -1
MOST = 2**63 - 1
LEAST, GREATEST = (0, 0), (2**64 - 1, 2**64 - 1)
OK = Simple(b"OK")


def spell(entry_id: ID) -> bytes:
    return b"%d-%d" % entry_id


class Refused(Exception):
    """The command is refused with this text. Nothing has changed."""


@dataclass
class Pending:
    """One pending entry. Without ``owner`` and ``due`` it is released; with ``due`` it is delayed."""

    owner: bytes | None
    time: int
    count: int
    due: int | None = None


@dataclass
class Consumer:
    seen: int
    active: int = NEVER


@dataclass
class Group:
    last: ID
    read: int
    consumers: dict[bytes, Consumer] = field(default_factory=dict)
    pending: dict[ID, Pending] = field(default_factory=dict)
    order: list[ID] = field(default_factory=list)
    """Owned ids, oldest delivery first; of the same time, in the order in which they got it."""
    released: list[ID] = field(default_factory=list)
    """Released ids in the order of their release."""

    def drop(self, entry_id: ID) -> None:
        del self.pending[entry_id]
        for listed in (self.order, self.released):
            if entry_id in listed:
                listed.remove(entry_id)

    def _put(self, entry_id: ID, record: Pending) -> None:
        if entry_id in self.pending:
            self.drop(entry_id)
        self.pending[entry_id] = record

    def own(self, entry_id: ID, owner: bytes, time: int, count: int) -> None:
        self._put(entry_id, Pending(owner, time, count))
        place = sum(self.pending[other].time <= time for other in self.order)
        self.order.insert(place, entry_id)

    def release(self, entry_id: ID, count: int) -> None:
        self._put(entry_id, Pending(None, 0, count))
        self.released.append(entry_id)

    def delay(self, entry_id: ID, due: int, count: int) -> None:
        self._put(entry_id, Pending(None, due, count, due))

    def owned_by(self, name: bytes) -> list[ID]:
        return sorted(at for at, record in self.pending.items() if record.owner == name)

    def come_due(self, now: int) -> None:
        due = sorted(
            (record.due, at)
            for at, record in self.pending.items()
            if record.due is not None and record.due <= now
        )
        for _, entry_id in due:
            self.release(entry_id, self.pending[entry_id].count)


@dataclass
class Stream:
    entries: dict[ID, Fields] = field(default_factory=dict)
    last: ID = LEAST
    deleted: ID = LEAST
    added: int = 0
    groups: dict[bytes, Group] = field(default_factory=dict)
    producers: Producers = field(default_factory=Producers)
    nodes: list[list[ID]] = field(default_factory=list)
    """Ids that were added to each of Redis's nodes, live or not."""

    @property
    def first(self) -> ID:
        return min(self.entries, default=LEAST)

    def between(self, start: ID, end: ID) -> list[ID]:
        return [at for at in sorted(self.entries) if start <= at <= end]

    def after(self, last: ID, count: int) -> list[ID]:
        return limited([at for at in sorted(self.entries) if at > last], count)

    def remove(self, entry_id: ID, *, stays: bool = False) -> None:
        """``stays``: the node stays even if it is empty."""
        del self.entries[entry_id]
        node = next(node for node in self.nodes if entry_id in node)
        if not stays and not any(at in self.entries for at in node):
            self.nodes.remove(node)

    def referenced(self, entry_id: ID) -> bool:
        return any(g.last < entry_id or entry_id in g.pending for g in self.groups.values())

    def hole_ahead(self, last: ID) -> bool:
        return bool(self.entries) and self.deleted != LEAST and last <= self.deleted

    def read_at(self, entry_id: ID) -> int:
        """Return how many entries were added up to an id, if that can be determined."""
        if self.added == 0:
            return 0
        if not self.entries and entry_id <= self.last:
            return self.added
        if entry_id != LEAST and entry_id < self.deleted:
            return UNKNOWN
        if entry_id >= self.last:
            return self.added if entry_id == self.last else UNKNOWN
        if (self.deleted == LEAST or self.deleted < self.first) and entry_id <= self.first:
            return self.added - len(self.entries) + (entry_id == self.first)
        return UNKNOWN

    def lag(self, group: Group) -> Reply:
        if self.added == 0 or not self.entries:
            return 0
        if group.last < self.first and self.deleted < self.first:
            return len(self.entries)
        if group.read != UNKNOWN and not self.hole_ahead(group.last):
            return self.added - group.read
        read = self.read_at(group.last)
        return Nil.BULK if read == UNKNOWN else self.added - read


def limited(found: list[ID], count: int) -> list[ID]:
    """Return the first ``count`` ids; 0 means no limit."""
    return found[:count] if count else found


@dataclass
class Trim:
    """``threshold`` is a length or an id."""

    threshold: int | ID
    approximate: bool = False
    limit: int = 0
    mode: bytes = b"KEEPREF"


class EntriesModel:
    """Streams and the commands on their entries. The caller advances ``now``, the time for ages and delays,
    and ``wall``, the time for new ids."""

    def __init__(self, *, now: int, node_max_entries: int) -> None:
        self.now = self.wall = now
        self.node_max_entries = node_max_entries
        self.streams: dict[bytes, Stream] = {}

    def come_due(self) -> None:
        """Release delayed entries that are due and drop expired iids. Called before any command."""
        for stream in self.streams.values():
            stream.producers.sweep(self.now)
            for group in stream.groups.values():
                group.come_due(self.now)

    def _entry(self, key: bytes, entry_id: ID) -> list[Reply]:
        fields: list[Reply] = [*self.streams[key].entries[entry_id]]
        return [spell(entry_id), fields]

    # --- adding ---------------------------------------------------------------------------------

    def new_id(self, last: ID, wanted: ID | None) -> ID:
        """Return the id of a new entry after ``last``: None is ``*``."""
        if wanted is None:
            return (self.wall, 0) if self.wall > last[0] else (last[0], last[1] + 1)
        if wanted == LEAST:
            raise Refused("ERR The ID specified in XADD must be greater than 0-0")
        if wanted <= last:
            raise Refused(
                "ERR The ID specified in XADD is equal or smaller than the target stream top item"
            )
        return wanted

    def xadd(
        self, key: bytes, wanted: ID | None, fields: Fields, trim: Trim | None = None
    ) -> Reply:
        stream = self.streams.get(key, Stream())
        entry_id = self.new_id(stream.last, wanted)
        self.streams[key] = stream
        stream.entries[entry_id] = fields
        stream.last = entry_id
        stream.added += 1
        if not stream.nodes or len(stream.nodes[-1]) >= self.node_max_entries:
            stream.nodes.append([])
        stream.nodes[-1].append(entry_id)
        if trim is not None:
            self._trim(stream, trim)
        return spell(entry_id)

    def xadd_once(
        self, key: bytes, pid: bytes, iid: IID, fields: Fields, trim: Trim | None, *, make: bool
    ) -> Reply:
        """XADD with IDMP or IDMPAUTO. ``make=False`` is NOMKSTREAM."""
        if key not in self.streams and not make:
            return Nil.BULK
        producers = self.streams.get(key, Stream()).producers
        known = producers.find(pid, iid)
        if known is not None:
            producers.duplicates += 1
            return spell(known)
        added = self.xadd(key, None, fields, trim)
        self.streams[key].producers.add(pid, iid, self.streams[key].last, self.now)
        return added

    def xcfgset(self, key: bytes, duration: int | None, maxsize: int | None) -> Reply:
        if key not in self.streams:
            raise Refused("ERR no such key")
        self.streams[key].producers.configure(duration, maxsize)
        return OK

    def xidmprecord(self, key: bytes, pid: bytes, iid: bytes, entry_id: ID) -> Reply:
        if key not in self.streams:
            raise Refused("ERR no such key")
        if entry_id not in self.streams[key].entries:
            raise Refused("ERR No such message in stream")
        producers = self.streams[key].producers
        known = producers.find(pid, iid)
        if known not in (None, entry_id):
            raise Refused("ERR IID already exists for this producer with a different stream ID")
        if known is None:
            newest = entry_id == self.streams[key].last
            since = self.now if newest else min(entry_id[0], self.now)
            producers.add(pid, iid, entry_id, since)
        return OK

    # --- removing -------------------------------------------------------------------------------

    def xdel(self, key: bytes, ids: list[ID]) -> Reply:
        stream = self.streams.get(key)
        if stream is None:
            return 0
        there = [at for at in dict.fromkeys(ids) if at in stream.entries]
        for entry_id in there:
            stream.remove(entry_id)
            stream.deleted = max(stream.deleted, entry_id)
        return len(there)

    def xdelex(self, key: bytes, mode: bytes, ids: list[ID]) -> Reply:
        if key not in self.streams:
            return [-1] * len(ids)
        stream, flags = self.streams[key], list[Reply]()
        for entry_id in ids:
            if mode == b"ACKED" and stream.referenced(entry_id):
                flags.append(2)
                continue
            flags.append(1 if self.xdel(key, [entry_id]) else -1)
            if mode == b"DELREF":
                self.forget(stream, entry_id)
        return flags

    def xtrim(self, key: bytes, trim: Trim) -> Reply:
        stream = self.streams.get(key)
        return 0 if stream is None else self._trim(stream, trim)

    def _trim(self, stream: Stream, trim: Trim) -> int:
        gone, keepref = 0, trim.mode == b"KEEPREF"
        limit = trim.limit if trim.approximate else 0
        blocked = False
        for node in list(stream.nodes):
            live = [at for at in node if at in stream.entries]
            if self._satisfied(stream, trim, None) or (limit and gone + len(live) > limit):
                break
            whole = self._goes_whole(stream, trim, node, live)
            if keepref and trim.approximate and not whole:
                break
            if whole and not live and not blocked:
                stream.nodes.remove(node)
            blocked |= bool(live)
            for entry_id in live:
                if self._satisfied(stream, trim, entry_id):
                    break
                if trim.mode == b"ACKED" and stream.referenced(entry_id):
                    continue
                stream.remove(entry_id, stays=not whole)
                gone += 1
                if trim.mode == b"DELREF":
                    self.forget(stream, entry_id)
            if not whole:
                break
        return gone

    @staticmethod
    def _satisfied(stream: Stream, trim: Trim, entry_id: ID | None) -> bool:
        if isinstance(trim.threshold, int):
            return len(stream.entries) <= trim.threshold
        return entry_id is not None and entry_id >= trim.threshold

    @staticmethod
    def _goes_whole(stream: Stream, trim: Trim, node: list[ID], live: list[ID]) -> bool:
        if isinstance(trim.threshold, int):
            return len(stream.entries) - len(live) >= trim.threshold
        return node[-1] < trim.threshold

    @staticmethod
    def forget(stream: Stream, entry_id: ID) -> None:
        """Remove the entry from every pending list (DELREF)."""
        for group in stream.groups.values():
            if entry_id in group.pending:
                group.drop(entry_id)

    def delete(self, key: bytes) -> Reply:
        return int(self.streams.pop(key, None) is not None)

    # --- reading --------------------------------------------------------------------------------

    def xlen(self, key: bytes) -> Reply:
        return len(self.streams[key].entries) if key in self.streams else 0

    def xrange(self, key: bytes, start: ID, end: ID, count: int | None, *, back: bool) -> Reply:
        if key not in self.streams:
            return []
        if count is not None and count <= 0:
            return Nil.ARRAY
        found = self.streams[key].between(start, end)
        found = (found[::-1] if back else found)[:count]
        return [self._entry(key, at) for at in found]

    def xsplit(self, key: bytes, start: ID, end: ID, parts: int) -> Reply:
        ids = self.streams[key].between(start, end) if key in self.streams else []
        size, larger = divmod(len(ids), parts)
        begins, at = [], 0
        for part in range(min(parts - 1, len(ids))):
            at += size + (part < larger)
            if at < len(ids):
                begins.append(ids[at])
        return [len(ids), [spell(one) for one in dict.fromkeys(begins)]]

    def xcounters(self, keys: list[bytes]) -> Reply:
        return [
            self._counters(self.streams[key]) if key in self.streams else Nil.BULK for key in keys
        ]

    @staticmethod
    def _counters(stream: Stream) -> Reply:
        ids = stream.first, stream.last, stream.deleted
        return [len(stream.entries), *map(spell, ids), stream.added]

    def xsetid(self, key: bytes, last: ID, added: int | None, deleted: ID | None) -> Reply:
        if deleted is not None and last < deleted:
            raise Refused(
                "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"
            )
        stream = self.streams.get(key)
        if stream is None:
            raise Refused("ERR no such key")
        if last < stream.deleted:
            raise Refused(
                "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"
            )
        if stream.entries and last < max(stream.entries):
            raise Refused(
                "ERR The ID specified in XSETID is smaller than the target stream top item"
            )
        if stream.entries and added is not None and added < len(stream.entries):
            raise Refused(
                "ERR The entries_added specified in XSETID is smaller than the target stream length"
            )
        stream.last = last
        stream.added = stream.added if added is None else added
        stream.deleted = deleted if deleted not in (None, LEAST) else stream.deleted
        for group in stream.groups.values():
            if group.read > stream.added:
                group.read = stream.read_at(group.last)
        return OK


def refusal(error: Refused) -> Failure:
    return Failure(str(error).encode())
