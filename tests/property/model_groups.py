"""The naive model's second half: groups, what they have pending, and our own verbs."""

from __future__ import annotations

from headwater.testing.replies import Nil, Reply
from tests.property.model import (
    GREATEST,
    ID,
    LEAST,
    MOST,
    NEVER,
    OK,
    UNKNOWN,
    Consumer,
    EntriesModel,
    Fields,
    Group,
    Pending,
    Refused,
    Stream,
    limited,
    spell,
)

To = tuple[bytes, ID | None, Fields]


class Model(EntriesModel):
    """The whole store."""

    # --- who is there ---------------------------------------------------------------------------

    def _group(self, key: bytes, name: bytes, more: str = "") -> tuple[Stream, Group]:
        stream = self.streams.get(key)
        if stream is None or name not in stream.groups:
            raise Refused(
                f"NOGROUP No such key '{key.decode()}' or consumer group '{name.decode()}'{more}"
            )
        return stream, stream.groups[name]

    def _administered(self, key: bytes, name: bytes) -> tuple[Stream, Group]:
        """As `_group`, in the words of XGROUP."""
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
        """XGROUP CREATE … MKSTREAM; a start of None is ``$``."""
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

    def xreadgroup(
        self,
        name: bytes,
        who: bytes,
        reads: list[tuple[bytes, ID | None]],
        *,
        count: int = 0,
        claim: int | None = None,
        noack: bool = False,
    ) -> Reply:
        """An id of None is ``>``."""
        for key, _ in reads:
            self._group(key, name, " in XREADGROUP with GROUP option")
        for key, _ in reads:
            self._meet(self.streams[key].groups[name], who)
        found: list[Reply] = []
        for key, after in reads:
            if after is None or after == GREATEST:
                given = self._new(key, name, who, count, claim, noack)
                if given:
                    found.append([key, given])
            else:
                claim = None
                found.append([key, self._history(key, name, who, after, count)])
        return found or Nil.ARRAY

    def _new(
        self, key: bytes, name: bytes, who: bytes, count: int, claim: int | None, noack: bool
    ) -> list[Reply]:
        stream = self.streams[key]
        group = stream.groups[name]
        given: list[Reply] = []
        for entry_id, idle, before in self._claimable(stream, group, claim, count):
            given.append([*self._entry(key, entry_id), idle, before])
            group.own(entry_id, who, self.now, min(before + 1, MOST))
            group.consumers[who].active = self.now
        if count and len(given) == count:
            return given
        for entry_id in stream.after(group.last, count - len(given) if count else 0):
            more: list[Reply] = [] if claim is None else [0, 0]
            given.append([*self._entry(key, entry_id), *more])
            self._advance(stream, group, entry_id)
            if not noack:
                group.own(entry_id, who, self.now, 1)
                group.consumers[who].active = self.now
        return given

    def _claimable(
        self, stream: Stream, group: Group, claim: int | None, count: int
    ) -> list[tuple[ID, int, int]]:
        """Id, idle time and count of what CLAIM takes: the released, then the oldest."""
        found: list[tuple[ID, int, int]] = []
        for entry_id in group.zone + group.order if claim is not None else []:
            record = group.pending[entry_id]
            idle = self.now - record.time
            if claim is not None and idle < claim:
                break
            if entry_id in stream.entries:
                found.append((entry_id, idle, record.count))
            if count and len(found) == count:
                break
        return found

    def _advance(self, stream: Stream, group: Group, entry_id: ID) -> None:
        known = group.read != UNKNOWN and not stream.hole_ahead(group.last)
        if known and group.last >= stream.first:
            group.read += 1
        elif stream.added:
            group.read = stream.read_at(entry_id)
        group.last = entry_id

    def _history(self, key: bytes, name: bytes, who: bytes, after: ID, count: int) -> list[Reply]:
        stream = self.streams[key]
        group = stream.groups[name]
        given: list[Reply] = []
        for entry_id in limited([at for at in group.owned_by(who) if at > after], count):
            if entry_id not in stream.entries:
                given.append([spell(entry_id), Nil.ARRAY])
                continue
            given.append(self._entry(key, entry_id))
            group.own(entry_id, who, self.now, min(group.pending[entry_id].count + 1, MOST))
        return given

    # --- settling -------------------------------------------------------------------------------

    def xack(self, key: bytes, name: bytes, ids: list[ID]) -> Reply:
        if key not in self.streams or name not in self.streams[key].groups:
            return 0
        group = self.streams[key].groups[name]
        there = [at for at in dict.fromkeys(ids) if at in group.pending]
        for entry_id in there:
            group.drop(entry_id)
        return len(there)

    def xackdel(self, key: bytes, name: bytes, mode: bytes, ids: list[ID]) -> Reply:
        if key not in self.streams or name not in self.streams[key].groups:
            return [-1] * len(ids)
        stream = self.streams[key]
        group = stream.groups[name]
        flags: list[Reply] = []
        for entry_id in ids:
            if entry_id not in group.pending:
                flags.append(-1)
                continue
            group.drop(entry_id)
            if mode == b"DELREF":
                self.forget(stream, entry_id)
            if mode == b"ACKED" and stream.referenced(entry_id):
                flags.append(2)
                continue
            if entry_id in stream.entries:
                stream.remove(entry_id)
                stream.deleted = max(stream.deleted, entry_id)
            flags.append(1)
        return flags

    def xnack(
        self,
        key: bytes,
        name: bytes,
        mode: bytes,
        ids: list[ID],
        *,
        retrycount: int | None = None,
        force: bool = False,
    ) -> Reply:
        stream, group = self._group(key, name)
        released = 0
        for entry_id in ids:
            if entry_id in group.pending:
                count = group.pending[entry_id].count
            elif force and entry_id in stream.entries:
                count = 0
            else:
                continue
            count = _released(count, mode) if retrycount is None else retrycount
            group.release(entry_id, count)
            released += 1
        return released

    def xrenew(self, key: bytes, name: bytes, who: bytes, idle: int, ids: list[ID]) -> Reply:
        _, group = self._group(key, name)
        owned = set(group.owned_by(who))
        for entry_id in ids:
            if entry_id in owned:
                group.own(entry_id, who, max(0, self.now - idle), group.pending[entry_id].count)
                group.consumers[who].seen = self.now
        return [int(entry_id in owned) for entry_id in ids]

    def xsettle(
        self,
        key: bytes,
        name: bytes,
        who: bytes,
        mode: bytes,
        ids: list[ID],
        *,
        delay: int | None = None,
        to: list[To] | None = None,
    ) -> Reply:
        _, group = self._group(key, name)
        owned = set(group.owned_by(who))
        to = to or []
        if to and not owned.issuperset(ids):
            return [[0] * len(ids), []]
        lasts: dict[bytes, ID] = {}
        for dest, wanted, _fields in to:
            last = lasts.get(dest, self.streams[dest].last if dest in self.streams else LEAST)
            lasts[dest] = self.new_id(last, wanted)
        new = [self.xadd(dest, wanted, fields) for dest, wanted, fields in to]
        flags: list[Reply] = []
        for entry_id in ids:
            flags.append(int(entry_id in owned))
            if entry_id in owned:
                owned.remove(entry_id)
                self._settle(key, name, mode, entry_id, delay)
        if delay == 0:
            group.come_due(self.now)
        return [flags, new]

    def _settle(self, key: bytes, name: bytes, mode: bytes, at: ID, delay: int | None) -> None:
        group = self.streams[key].groups[name]
        if mode == b"ACK":
            self.xack(key, name, [at])
        elif mode == b"ACKDEL":
            self.xackdel(key, name, b"KEEPREF", [at])
        elif delay is None:
            self.xnack(key, name, mode, [at])
        else:
            group.delay(at, self.now + delay, _released(group.pending[at].count, mode))

    # --- claiming -------------------------------------------------------------------------------

    def _may_claim(self, record: Pending, min_idle: int) -> bool:
        if record.owner is None:
            return record.due is None
        return min_idle <= 0 or self.now - record.time >= min_idle

    def xclaim(
        self,
        key: bytes,
        name: bytes,
        who: bytes,
        min_idle: int,
        ids: list[ID],
        *,
        idle: int = 0,
        retrycount: int | None = None,
        force: bool = False,
        justid: bool = False,
    ) -> Reply:
        stream, group = self._group(key, name)
        consumer = self._meet(group, who)
        given: list[Reply] = []
        for entry_id in ids:
            record = group.pending.get(entry_id)
            if entry_id not in stream.entries:
                if record is not None:
                    group.drop(entry_id)
                continue
            if not (force if record is None else self._may_claim(record, min_idle)):
                continue
            count = 1 if record is None else record.count
            if retrycount is not None:
                count = retrycount
            elif not justid:
                count = min(count + 1, MOST)
            group.own(entry_id, who, self.now - idle, count)
            consumer.active = self.now
            given.append(spell(entry_id) if justid else self._entry(key, entry_id))
        return given

    def xautoclaim(
        self,
        key: bytes,
        name: bytes,
        who: bytes,
        min_idle: int,
        start: ID,
        *,
        count: int = 100,
        justid: bool = False,
    ) -> Reply:
        stream, group = self._group(key, name)
        consumer = self._meet(group, who)
        given, gone = list[Reply](), list[Reply]()
        looked, ids = 0, sorted(at for at in group.pending if at >= start)
        for entry_id in ids:
            if looked == count * 10 or len(given) + len(gone) == count:
                break
            looked += 1
            record = group.pending[entry_id]
            if entry_id not in stream.entries:
                group.drop(entry_id)
                gone.append(spell(entry_id))
            elif self._may_claim(record, min_idle):
                count_now = record.count if justid else min(record.count + 1, MOST)
                group.own(entry_id, who, self.now, count_now)
                consumer.active = self.now
                given.append(spell(entry_id) if justid else self._entry(key, entry_id))
        cursor = ids[looked] if looked < len(ids) else LEAST
        return [spell(cursor), given, gone]

    # --- looking --------------------------------------------------------------------------------

    def xpending(self, key: bytes, name: bytes) -> Reply:
        _, group = self._group(key, name)
        if not group.pending:
            return [0, Nil.BULK, Nil.BULK, Nil.ARRAY]
        owners: list[Reply] = [
            [who, b"%d" % len(group.owned_by(who))]
            for who in sorted(group.consumers)
            if group.owned_by(who)
        ]
        return [len(group.pending), spell(min(group.pending)), spell(max(group.pending)), owners]

    def xpending_rows(
        self, key: bytes, name: bytes, idle: int, start: ID, end: ID, count: int, who: bytes | None
    ) -> Reply:
        _, group = self._group(key, name)
        rows: list[Reply] = []
        for at, record in sorted(group.pending.items()):
            age = NEVER if record.owner is None else max(0, self.now - record.time)
            wanted = start <= at <= end and who in (None, record.owner)
            if wanted and (record.owner is None or idle <= 0 or age >= idle):
                rows.append([spell(at), record.owner or b"", age, record.count])
        return rows[: max(0, count)]


def _released(count: int, mode: bytes) -> int:
    """The count after XNACK's or XSETTLE's mode."""
    if mode == b"FATAL":
        return MOST
    return max(0, count - 1) if mode == b"SILENT" else count
