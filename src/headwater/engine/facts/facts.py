"""The facts that mutators write. `headwater.engine.replay.replay` reads them.

Rule 1. A fact says what happened, in absolute values. It never says "now", "next" or "about".
Rule 2. Only mutators write facts, one for each change, and replay calls the same mutators.
Rule 3. Applying a fact to the state in which it was written writes the same bytes again.

A fact is one byte of kind followed by its values, little-endian, without padding. A text is a u32 length and
its bytes; an id is two u64. Kinds below 0x10 belong to the journal; image_facts.py lists the kinds of images.

    0x10 stream_created   db u8, sid u32, key          0x30 group_created    sid, gid, id, read i64, name
    0x11 string_set       db, key, value               0x31 group_destroyed  gid
    0x12 hash_set         db, key, n, (field, value)*  0x32 group_set_id     gid, id, read
    0x13 hash_deleted     db, key, n, field*           0x33 consumer_created gid, cid, seen i64, name
    0x14 key_deleted      db, key                      0x34 consumer_deleted gid, cid
    0x15 expiry_set       db, key, at i64 (-1: none)   0x35 consumer_seen    gid, cid, seen, active
    0x16 flushed          db (255: all)                0x40 delivered        gid, cid, time, first id,
    0x17 list_pushed      db, key, left u8, n, value*                        last id, count, read, noack
    0x18 list_popped      db, key, left u8, count u32  0x41 acknowledged     gid, n, id*
    0x19 set_added        db, key, n, member*          0x42 owned            gid, cid, seen, active, n,
    0x1A set_removed      db, key, n, member*                                (id, time, count)*
    0x1B key_renamed      db, key, db, key             0x43 released         gid, n, (id, count)*
    0x1C key_copied       db, key, db, key, sid, n,    0x44 delayed          gid, n, (id, due, count)*
                          (gid, gid of the copy)*      0x45 came_due         gid, n, id*
    0x1D databases_swapped  db, db
    0x60 string_written     db, key, at u32, text      (from byte ``at`` on, zero bytes before it if it is beyond the end)
    0x61 list_set           db, key, index u32, text
    0x62 list_removed       db, key, left u8, n, text  (the first or the last n elements that equal the text)
    0x20 appended         sid, id, opens u8, pairs, wire fields
    0x21 trimmed          sid, id (the last that is removed)
    0x22 deleted          sid, u8 (1: marks, 2: the last one's node stays), n, id*
    0x23 stream_set_id    sid, last, added, deleted
    0x24 stream_configured     sid, seconds, maxsize
    0x25 iid_recorded          sid, id, pid, iid
    0x26 iids_expired          sid, n u32, pid         (the oldest n of that producer)
    0x27 idempotency_restored  sid, seconds, maxsize, added u64, duplicates u64, n, (pid, m,
                               (iid, id)*)*
    0x28 iid_repeated          sid, duplicates u64     (their total number)
    0x29 stored                sid, a record of storing.py: it concerns no client, and has its own group
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from struct import Struct

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import (
        put_i64,
        put_id,
        put_kind,
        put_text,
        put_text_part,
        put_u8,
        put_u16,
        put_u32,
        put_u64,
        put_words,
    )

ID_BYTES = 16
HEADROOM = 96
"""Upper bound for the fixed part of any fact, in bytes. A caller of `Call.admit` adds the variable part."""

ALL_DATABASES = 255

KEY = Struct("<BB")
STREAM_CREATED = Struct("<BBI")
LENGTH = Struct("<I")
LIST_SIDE = Struct("<B")
LIST_POPPED = Struct("<BI")
KEY_PLACE = Struct("<B")
KEY_COPIED = Struct("<II")
GIDS = Struct("<II")
EXPIRY = Struct("<q")
DATABASES_SWAPPED = Struct("<BBB")
TRIMMED = Struct("<BIQQ")
DELETED = Struct("<BIBI")
STREAM_SET_ID = Struct("<BIQQQQQ")
STREAM_CONFIGURED = Struct("<BIII")
IID_RECORDED = Struct("<BIQQ")
IIDS_EXPIRED = Struct("<BII")
IDEMPOTENCY_RESTORED = Struct("<BIIIQQI")
IID_REPEATED = Struct("<BIQ")
GROUP_CREATED = Struct("<BIIQQqI")
GROUP = Struct("<BI")
GROUP_SET_ID = Struct("<BIQQq")
CONSUMER_CREATED = Struct("<BIIqI")
CONSUMER = Struct("<BII")
CONSUMER_SEEN = Struct("<BIIqq")
DELIVERED = Struct("<BIIQQQQQIqB")
ID = Struct("<QQ")


class FactBuffer:
    """Collects the facts that the mutators of a keyspace write. The node puts the facts of a command
    into a record group.

    ``muted`` discards everything: a store without a journal does not write facts.
    """

    def __init__(self, *, muted: bool = False) -> None:
        self.data = bytearray()
        self.muted = muted

    # --- keys -----------------------------------------------------------------------------------

    def stream_created(self, db: int, sid: int, key: bytes) -> None:
        if not self.muted:
            self.data += STREAM_CREATED.pack(0x10, db, sid)
            self._texts((key,))

    def string_set(self, db: int, key: bytes, value: bytes) -> None:
        if not self.muted:
            data = self.data  # not `_keyed`, which costs SET 30 instructions
            put_u16(data, 0x11 | db << 8)
            put_text(data, key)
            put_text(data, value)

    def hash_set(self, db: int, key: bytes, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        if not self.muted:
            self._keyed(0x12, db, key)
            self.data += LENGTH.pack(len(pairs))
            for pair in pairs:
                self._texts(pair)

    def hash_deleted(self, db: int, key: bytes, fields: Sequence[bytes]) -> None:
        if not self.muted:
            self._keyed(0x13, db, key)
            self.data += LENGTH.pack(len(fields))
            self._texts(fields)

    def key_deleted(self, db: int, key: bytes) -> None:
        if not self.muted:
            self._keyed(0x14, db, key)

    def expiry_set(self, db: int, key: bytes, at_ms: int) -> None:
        if not self.muted:
            self._keyed(0x15, db, key)
            self.data += EXPIRY.pack(at_ms)

    def flushed(self, db: int) -> None:
        if not self.muted:
            self.data += KEY.pack(0x16, db)

    def list_pushed(self, db: int, key: bytes, left: bool, values: Sequence[bytes]) -> None:
        if not self.muted:
            self._keyed(0x17, db, key)
            self.data += LIST_SIDE.pack(left)
            self._counted(values)

    def list_popped(self, db: int, key: bytes, left: bool, count: int) -> None:
        if not self.muted:
            self._keyed(0x18, db, key)
            self.data += LIST_POPPED.pack(left, count)

    def set_added(self, db: int, key: bytes, members: Sequence[bytes]) -> None:
        if not self.muted:
            self._keyed(0x19, db, key)
            self._counted(members)

    def set_removed(self, db: int, key: bytes, members: Sequence[bytes]) -> None:
        if not self.muted:
            self._keyed(0x1A, db, key)
            self._counted(members)

    def key_renamed(self, db: int, key: bytes, new_db: int, name: bytes) -> None:
        if not self.muted:
            self._keyed(0x1B, db, key)
            self.data += KEY_PLACE.pack(new_db)
            self._texts((name,))

    def key_copied(
        self,
        db: int,
        key: bytes,
        new_db: int,
        name: bytes,
        sid: int,
        gids: Sequence[tuple[int, int]],
    ) -> None:
        if not self.muted:
            self._keyed(0x1C, db, key)
            self.data += KEY_PLACE.pack(new_db)
            self._texts((name,))
            self.data += KEY_COPIED.pack(sid, len(gids))
            for pair in gids:
                self.data += GIDS.pack(*pair)

    def databases_swapped(self, first: int, second: int) -> None:
        if not self.muted:
            self.data += DATABASES_SWAPPED.pack(0x1D, first, second)

    def string_written(self, db: int, key: bytes, at: int, part: bytes) -> None:
        self._numbered(0x60, db, key, at, part)

    def list_set(self, db: int, key: bytes, index: int, text: bytes) -> None:
        self._numbered(0x61, db, key, index, text)

    def list_removed(self, db: int, key: bytes, left: bool, count: int, text: bytes) -> None:
        if not self.muted:
            self._keyed(0x62, db, key)
            self.data += LIST_POPPED.pack(left, count)
            self._texts((text,))

    # --- streams --------------------------------------------------------------------------------

    def appended(
        self,
        sid: int,
        ms: int,
        seq: int,
        opens_node: bool,
        pairs: int,
        wire: bytearray,
        start: int,
        end: int,
    ) -> None:
        if not self.muted:
            data = self.data
            put_kind(data, 0x20, sid)
            put_id(data, ms, seq)
            put_u8(data, opens_node)
            put_u32(data, pairs)
            put_text_part(data, wire, start, end)

    def trimmed(self, sid: int, ms: int, seq: int) -> None:
        if not self.muted:
            self.data += TRIMMED.pack(0x21, sid, ms, seq)

    def deleted(self, sid: int, marks: bool, stays: bool, ids: Sequence[tuple[int, int]]) -> None:
        if not self.muted:
            self.data += DELETED.pack(0x22, sid, marks | stays << 1, len(ids))
            self._ids(ids)

    def stream_set_id(
        self, sid: int, last: tuple[int, int], entries_added: int, deleted: tuple[int, int]
    ) -> None:
        if not self.muted:
            self.data += STREAM_SET_ID.pack(0x23, sid, *last, entries_added, *deleted)

    # --- idempotent producers -------------------------------------------------------------------

    def stream_configured(self, sid: int, duration_s: int, maxsize: int) -> None:
        if not self.muted:
            self.data += STREAM_CONFIGURED.pack(0x24, sid, duration_s, maxsize)

    def iid_recorded(self, sid: int, entry_id: tuple[int, int], pid: bytes, iid: bytes) -> None:
        if not self.muted:
            self.data += IID_RECORDED.pack(0x25, sid, *entry_id)
            self._texts((pid, iid))

    def iids_expired(self, sid: int, count: int, pid: bytes) -> None:
        if not self.muted:
            self.data += IIDS_EXPIRED.pack(0x26, sid, count)
            self._texts((pid,))

    def idempotency_restored(
        self,
        sid: int,
        duration_s: int,
        maxsize: int,
        added: int,
        duplicates: int,
        producers: Sequence[tuple[bytes, Sequence[tuple[bytes, tuple[int, int]]]]],
    ) -> None:
        if not self.muted:
            self.data += IDEMPOTENCY_RESTORED.pack(
                0x27, sid, duration_s, maxsize, added, duplicates, len(producers)
            )
            for pid, iids in producers:
                self._texts((pid,))
                self.data += LENGTH.pack(len(iids))
                for iid, entry_id in iids:
                    self._texts((iid,))
                    self._ids((entry_id,))

    def iid_repeated(self, sid: int, duplicates: int) -> None:
        if not self.muted:
            self.data += IID_REPEATED.pack(0x28, sid, duplicates)

    def stored(self, sid: int, record: bytes) -> None:
        if not self.muted:
            self.data += GROUP.pack(0x29, sid) + record

    # --- groups ---------------------------------------------------------------------------------

    def group_created(
        self, sid: int, gid: int, ms: int, seq: int, entries_read: int, name: bytes
    ) -> None:
        if not self.muted:
            self.data += GROUP_CREATED.pack(0x30, sid, gid, ms, seq, entries_read, len(name))
            self.data += name

    def group_destroyed(self, gid: int) -> None:
        if not self.muted:
            self.data += GROUP.pack(0x31, gid)

    def group_set_id(self, gid: int, ms: int, seq: int, entries_read: int) -> None:
        if not self.muted:
            self.data += GROUP_SET_ID.pack(0x32, gid, ms, seq, entries_read)

    def consumer_created(self, gid: int, cid: int, seen_time: int, name: bytes) -> None:
        if not self.muted:
            self.data += CONSUMER_CREATED.pack(0x33, gid, cid, seen_time, len(name))
            self.data += name

    def consumer_deleted(self, gid: int, cid: int) -> None:
        if not self.muted:
            self.data += CONSUMER.pack(0x34, gid, cid)

    def consumer_seen(self, gid: int, cid: int, seen_time: int, active_time: int) -> None:
        if not self.muted:
            self.data += CONSUMER_SEEN.pack(0x35, gid, cid, seen_time, active_time)

    def delivered(
        self,
        gid: int,
        cid: int,
        time: int,
        first: tuple[int, int],
        last: tuple[int, int],
        count: int,
        entries_read: int,
        noack: bool,
    ) -> None:
        if not self.muted:
            data = self.data
            put_kind(data, 0x40, gid)
            put_u32(data, cid)
            put_u64(data, time)
            put_id(data, first[0], first[1])
            put_id(data, last[0], last[1])
            put_u32(data, count)
            put_i64(data, entries_read)
            put_u8(data, noack)

    def acknowledged(self, gid: int, ids: array[int]) -> None:
        self._group_list(0x41, gid, ids, 2)

    def owned(
        self, gid: int, cid: int, seen_time: int, active_time: int, records: array[int]
    ) -> None:
        if not self.muted:
            data = self.data
            put_kind(data, 0x42, gid)
            put_u32(data, cid)
            put_i64(data, seen_time)
            put_i64(data, active_time)
            put_u32(data, len(records) // 4)
            put_words(data, records)

    def released(self, gid: int, records: array[int]) -> None:
        self._group_list(0x43, gid, records, 3)

    def delayed(self, gid: int, records: array[int]) -> None:
        self._group_list(0x44, gid, records, 4)

    def came_due(self, gid: int, ids: array[int]) -> None:
        self._group_list(0x45, gid, ids, 2)

    # --- parts ----------------------------------------------------------------------------------

    def _group_list(self, kind: int, gid: int, records: array[int], words: int) -> None:
        """Write a fact that consists of a group and records of ``words`` words each."""
        if not self.muted:
            data = self.data
            put_kind(data, kind, gid)
            put_u32(data, len(records) // words)
            put_words(data, records)

    def _keyed(self, kind: int, db: int, key: bytes) -> None:
        """Write the beginning of a fact about a key."""
        put_u16(self.data, kind | db << 8)
        put_text(self.data, key)

    def _numbered(self, kind: int, db: int, key: bytes, number: int, text: bytes) -> None:
        """Write a fact that consists of a key, a number and a text."""
        if not self.muted:
            self._keyed(kind, db, key)
            self.data += LENGTH.pack(number)
            self._texts((text,))

    def _texts(self, texts: Iterable[bytes]) -> None:
        for text in texts:
            put_text(self.data, text)

    def _counted(self, texts: Sequence[bytes]) -> None:
        self.data += LENGTH.pack(len(texts))
        self._texts(texts)

    def _ids(self, ids: Iterable[tuple[int, int]]) -> None:
        for ms, seq in ids:
            self.data += ID.pack(ms, seq)
