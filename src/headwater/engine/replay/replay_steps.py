"""Applies the less frequent facts of the journal: one function for each kind.

Each calls the mutator that wrote the fact, and is named as `headwater journal dump` names the fact.
`headwater.engine.replay.replay` has the other kinds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headwater.engine.accounts.value_account import places_of
from headwater.engine.facts.fact_reader import FactReader
from headwater.engine.facts.facts import ALL_DATABASES
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.tier.storing import RECORD_BYTES, UnreadBlob, decode_record


def _stream_created(keyspace: Keyspace, reader: FactReader) -> None:
    db, sid = reader.take_u8(), reader.take_u32()
    keyspace.databases[db].create_stream(reader.take_text(), sid)


def _string_set(keyspace: Keyspace, reader: FactReader) -> None:
    db, key = reader.take_u8(), reader.take_text()
    keyspace.databases[db].set_string(key, reader.take_text())


def _hash_set(keyspace: Keyspace, reader: FactReader) -> None:
    db, key, count = reader.take_u8(), reader.take_text(), reader.take_u32()
    pairs = [(reader.take_text(), reader.take_text()) for _ in range(count)]
    keyspace.databases[db].set_fields(key, pairs)


def _hash_fields_deleted(keyspace: Keyspace, reader: FactReader) -> None:
    db, key = reader.take_u8(), reader.take_text()
    keyspace.databases[db].delete_fields(key, reader.take_texts())


def _key_deleted(keyspace: Keyspace, reader: FactReader) -> None:
    db = reader.take_u8()
    keyspace.databases[db].delete(reader.take_text())


def _expiry_set(keyspace: Keyspace, reader: FactReader) -> None:
    db, key = reader.take_u8(), reader.take_text()
    keyspace.databases[db].set_expiry(key, reader.take_i64())


def _flushed(keyspace: Keyspace, reader: FactReader) -> None:
    db = reader.take_u8()
    if db == ALL_DATABASES:
        keyspace.flush_all()
    else:
        keyspace.flush(db)


def _list_pushed(keyspace: Keyspace, reader: FactReader) -> None:
    db, key, left = reader.take_u8(), reader.take_text(), reader.take_u8()
    keyspace.databases[db].push(key, reader.take_texts(), left=bool(left))


def _list_popped(keyspace: Keyspace, reader: FactReader) -> None:
    db, key, left = reader.take_u8(), reader.take_text(), reader.take_u8()
    keyspace.databases[db].pop(key, reader.take_u32(), left=bool(left))


def _set_members_added(keyspace: Keyspace, reader: FactReader) -> None:
    db, key = reader.take_u8(), reader.take_text()
    keyspace.databases[db].add_members(key, reader.take_texts())


def _set_members_removed(keyspace: Keyspace, reader: FactReader) -> None:
    db, key = reader.take_u8(), reader.take_text()
    keyspace.databases[db].remove_members(key, reader.take_texts())


def _key_renamed(keyspace: Keyspace, reader: FactReader) -> None:
    db, key, new_db = reader.take_u8(), reader.take_text(), reader.take_u8()
    name = reader.take_text()
    keyspace.databases[db].rename(key, keyspace.databases[new_db], name)


def _key_copied(keyspace: Keyspace, reader: FactReader) -> None:
    db, key, new_db = reader.take_u8(), reader.take_text(), reader.take_u8()
    name, sid, count = reader.take_text(), reader.take_u32(), reader.take_u32()
    gids = [(reader.take_u32(), reader.take_u32()) for _ in range(count)]
    if keyspace.unread_blobs:
        source = getattr(keyspace.databases[db].values.get(key), "sid", None)
        for blob in keyspace.unread_blobs:
            blob.copied(source, sid)
    keyspace.databases[db].copy(key, keyspace.databases[new_db], name, sid, gids)


def _databases_swapped(keyspace: Keyspace, reader: FactReader) -> None:
    first, second = reader.take_u8(), reader.take_u8()
    keyspace.swap(first, second)


def _string_written(keyspace: Keyspace, reader: FactReader) -> None:
    db, key, at = reader.take_u8(), reader.take_text(), reader.take_u32()
    keyspace.databases[db].write_string(key, at, reader.take_text())


def _list_element_set(keyspace: Keyspace, reader: FactReader) -> None:
    db, key, index = reader.take_u8(), reader.take_text(), reader.take_u32()
    keyspace.databases[db].set_element(key, index, reader.take_text())


def _list_elements_removed(keyspace: Keyspace, reader: FactReader) -> None:
    db, key, left = reader.take_u8(), reader.take_text(), reader.take_u8()
    count, text = reader.take_u32(), reader.take_text()
    value = keyspace.databases[db].values[key]
    assert isinstance(value, deque)
    places = places_of(value, text, count, bool(left))
    keyspace.databases[db].remove_elements(key, text, places, left=bool(left))


def _stream_id_set(keyspace: Keyspace, reader: FactReader) -> None:
    stream = keyspace.streams[reader.take_u32()]
    last, added, deleted = reader.take_id(), reader.take_u64(), reader.take_id()
    for blob in keyspace.unread_blobs:
        blob.ends_at(stream.sid, last)
    stream.set_id(last, added, deleted)


def _stream_configured(keyspace: Keyspace, reader: FactReader) -> None:
    known = keyspace.streams[reader.take_u32()].idempotency
    duration_s, maxsize = reader.take_u32(), reader.take_u32()
    known.configure(duration_s, maxsize)


def _iid_recorded(keyspace: Keyspace, reader: FactReader) -> None:
    known = keyspace.streams[reader.take_u32()].idempotency
    entry_id, pid, iid = reader.take_id(), reader.take_text(), reader.take_text()
    known.record(pid, iid, entry_id, now_ms=reader.now_ms)


def _iids_expired(keyspace: Keyspace, reader: FactReader) -> None:
    known = keyspace.streams[reader.take_u32()].idempotency
    count, pid = reader.take_u32(), reader.take_text()
    known.expire(pid, count)


def _idempotency_restored(keyspace: Keyspace, reader: FactReader) -> None:
    known = keyspace.streams[reader.take_u32()].idempotency
    duration_s, maxsize = reader.take_u32(), reader.take_u32()
    added, duplicates, count = reader.take_u64(), reader.take_u64(), reader.take_u32()
    producers = []
    for _ in range(count):
        pid, iids = reader.take_text(), reader.take_u32()
        producers.append((pid, [(reader.take_text(), reader.take_id()) for _ in range(iids)]))
    known.restore(duration_s, maxsize, added, duplicates, producers, now_ms=reader.now_ms)


def _iid_repeated(keyspace: Keyspace, reader: FactReader) -> None:
    known = keyspace.streams[reader.take_u32()].idempotency
    known.count_duplicate(reader.take_u64())


def _stored(keyspace: Keyspace, reader: FactReader) -> None:
    sid = reader.take_u32()
    record = decode_record(reader.take_bytes(RECORD_BYTES))
    stream = keyspace.streams[sid]
    if keyspace.sealing.bodies.source is None:  # The entries stay in memory.
        stream.note_stored(record)
        return
    keyspace.named_segments.add(record.place.segment)
    problem = stream.store(record)
    if problem is not None:
        keyspace.unread_blobs.append(UnreadBlob(record, sid, problem))
    elif record.moved and keyspace.unread_blobs:
        keyspace.unread_blobs = [
            blob for blob in keyspace.unread_blobs if not blob.is_moved(record, sid)
        ]


def _group_created(keyspace: Keyspace, reader: FactReader) -> None:
    stream, gid = keyspace.streams[reader.take_u32()], reader.take_u32()
    ms, seq, read = reader.take_u64(), reader.take_u64(), reader.take_i64()
    stream.create_group(reader.take_text(), gid, ms, seq, read)


def _group_destroyed(keyspace: Keyspace, reader: FactReader) -> None:
    group = keyspace.groups[reader.take_u32()]
    keyspace.streams[group.stream.sid].destroy_group(group.name)


def _group_id_set(keyspace: Keyspace, reader: FactReader) -> None:
    group = keyspace.groups[reader.take_u32()]
    ms, seq, read = reader.take_u64(), reader.take_u64(), reader.take_i64()
    group.set_id(ms, seq, read)


def _consumer_created(keyspace: Keyspace, reader: FactReader) -> None:
    group, cid = keyspace.groups[reader.take_u32()], reader.take_u32()
    seen_time = reader.take_i64()
    group.create_consumer(reader.take_text(), cid, seen_time)


def _consumer_deleted(keyspace: Keyspace, reader: FactReader) -> None:
    group = keyspace.groups[reader.take_u32()]
    group.delete_consumer(group.by_cid[reader.take_u32()])


def _consumer_seen(keyspace: Keyspace, reader: FactReader) -> None:
    group = keyspace.groups[reader.take_u32()]
    consumer = group.by_cid[reader.take_u32()]
    seen_time, active_time = reader.take_i64(), reader.take_i64()
    group.record_seen(consumer, seen_time, active_time)


def _delayed(keyspace: Keyspace, reader: FactReader) -> None:
    group, count = keyspace.groups[reader.take_u32()], reader.take_u32()
    group.delay(reader.take_words(4 * count))


def _came_due(keyspace: Keyspace, reader: FactReader) -> None:
    group, count = keyspace.groups[reader.take_u32()], reader.take_u32()
    group.end_delay(reader.take_words(2 * count))


Step = Callable[[Keyspace, FactReader], None]

STEPS: dict[int, Step] = {
    0x10: _stream_created,
    0x11: _string_set,
    0x12: _hash_set,
    0x13: _hash_fields_deleted,
    0x14: _key_deleted,
    0x15: _expiry_set,
    0x16: _flushed,
    0x17: _list_pushed,
    0x18: _list_popped,
    0x19: _set_members_added,
    0x1A: _set_members_removed,
    0x1B: _key_renamed,
    0x1C: _key_copied,
    0x1D: _databases_swapped,
    0x60: _string_written,
    0x61: _list_element_set,
    0x62: _list_elements_removed,
    0x23: _stream_id_set,
    0x24: _stream_configured,
    0x25: _iid_recorded,
    0x26: _iids_expired,
    0x27: _idempotency_restored,
    0x28: _iid_repeated,
    0x29: _stored,
    0x30: _group_created,
    0x31: _group_destroyed,
    0x32: _group_id_set,
    0x33: _consumer_created,
    0x34: _consumer_deleted,
    0x35: _consumer_seen,
    0x44: _delayed,
    0x45: _came_due,
}
