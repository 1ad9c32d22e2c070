"""Replays facts: `apply` calls the mutators that wrote them (facts.py, rule 2)."""

from __future__ import annotations

import struct
import sys
from array import array
from typing import TYPE_CHECKING

from headwater.engine.facts import (
    ALL_DATABASES,
    APPENDED,
    CONSUMER,
    CONSUMER_CREATED,
    CONSUMER_SEEN,
    DATABASES_SWAPPED,
    DELETED,
    DELIVERED,
    EXPIRY,
    GIDS,
    GROUP,
    GROUP_CREATED,
    GROUP_LIST,
    GROUP_SET_ID,
    ID,
    IDEMPOTENCY_RESTORED,
    IID_RECORDED,
    IID_REPEATED,
    IIDS_EXPIRED,
    KEY,
    KEY_COPIED,
    KEY_PLACE,
    LENGTH,
    LIST_POPPED,
    LIST_SIDE,
    OWNED,
    STREAM_CONFIGURED,
    STREAM_CREATED,
    STREAM_SET_ID,
    TRIMMED,
)
from headwater.engine.garbage import free

if TYPE_CHECKING:
    from headwater.engine.keyspace import Keyspace

_ALL = sys.maxsize


class _Reader:
    """Reads values from facts, from ``at`` on. ``now_ms`` is the time of their record group."""

    def __init__(self, data: memoryview, now_ms: int) -> None:
        self.data = data
        self.now_ms = now_ms
        self.at = 0

    def take(self, form: struct.Struct) -> tuple[int, ...]:
        values = form.unpack_from(self.data, self.at)
        self.at += form.size
        return values

    def rows(self, form: struct.Struct, count: int) -> list[tuple[int, ...]]:
        end = self.at + form.size * count
        if end > len(self.data):
            raise ValueError(f"a fact has {count} rows and its group ends before them")
        rows = list(form.iter_unpack(self.data[self.at : end]))
        self.at = end
        return rows

    def words(self, count: int) -> array[int]:
        """Read ``count`` 64-bit words."""
        end = self.at + 8 * count
        if end > len(self.data):
            raise ValueError(f"a fact has {count} words and its group ends before them")
        found = array("Q")
        found.frombytes(self.data[self.at : end])
        if sys.byteorder == "big":
            found.byteswap()
        self.at = end
        return found

    def text(self) -> bytes:
        (length,) = self.take(LENGTH)
        return self.bytes(length)

    def texts(self) -> list[bytes]:
        (count,) = self.take(LENGTH)
        return [self.text() for _ in range(count)]

    def bytes(self, length: int) -> bytes:
        if self.at + length > len(self.data):
            raise ValueError(f"a fact has {length} bytes and its group ends before them")
        value = bytes(self.data[self.at : self.at + length])
        self.at += length
        return value


def apply(keyspace: Keyspace, facts: memoryview, now_ms: int) -> None:
    """Repeat the changes that ``facts``, the body of a record group of the time ``now_ms``, describe.

    Raises `ValueError` for a kind that this version does not know and for an incomplete fact.
    """
    reader = _Reader(facts, now_ms)
    while reader.at < len(facts):
        kind = facts[reader.at]
        step = _STEPS.get(kind)
        if step is None:
            raise ValueError(f"unknown kind of fact 0x{kind:02x} at byte {reader.at} of its group")
        try:
            step(keyspace, reader)
        except struct.error as error:
            raise ValueError(f"the group ends within a fact of kind 0x{kind:02x}") from error
    if keyspace.garbage:
        free(keyspace.garbage, _ALL)


def _stream_created(keyspace: Keyspace, reader: _Reader) -> None:
    _, db, sid = reader.take(STREAM_CREATED)
    keyspace.databases[db].create_stream(reader.text(), sid)


def _string_set(keyspace: Keyspace, reader: _Reader) -> None:
    _, db = reader.take(KEY)
    keyspace.databases[db].set_string(reader.text(), reader.text())


def _hash_set(keyspace: Keyspace, reader: _Reader) -> None:
    _, db = reader.take(KEY)
    key = reader.text()
    (count,) = reader.take(LENGTH)
    pairs = [(reader.text(), reader.text()) for _ in range(count)]
    keyspace.databases[db].set_fields(key, pairs)


def _hash_deleted(keyspace: Keyspace, reader: _Reader) -> None:
    _, db = reader.take(KEY)
    key = reader.text()
    (count,) = reader.take(LENGTH)
    keyspace.databases[db].delete_fields(key, [reader.text() for _ in range(count)])


def _key_deleted(keyspace: Keyspace, reader: _Reader) -> None:
    _, db = reader.take(KEY)
    keyspace.databases[db].delete(reader.text())


def _expiry_set(keyspace: Keyspace, reader: _Reader) -> None:
    _, db = reader.take(KEY)
    key = reader.text()
    keyspace.databases[db].set_expiry(key, reader.take(EXPIRY)[0])


def _flushed(keyspace: Keyspace, reader: _Reader) -> None:
    _, db = reader.take(KEY)
    if db == ALL_DATABASES:
        keyspace.flush_all()
    else:
        keyspace.flush(db)


def _list_pushed(keyspace: Keyspace, reader: _Reader) -> None:
    _, db = reader.take(KEY)
    key = reader.text()
    (left,) = reader.take(LIST_SIDE)
    keyspace.databases[db].push(key, reader.texts(), left=bool(left))


def _list_popped(keyspace: Keyspace, reader: _Reader) -> None:
    _, db = reader.take(KEY)
    key = reader.text()
    left, count = reader.take(LIST_POPPED)
    keyspace.databases[db].pop(key, count, left=bool(left))


def _set_added(keyspace: Keyspace, reader: _Reader) -> None:
    _, db = reader.take(KEY)
    keyspace.databases[db].add_members(reader.text(), reader.texts())


def _set_removed(keyspace: Keyspace, reader: _Reader) -> None:
    _, db = reader.take(KEY)
    keyspace.databases[db].remove_members(reader.text(), reader.texts())


def _key_renamed(keyspace: Keyspace, reader: _Reader) -> None:
    _, db = reader.take(KEY)
    key = reader.text()
    (new_db,) = reader.take(KEY_PLACE)
    keyspace.databases[db].rename(key, keyspace.databases[new_db], reader.text())


def _key_copied(keyspace: Keyspace, reader: _Reader) -> None:
    _, db = reader.take(KEY)
    key = reader.text()
    (new_db,) = reader.take(KEY_PLACE)
    name = reader.text()
    sid, count = reader.take(KEY_COPIED)
    gids = [(row[0], row[1]) for row in reader.rows(GIDS, count)]
    keyspace.databases[db].copy(key, keyspace.databases[new_db], name, sid, gids)


def _databases_swapped(keyspace: Keyspace, reader: _Reader) -> None:
    _, first, second = reader.take(DATABASES_SWAPPED)
    keyspace.swap(first, second)


def _appended(keyspace: Keyspace, reader: _Reader) -> None:
    _, sid, ms, seq, opens, pairs, length = reader.take(APPENDED)
    keyspace.streams[sid].append(ms, seq, reader.bytes(length), pairs, bool(opens))


def _trimmed(keyspace: Keyspace, reader: _Reader) -> None:
    _, sid, ms, seq = reader.take(TRIMMED)
    keyspace.streams[sid].trim_through(ms, seq)


def _deleted(keyspace: Keyspace, reader: _Reader) -> None:
    _, sid, flags, count = reader.take(DELETED)
    ids = [(row[0], row[1]) for row in reader.rows(ID, count)]
    keyspace.streams[sid].delete(ids, marks=bool(flags & 1), stays=bool(flags & 2))


def _stream_set_id(keyspace: Keyspace, reader: _Reader) -> None:
    _, sid, ms, seq, added, deleted_ms, deleted_seq = reader.take(STREAM_SET_ID)
    keyspace.streams[sid].set_id((ms, seq), added, (deleted_ms, deleted_seq))


def _stream_configured(keyspace: Keyspace, reader: _Reader) -> None:
    _, sid, duration_s, maxsize = reader.take(STREAM_CONFIGURED)
    keyspace.streams[sid].idempotency.configure(duration_s, maxsize)


def _iid_recorded(keyspace: Keyspace, reader: _Reader) -> None:
    _, sid, ms, seq = reader.take(IID_RECORDED)
    known = keyspace.streams[sid].idempotency
    known.record(reader.text(), reader.text(), (ms, seq), now_ms=reader.now_ms)


def _iids_expired(keyspace: Keyspace, reader: _Reader) -> None:
    _, sid, count = reader.take(IIDS_EXPIRED)
    keyspace.streams[sid].idempotency.expire(reader.text(), count)


def _idempotency_restored(keyspace: Keyspace, reader: _Reader) -> None:
    _, sid, duration_s, maxsize, added, duplicates, count = reader.take(IDEMPOTENCY_RESTORED)
    producers = []
    for _ in range(count):
        pid = reader.text()
        (known,) = reader.take(LENGTH)
        iids = []
        for _ in range(known):
            iid = reader.text()
            ms, seq = reader.take(ID)
            iids.append((iid, (ms, seq)))
        producers.append((pid, iids))
    keyspace.streams[sid].idempotency.restore(
        duration_s, maxsize, added, duplicates, producers, now_ms=reader.now_ms
    )


def _iid_repeated(keyspace: Keyspace, reader: _Reader) -> None:
    _, sid, duplicates = reader.take(IID_REPEATED)
    keyspace.streams[sid].idempotency.count_duplicate(duplicates)


def _group_created(keyspace: Keyspace, reader: _Reader) -> None:
    _, sid, gid, ms, seq, read, length = reader.take(GROUP_CREATED)
    keyspace.streams[sid].create_group(reader.bytes(length), gid, ms, seq, read)


def _group_destroyed(keyspace: Keyspace, reader: _Reader) -> None:
    _, gid = reader.take(GROUP)
    group = keyspace.groups[gid]
    group.stream.destroy_group(group.name)


def _group_set_id(keyspace: Keyspace, reader: _Reader) -> None:
    _, gid, ms, seq, read = reader.take(GROUP_SET_ID)
    keyspace.groups[gid].set_id(ms, seq, read)


def _consumer_created(keyspace: Keyspace, reader: _Reader) -> None:
    _, gid, cid, seen_time, length = reader.take(CONSUMER_CREATED)
    keyspace.groups[gid].create_consumer(reader.bytes(length), cid, seen_time)


def _consumer_deleted(keyspace: Keyspace, reader: _Reader) -> None:
    _, gid, cid = reader.take(CONSUMER)
    group = keyspace.groups[gid]
    group.delete_consumer(group.by_cid[cid])


def _consumer_seen(keyspace: Keyspace, reader: _Reader) -> None:
    _, gid, cid, seen_time, active_time = reader.take(CONSUMER_SEEN)
    group = keyspace.groups[gid]
    group.record_seen(group.by_cid[cid], seen_time, active_time)


def _delivered(keyspace: Keyspace, reader: _Reader) -> None:
    _, gid, cid, time, ms1, seq1, ms2, seq2, count, read, noack = reader.take(DELIVERED)
    group = keyspace.groups[gid]
    group.deliver(group.by_cid[cid], time, (ms1, seq1), (ms2, seq2), count, read, noack=bool(noack))


def _acknowledged(keyspace: Keyspace, reader: _Reader) -> None:
    _, gid, count = reader.take(GROUP_LIST)
    keyspace.groups[gid].acknowledge(reader.words(2 * count))


def _owned(keyspace: Keyspace, reader: _Reader) -> None:
    _, gid, cid, seen_time, active_time, count = reader.take(OWNED)
    group = keyspace.groups[gid]
    group.own(group.by_cid[cid], reader.words(4 * count), seen_time, active_time)


def _released(keyspace: Keyspace, reader: _Reader) -> None:
    _, gid, count = reader.take(GROUP_LIST)
    keyspace.groups[gid].release(reader.words(3 * count))


def _delayed(keyspace: Keyspace, reader: _Reader) -> None:
    _, gid, count = reader.take(GROUP_LIST)
    keyspace.groups[gid].delay(reader.words(4 * count))


def _came_due(keyspace: Keyspace, reader: _Reader) -> None:
    _, gid, count = reader.take(GROUP_LIST)
    keyspace.groups[gid].end_delay(reader.words(2 * count))


_STEPS = {
    0x10: _stream_created,
    0x11: _string_set,
    0x12: _hash_set,
    0x13: _hash_deleted,
    0x14: _key_deleted,
    0x15: _expiry_set,
    0x16: _flushed,
    0x17: _list_pushed,
    0x18: _list_popped,
    0x19: _set_added,
    0x1A: _set_removed,
    0x1B: _key_renamed,
    0x1C: _key_copied,
    0x1D: _databases_swapped,
    0x20: _appended,
    0x21: _trimmed,
    0x22: _deleted,
    0x23: _stream_set_id,
    0x24: _stream_configured,
    0x25: _iid_recorded,
    0x26: _iids_expired,
    0x27: _idempotency_restored,
    0x28: _iid_repeated,
    0x30: _group_created,
    0x31: _group_destroyed,
    0x32: _group_set_id,
    0x33: _consumer_created,
    0x34: _consumer_deleted,
    0x35: _consumer_seen,
    0x40: _delivered,
    0x41: _acknowledged,
    0x42: _owned,
    0x43: _released,
    0x44: _delayed,
    0x45: _came_due,
}
