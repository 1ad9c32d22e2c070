"""The naive model's third part: pending entries of groups, and Headwater's own commands."""

from __future__ import annotations

from headwater.testing.replies import Nil, Reply
from tests.property.model import ID, LEAST, MOST, NEVER, Fields, Pending, spell
from tests.property.model_reading import ReadingModel

To = tuple[bytes, ID | None, Fields]


class Model(ReadingModel):
    """The model of the whole store."""

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
        references: bytes | None = None,
        delay: int | None = None,
        to: list[To] | None = None,
    ) -> Reply:
        _, group = self._group(key, name)
        owned = set(group.owned_by(who))
        to = to or []
        if to and not (owned.issuperset(ids) and len(set(ids)) == len(ids)):
            return [[0] * len(ids), []]
        lasts: dict[bytes, ID] = {}
        for dest, wanted, _fields in to:
            last = lasts.get(dest, self.streams[dest].last if dest in self.streams else LEAST)
            lasts[dest] = self.new_id(last, wanted)
        new = [self.xadd(dest, wanted, fields) for dest, wanted, fields in to]
        flags: list[Reply] = []
        mine = [entry_id for entry_id in dict.fromkeys(ids) if entry_id in owned]
        for entry_id in ids:
            flags.append(int(entry_id in owned))
            owned.discard(entry_id)
        if mode == b"ACKDEL":
            self.xackdel(key, name, references or b"KEEPREF", mine)
        else:
            for entry_id in mine:
                self._settle(key, name, mode, entry_id, delay)
        if delay == 0:
            group.come_due(self.now)
        return [flags, new]

    def _settle(self, key: bytes, name: bytes, mode: bytes, at: ID, delay: int | None) -> None:
        group = self.streams[key].groups[name]
        if mode == b"ACK":
            self.xack(key, name, [at])
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
        time: int | None = None,
        retrycount: int | None = None,
        force: bool = False,
        justid: bool = False,
    ) -> Reply:
        stream, group = self._group(key, name)
        consumer = self._meet(group, who)
        at = self.now - idle if time is None else min(self.now - (self.wall - time), self.now)
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
            group.own(entry_id, who, at, count)
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

    # --- inspection -----------------------------------------------------------------------------

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
    """Return the delivery count after XNACK or XSETTLE with this mode."""
    if mode == b"FATAL":
        return MOST
    return max(0, count - 1) if mode == b"SILENT" else count
