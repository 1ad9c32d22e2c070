"""Idempotent producers: their idempotent ids (iids), each with the entry of the stream that was added for it.

    Idempotency ── producers[pid] ──▶ Producer ── iids: iid → entry id, oldest first
                                         └ noted_ms ◀──▶ Deadlines.notes: heap of (ms, sid, pid)

Rule 1. At most ``maxsize`` iids of a producer are stored: recording one more drops the oldest. A producer
        without iids does not exist.
Rule 2. Deleting an entry does not delete its iid, and `find` reads no clock. An iid is dropped by
        `expire`, which the node calls once a second, by rule 1, by `configure`, or with its stream.
Rule 3. The *oldest* iid is the one that was recorded first. An iid counts from the time of its record
        group, which is steady time; entry ids follow the wall clock, which may jump. The iid of an older
        entry (XIDMPRECORD, RESTORE) counts from the time in that entry's id, as in Redis.
Rule 4. Nothing iterates over all producers: the store's `Deadlines` has one note for each, at or before
        the time at which its oldest iid expires.

Source: redis.io, Idempotent message processing; Redis's t_stream.c (8.6).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from heapq import heapify, heappop, heappush, heapreplace

from headwater.common.limits import IDMP_DURATION_S, IDMP_MAXSIZE, IID_SWEEP_MS, MAX_ENTRIES_COUNT
from headwater.engine.accounts.memory_account import IID_BYTES, PRODUCER_BYTES, text_bytes
from headwater.engine.shared.keyspace_state import KeyspaceState

ID = tuple[int, int]


class Producer:
    """The iids of one producer of one stream."""

    __slots__ = ("iids", "noted_ms", "since_ms")

    def __init__(self, noted_ms: int) -> None:
        self.iids: OrderedDict[bytes, ID] = OrderedDict()
        self.since_ms: deque[int] = deque()
        """The steady time from which each iid counts, in the same order."""
        self.noted_ms = noted_ms
        """The time of the producer's note in `Deadlines`. Notes with another time are stale."""


class Idempotency:
    """The idempotent producers of the stream ``sid``.

    >>> from headwater.engine.keyspace.keyspace import Keyspace
    >>> keyspace = Keyspace()
    >>> known = keyspace.databases[0].create_stream(b"orders", keyspace.next_sid).idempotency
    >>> known.record(b"shop-1", b"order-7", (5, 1), now_ms=9)
    >>> known.find(b"shop-1", b"order-7"), known.find(b"shop-2", b"order-7")
    ((5, 1), None)
    """

    __slots__ = (
        "added", "booked", "duplicates", "duration_s", "keyspace", "maxsize", "names_bytes",
        "producers", "sid", "tracked",
    )  # fmt: skip

    def __init__(self, keyspace: KeyspaceState, sid: int) -> None:
        self.keyspace = keyspace
        self.sid = sid
        self.duration_s = IDMP_DURATION_S
        self.maxsize = IDMP_MAXSIZE
        self.producers: dict[bytes, Producer] = {}
        self.tracked = 0
        """Number of stored iids of all producers."""
        self.added = 0
        """Number of iids that were ever recorded."""
        self.duplicates = 0
        """Number of times that a known iid was sent again."""
        self.names_bytes = 0
        """Total length of all stored iids and memory of the producers' names, in bytes."""
        self.booked = 0

    def __del__(self) -> None:
        self.keyspace.memory.idempotency -= self.booked

    # --- reading --------------------------------------------------------------------------------

    def find(self, pid: bytes, iid: bytes) -> ID | None:
        """Return the id of the entry that was added for ``iid`` of ``pid``; None if the iid is not stored."""
        producer = self.producers.get(pid)
        return None if producer is None else producer.iids.get(iid)

    def runs_out_ms(self, producer: Producer) -> int:
        """Return the time at which the producer's oldest iid expires, in steady ms."""
        return producer.since_ms[0] + self.duration_s * 1000

    def run_out(self, pid: bytes, now_ms: int) -> int:
        """Return the number of the oldest iids of ``pid`` that have expired, up to the first that has not."""
        count = 0
        for since_ms in self.producers[pid].since_ms:
            if since_ms + self.duration_s * 1000 > now_ms:
                break
            count += 1
        return count

    def contents(self) -> list[tuple[bytes, list[tuple[bytes, ID]]]]:
        """Return every producer with its iids, oldest first, in the form that `restore` takes."""
        return [(pid, list(one.iids.items())) for pid, one in self.producers.items()]

    # --- mutators -------------------------------------------------------------------------------

    def configure(self, duration_s: int, maxsize: int) -> None:
        """Set the lifetime of iids, in seconds, and their maximum number per producer (XCFGSET). Drops all iids."""
        self._forget()
        self.duration_s, self.maxsize = duration_s, maxsize
        self.keyspace.facts.stream_configured(self.sid, duration_s, maxsize)

    def record(self, pid: bytes, iid: bytes, entry_id: ID, *, now_ms: int) -> None:
        """Record that ``iid`` of ``pid``, unknown so far, became the entry ``entry_id`` at ``now_ms`` (rule 3)."""
        is_new = self.keyspace.streams[self.sid].last_id == entry_id
        self._add(pid, iid, entry_id, now_ms if is_new else min(entry_id[0], now_ms))
        if self.added != MAX_ENTRIES_COUNT:
            self.added += 1
        self.keyspace.facts.iid_recorded(self.sid, entry_id, pid, iid)

    def count_duplicate(self, duplicates: int) -> None:
        """Set the number of repeated iids after a known iid was sent again."""
        self.duplicates = duplicates
        self.keyspace.facts.iid_repeated(self.sid, duplicates)

    def expire(self, pid: bytes, count: int) -> None:
        """Drop the ``count`` oldest iids of ``pid``."""
        producer = self.producers[pid]
        for _ in range(count):
            self._drop_oldest(producer)
        if producer.iids:
            self._note(pid, producer)
        else:
            del self.producers[pid]
            self.names_bytes -= text_bytes(pid)
        self.book()
        self.keyspace.facts.iids_expired(self.sid, count, pid)

    def restore(
        self,
        duration_s: int,
        maxsize: int,
        added: int,
        duplicates: int,
        producers: list[tuple[bytes, list[tuple[bytes, ID]]]],
        *,
        now_ms: int,
    ) -> None:
        """Replace the content (RESTORE). Each producer must have an iid, and each iid must occur once.
        ``now_ms`` is the time of the record group (rule 3)."""
        self._become(duration_s, maxsize, added, duplicates)
        for pid, iids in producers:
            for iid, entry_id in iids:
                self._add(pid, iid, entry_id, min(entry_id[0], now_ms))
        self.keyspace.facts.idempotency_restored(
            self.sid, duration_s, maxsize, added, duplicates, producers
        )

    # --- parts of mutators ----------------------------------------------------------------------

    def copy_from(self, other: Idempotency) -> None:
        """Copy the content of another stream's idempotency. Part of the mutator that copies a stream, after
        the copy was registered with its keyspace."""
        self._become(other.duration_s, other.maxsize, other.added, other.duplicates)
        for pid, producer in other.producers.items():
            for (iid, entry_id), since_ms in zip(
                producer.iids.items(), producer.since_ms, strict=True
            ):
                self._add(pid, iid, entry_id, since_ms)

    def resume(self, duration_s: int, maxsize: int, added: int, duplicates: int) -> None:
        """Begin with the content of an image, which `resume_producer` adds."""
        self._become(duration_s, maxsize, added, duplicates)

    def resume_producer(self, pid: bytes, iids: list[tuple[bytes, ID, int]]) -> None:
        """Add iids of ``pid``, oldest first, each with its entry and the steady time from which it counts."""
        for iid, entry_id, since_ms in iids:
            self._add(pid, iid, entry_id, since_ms)

    def adopt(self, keyspace: KeyspaceState, now_ms: int) -> None:
        """Move to another keyspace, where the stream is registered already. ``now_ms`` is the time of the
        record group that moves it (rule 3)."""
        self.keyspace.memory.idempotency -= self.booked
        self.keyspace, self.booked = keyspace, 0
        self.book()
        for pid, producer in self.producers.items():
            producer.since_ms = deque(min(ms, now_ms) for ms, _ in producer.iids.values())
            self._note(pid, producer)

    def _become(self, duration_s: int, maxsize: int, added: int, duplicates: int) -> None:
        self._forget()
        self.duration_s, self.maxsize = duration_s, maxsize
        self.added, self.duplicates = added, duplicates

    def _add(self, pid: bytes, iid: bytes, entry_id: ID, since_ms: int) -> None:
        producer = self.producers.get(pid)
        if producer is None:
            producer = self.producers[pid] = Producer(0)
            self.names_bytes += text_bytes(pid)
        assert iid not in producer.iids
        producer.iids[iid] = entry_id
        producer.since_ms.append(since_ms)
        if len(producer.iids) == 1:
            self._note(pid, producer)
        self.tracked += 1
        self.names_bytes += len(iid)
        if len(producer.iids) > self.maxsize:
            self._drop_oldest(producer)
            if self.runs_out_ms(producer) < producer.noted_ms:
                self._note(pid, producer)
        self.book()

    def _drop_oldest(self, producer: Producer) -> None:
        self.names_bytes -= len(producer.iids.popitem(last=False)[0])
        producer.since_ms.popleft()
        self.tracked -= 1

    def book(self) -> None:
        """Account for the memory of the producers and their iids."""
        size = PRODUCER_BYTES * len(self.producers) + IID_BYTES * self.tracked + self.names_bytes
        self.keyspace.memory.idempotency += size - self.booked
        self.booked = size

    def _note(self, pid: bytes, producer: Producer) -> None:
        producer.noted_ms = self.runs_out_ms(producer)
        self.keyspace.iid_deadlines.note(producer.noted_ms, self.sid, pid)

    def _forget(self) -> None:
        producers, self.producers = self.producers, {}
        self.keyspace.discard(producers, self.tracked)
        self.tracked = self.names_bytes = 0
        self.book()


class Deadlines:
    """The times at which the oldest iid of each producer of the store expires, earliest first.

    Notes are not part of the state: they follow from the producers, and stale ones are skipped.
    """

    def __init__(self, keyspace: KeyspaceState) -> None:
        self.keyspace = keyspace
        self.notes: list[tuple[int, int, bytes]] = []
        """Heap of (ms, sid, pid). A note is valid while that producer's ``noted_ms`` is the same."""
        self.postponed_ms = 0
        """No sweep runs before this time, because the journal had no space for the last one."""
        self._sort_out_at = 64

    def note(self, ms: int, sid: int, pid: bytes) -> None:
        """Add a note for a producer. Removes stale notes once they may outnumber the valid ones."""
        heappush(self.notes, (ms, sid, pid))
        if len(self.notes) > self._sort_out_at:
            self.notes = [one for one in set(self.notes) if self._producer(one) is not None]
            heapify(self.notes)
            self._sort_out_at = 2 * len(self.notes) + 64

    def first(self) -> tuple[int, Idempotency, bytes] | None:
        """Return the time at which the oldest iid of all expires, and its producer; None if no iid is stored."""
        notes = self.notes
        while notes:
            ms, sid, pid = notes[0]
            producer = self._producer(notes[0])
            if producer is None:
                heappop(notes)
                continue
            idempotency = self.keyspace.streams[sid].idempotency
            true_ms = idempotency.runs_out_ms(producer)
            if true_ms == ms:
                return ms, idempotency, pid
            producer.noted_ms = true_ms  # The iid of the note was dropped by rule 1.
            heapreplace(notes, (true_ms, sid, pid))
        return None

    def next_sweep_ms(self) -> int | None:
        """Return the time of the next sweep, in steady ms: the first whole second at which an iid has expired, or
        ``postponed_ms`` if that is later; None if no iid is stored."""
        first = self.first()
        if first is None:
            return None
        return max(-(-first[0] // IID_SWEEP_MS) * IID_SWEEP_MS, self.postponed_ms)

    def _producer(self, note: tuple[int, int, bytes]) -> Producer | None:
        """Return the producer of a note; None if the note is stale."""
        stream = self.keyspace.streams.get(note[1])
        producer = None if stream is None else stream.idempotency.producers.get(note[2])
        return producer if producer is not None and producer.noted_ms == note[0] else None
