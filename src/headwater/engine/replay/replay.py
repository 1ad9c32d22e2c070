"""Replays facts: calls the mutators that wrote them (facts.py, rule 2).

    facts of a group ──▶ Replay ─┬▶ here:            the kinds that messages write most often
                                 ├▶ replay_steps.py  the other kinds of the journal
                                 └▶ restoring.py     the kinds of images (image_facts.py)

Rule 1. The stream and the group of the last fact are remembered, because the next fact usually concerns them
        too. They are forgotten before any fact that could remove them.
"""

from __future__ import annotations

import sys
from array import array

from headwater.engine.facts.fact_reader import FactReader
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.image.image_facts import IMAGE_KINDS
from headwater.engine.keyspace.garbage import free
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay_steps import STEPS
from headwater.engine.replay.restoring import Restoring
from headwater.engine.streams.stream import StoredStream

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has it in C
    from headwater.native.memory import word_at

_ALL = sys.maxsize

_LEAST_IMAGE_KIND = min(IMAGE_KINDS)

_KEPT_BYTES = 1024 * 1024
"""Maximum number of bytes of an entry's fields whose buffer is kept for the next entry."""


class Replay:
    """Repeats changes in ``keyspace``, which only this object may use. ``done`` is the number of the current
    group in its batch; after an exception, the number of the group that cannot be applied.

    >>> from headwater.engine.facts.facts import FactBuffer
    >>> written, keyspace = FactBuffer(), Keyspace()
    >>> written.string_set(0, b"tea", b"green")
    >>> Replay(keyspace).apply(memoryview(written.data), now_ms=0)
    >>> keyspace.databases[0].values
    {b'tea': b'green'}
    """

    def __init__(self, keyspace: Keyspace) -> None:
        self.keyspace = keyspace
        self.done = 0
        self._reader = FactReader()
        self._restoring = Restoring(keyspace)
        self._wire = bytearray()
        """The fields of the entry that is being appended."""
        self._sid = self._gid = -1
        self._stream: StoredStream | None = None
        self._group: ConsumerGroup | None = None

    def apply(self, facts: memoryview, now_ms: int) -> None:
        """Repeat the changes of one record group of the time ``now_ms``. Raises `ValueError` for a kind that this
        version does not know and for an incomplete fact."""
        self.begin(facts, now_ms)
        self._apply_group()

    def apply_batch(
        self, data: memoryview, starts: array[int], ends: array[int], times: array[int], first: int
    ) -> None:
        """Repeat the changes of the record groups number ``first`` and later, in order. The facts of number n are
        ``data[starts[n]:ends[n]]``, its time is ``times[n]``. Raises the errors of `apply`."""
        self._forget()
        self._reader.attach(data)
        for number in range(first, len(starts)):
            self.done = number
            self._reader.select(
                word_at(starts, number), word_at(ends, number), word_at(times, number)
            )
            self._apply_group()
        self.done = len(starts)

    def begin(self, facts: memoryview, now_ms: int) -> None:
        """Begin with the facts of one record group, to be applied by `step`."""
        self._forget()
        self._reader.attach(facts)
        self._reader.select(0, len(facts), now_ms)

    def place(self) -> int:
        """Return the offset in the group at which the next fact begins; -1 at the end."""
        reader = self._reader
        return -1 if reader.at == reader.end else reader.at - reader.start

    def step(self) -> int:
        """Apply the next fact of the group. Return its kind, or -1 at the end."""
        reader = self._reader
        if reader.at == reader.end:
            return -1
        kind = reader.kind = reader.take_u8()
        if kind == 0x20:
            self._appended()
        elif kind == 0x40:
            self._delivered()
        elif kind == 0x41:
            self._acknowledged()
        elif kind == 0x42:
            self._owned()
        elif kind == 0x43:
            self._released()
        elif kind == 0x22:
            self._deleted()
        elif kind == 0x21:
            self._trimmed()
        else:
            self._forget()
            self._other(kind)
        return kind

    # --- parts ----------------------------------------------------------------------------------

    def _apply_group(self) -> None:
        while self.step() >= 0:
            pass
        if self.keyspace.garbage:
            free(self.keyspace.garbage, _ALL)

    def _other(self, kind: int) -> None:
        if kind >= _LEAST_IMAGE_KIND and kind in IMAGE_KINDS:
            self._restoring.apply(kind, self._reader)
            return
        step = STEPS.get(kind)
        if step is None:
            at = self._reader.at - 1 - self._reader.start
            raise ValueError(
                f"unknown kind of fact 0x{kind:02x} at byte {at} of its group; a later version may know it"
            )
        step(self.keyspace, self._reader)

    def _forget(self) -> None:
        """Forget the remembered stream and group (rule 1)."""
        self._sid = self._gid = -1
        self._stream = self._group = None

    def _stream_of(self, sid: int) -> StoredStream:
        stream = self._stream
        if stream is None or sid != self._sid:
            stream = self._stream = self.keyspace.streams[sid]
            self._sid = sid
        return stream

    def _group_of(self, gid: int) -> ConsumerGroup:
        group = self._group
        if group is None or gid != self._gid:
            group = self._group = self.keyspace.groups[gid]
            self._gid = gid
        return group

    # --- streams --------------------------------------------------------------------------------

    def _appended(self) -> None:
        reader, wire = self._reader, self._wire
        stream = self._stream_of(reader.take_u32())
        ms, seq = reader.take_u64(), reader.take_u64()
        opens, pairs, length = reader.take_u8(), reader.take_u32(), reader.take_u32()
        reader.take_into(length, wire)
        stream.append_part(ms, seq, wire, 0, length, pairs, opens != 0)
        if length > _KEPT_BYTES:
            self._wire = bytearray()

    def _trimmed(self) -> None:
        reader = self._reader
        stream = self._stream_of(reader.take_u32())
        ms, seq = reader.take_u64(), reader.take_u64()
        stream.trim_through(ms, seq)

    def _deleted(self) -> None:
        reader = self._reader
        stream = self._stream_of(reader.take_u32())
        flags, count = reader.take_u8(), reader.take_u32()
        ids = reader.take_ids(count)
        stream.delete(ids, marks=(flags & 1) != 0, stays=(flags & 2) != 0)

    # --- groups ---------------------------------------------------------------------------------

    def _delivered(self) -> None:
        reader = self._reader
        group = self._group_of(reader.take_u32())
        consumer = group.by_cid[reader.take_u32()]
        time, first, last = reader.take_u64(), reader.take_id(), reader.take_id()
        count, read, noack = reader.take_u32(), reader.take_i64(), reader.take_u8()
        group.deliver(consumer, time, first, last, count, read, noack != 0)

    def _acknowledged(self) -> None:
        reader = self._reader
        group = self._group_of(reader.take_u32())
        count = reader.take_u32()
        group.acknowledge(reader.take_words(2 * count))

    def _owned(self) -> None:
        reader = self._reader
        group = self._group_of(reader.take_u32())
        consumer = group.by_cid[reader.take_u32()]
        seen_time, active_time = reader.take_i64(), reader.take_i64()
        count = reader.take_u32()
        group.own(consumer, reader.take_words(4 * count), seen_time, active_time)

    def _released(self) -> None:
        reader = self._reader
        group = self._group_of(reader.take_u32())
        count = reader.take_u32()
        group.release(reader.take_words(3 * count))
