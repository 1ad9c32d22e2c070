"""The naive model's second part: groups, and the replies to XREADGROUP and XREAD."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.testing.replies import Nil, Reply
from tests.property.model import (
    GREATEST,
    ID,
    MOST,
    OK,
    UNKNOWN,
    Consumer,
    EntriesModel,
    Group,
    Refused,
    Stream,
    spell,
)


def wire_size(reply: Reply) -> int:
    """Return the size of a reply in RESP2, in bytes."""
    if isinstance(reply, list):
        return len(b"*%d\r\n" % len(reply)) + sum(map(wire_size, reply))
    if isinstance(reply, bytes):
        return len(b"$%d\r\n\r\n" % len(reply)) + len(reply)
    if isinstance(reply, int):
        return len(b":%d\r\n" % reply)
    assert reply is Nil.ARRAY
    return len(b"*-1\r\n")


@dataclass
class Bounds:
    """COUNT, MAXCOUNT and MAXSIZE, 0 for none, and what was returned: in all, and of this stream."""

    count: int = 0
    maxcount: int = 0
    maxsize: int = 0
    given: int = 0
    size: int = 0
    here: int = 0
    header: int = 0

    def reached(self) -> bool:
        """Whether no entries of further streams may follow."""
        if self.given and self.maxsize and self.size >= self.maxsize:
            return True
        return bool(self.maxcount) and self.given == self.maxcount

    def begin(self, key: bytes) -> None:
        self.here, self.header = 0, wire_size(key)

    def ends(self) -> bool:
        """Whether no further entry of this stream may follow."""
        if self.given and self.maxsize and self.size + self.header >= self.maxsize:
            return True
        return self.reached() or bool(self.count and self.here == self.count)

    def take(self, entry: Reply) -> Reply:
        self.size += self.header + wire_size(entry)
        self.header = 0
        self.given += 1
        self.here += 1
        return entry


class ReadingModel(EntriesModel):
    """Streams, groups and reads."""

    # --- lookup ---------------------------------------------------------------------------------

    def _group(self, key: bytes, name: bytes, more: str = "") -> tuple[Stream, Group]:
        stream = self.streams.get(key)
        if stream is None or name not in stream.groups:
            raise Refused(
                f"NOGROUP No such key '{key.decode()}' or consumer group '{name.decode()}'{more}"
            )
        return stream, stream.groups[name]

    def _administered(self, key: bytes, name: bytes) -> tuple[Stream, Group]:
        """Like `_group`, with the errors of XGROUP."""
        if key not in self.streams:
            raise Refused(
                "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may "
                "want to use the MKSTREAM option to create an empty stream automatically."
            )
        if name not in self.streams[key].groups:
            raise Refused(
                f"NOGROUP No such consumer group '{name.decode()}' for key name '{key.decode()}'"
            )
        return self.streams[key], self.streams[key].groups[name]

    def _meet(self, group: Group, name: bytes) -> Consumer:
        consumer = group.consumers.setdefault(name, Consumer(self.now))
        consumer.seen = self.now
        return consumer

    # --- XGROUP ---------------------------------------------------------------------------------

    def create(self, key: bytes, name: bytes, start: ID | None) -> Reply:
        """XGROUP CREATE … MKSTREAM. A start of None is ``$``."""
        stream = self.streams.setdefault(key, Stream())
        if name in stream.groups:
            raise Refused("BUSYGROUP Consumer Group name already exists")
        stream.groups[name] = Group(stream.last if start is None else start, UNKNOWN)
        return OK

    def setid(self, key: bytes, name: bytes, start: ID | None, read: int) -> Reply:
        stream, group = self._administered(key, name)
        group.last = stream.last if start is None else start
        group.read = min(read, stream.added)
        return OK

    def destroy(self, key: bytes, name: bytes) -> Reply:
        if key not in self.streams:
            self._administered(key, name)
        return int(self.streams[key].groups.pop(name, None) is not None)

    def createconsumer(self, key: bytes, name: bytes, consumer: bytes) -> Reply:
        _, group = self._administered(key, name)
        if consumer in group.consumers:
            return 0
        group.consumers[consumer] = Consumer(self.now)
        return 1

    def delconsumer(self, key: bytes, name: bytes, consumer: bytes) -> Reply:
        _, group = self._administered(key, name)
        owned = group.owned_by(consumer)
        for entry_id in owned:
            group.drop(entry_id)
        group.consumers.pop(consumer, None)
        return len(owned)

    def xretire(self, key: bytes, name: bytes, consumer: bytes) -> Reply:
        _, group = self._group(key, name)
        if consumer not in group.consumers:
            return -1
        if group.owned_by(consumer):
            return 0
        del group.consumers[consumer]
        return 1

    # --- reading --------------------------------------------------------------------------------

    def xread(self, reads: list[tuple[bytes, ID | None]], bounds: Bounds) -> Reply:
        """XREAD. An id of None is ``+``, the last entry."""
        found: list[Reply] = []
        for key, last in reads:
            stream = self.streams.get(key, Stream())
            ids = sorted(stream.entries)[-1:] if last is None else stream.after(last, 0)
            bounds.begin(key)
            given = [bounds.take(self._entry(key, at)) for at in ids if not bounds.ends()]
            if given:
                found.append([key, given])
        return found or Nil.ARRAY

    def xreadgroup(
        self,
        name: bytes,
        who: bytes,
        reads: list[tuple[bytes, ID | None]],
        bounds: Bounds,
        *,
        claim: int | None = None,
        noack: bool = False,
    ) -> Reply:
        """XREADGROUP. An id of None is ``>``."""
        for key, _ in reads:
            self._group(key, name, " in XREADGROUP with GROUP option")
        for key, _ in reads:
            self._meet(self.streams[key].groups[name], who)
        found: list[Reply] = []
        for key, after in reads:
            bounds.begin(key)
            if after is None or after == GREATEST:
                given = self._new(key, name, who, bounds, claim, noack)
                if given:
                    found.append([key, given])
            else:
                claim = None
                if not bounds.ends():
                    found.append([key, self._history(key, name, who, after, bounds)])
        return found or Nil.ARRAY

    def _new(
        self, key: bytes, name: bytes, who: bytes, bounds: Bounds, claim: int | None, noack: bool
    ) -> list[Reply]:
        stream = self.streams[key]
        group = stream.groups[name]
        given: list[Reply] = []
        for entry_id, idle, before in self._claimable(stream, group, claim):
            if bounds.ends():
                return given
            given.append(bounds.take([*self._entry(key, entry_id), idle, before]))
            group.own(entry_id, who, self.now, min(before + 1, MOST))
            group.consumers[who].active = self.now
        for entry_id in stream.after(group.last, 0):
            if bounds.ends():
                return given
            more: list[Reply] = [] if claim is None else [0, 0]
            given.append(bounds.take([*self._entry(key, entry_id), *more]))
            self._advance(stream, group, entry_id)
            if not noack:
                group.own(entry_id, who, self.now, 1)
                group.consumers[who].active = self.now
        return given

    def _claimable(
        self, stream: Stream, group: Group, claim: int | None
    ) -> list[tuple[ID, int, int]]:
        """Return id, idle time and count of what CLAIM may claim: released entries, then the oldest."""
        found: list[tuple[ID, int, int]] = []
        for entry_id in group.released + group.order if claim is not None else []:
            record = group.pending[entry_id]
            idle = self.now - record.time
            if claim is not None and idle < claim:
                break
            if entry_id in stream.entries:
                found.append((entry_id, idle, record.count))
        return found

    def _advance(self, stream: Stream, group: Group, entry_id: ID) -> None:
        known = group.read != UNKNOWN and not stream.hole_ahead(group.last)
        if known and group.last >= stream.first and group.read < stream.added:
            group.read += 1
        elif stream.added:
            group.read = stream.read_at(entry_id)
        group.last = entry_id

    def _history(
        self, key: bytes, name: bytes, who: bytes, after: ID, bounds: Bounds
    ) -> list[Reply]:
        stream = self.streams[key]
        group = stream.groups[name]
        given: list[Reply] = []
        for entry_id in [at for at in group.owned_by(who) if at > after]:
            if bounds.ends():
                break
            if entry_id not in stream.entries:
                given.append(bounds.take([spell(entry_id), Nil.ARRAY]))
                continue
            given.append(bounds.take(self._entry(key, entry_id)))
            group.own(entry_id, who, self.now, min(group.pending[entry_id].count + 1, MOST))
        return given

    def xdelayed(
        self,
        key: bytes,
        name: bytes,
        start: ID = (0, 0),
        end: ID | None = None,
        count: int | None = None,
    ) -> Reply:
        _stream, group = self._group(key, name)
        rows: list[Reply] = [
            [spell(entry_id), max(0, record.due - self.now), record.count]
            for entry_id, record in sorted(group.pending.items())
            if record.due is not None and start <= entry_id and (end is None or entry_id <= end)
        ]
        return rows[:count]

    def xlag(self, key: bytes, names: list[bytes]) -> Reply:
        if key not in self.streams:
            raise Refused("ERR no such key")
        for name in names:
            self._group(key, name)
        groups = self.streams[key].groups
        found: list[Reply] = []
        for name in dict.fromkeys(names or sorted(groups)):
            found += [name, self._lag(self.streams[key], groups[name])]
        return found

    def _lag(self, stream: Stream, group: Group) -> Reply:
        unread = stream.after(group.last, 0)
        oldest = group.order[0] if group.order else None
        due = [one.due for one in group.pending.values() if one.due is not None]
        return [
            b"unread", len(unread),
            b"unread-age-ms", max(0, self.wall - unread[0][0]) if unread else Nil.BULK,
            b"pending", len(group.pending),
            b"released", len(group.released),
            b"delayed", len(due),
            b"oldest-pending-ms",
            max(0, self.now - group.pending[oldest].time) if oldest else Nil.BULK,
            b"oldest-pending-consumer",
            Nil.BULK if oldest is None else group.pending[oldest].owner or b"",
            b"next-due-ms", max(0, min(due) - self.now) if due else Nil.BULK,
        ]  # fmt: skip
