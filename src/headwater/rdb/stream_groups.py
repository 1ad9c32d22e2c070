"""The consumer groups of a stream's value: consumers, positions and pending entries.

Rule 1. Each pending entry that is read has exactly one owner, or is released. Forms before 27 do not have
        released entries.
Rule 2. Forms before 27 assign released entries to the consumer with the empty name, under which XPENDING of
        Redis 8.8 also shows them. A released entry then has the delivery time 0, so any XAUTOCLAIM finds
        it idle for long enough. A delayed entry has its due time as delivery time.

Source: Redis, rdb.c (rdbSaveStreamPEL, rdbSaveStreamConsumers, rdbLoadObject).
"""

from __future__ import annotations

from array import array

from headwater.common.limits import MAX_ENTRIES_COUNT
from headwater.common.steps import Steps
from headwater.rdb import pending
from headwater.rdb.errors import BadPayload
from headwater.rdb.image import (
    NEVER,
    UNKNOWN,
    ConsumerImage,
    GroupImage,
    PendingImage,
)
from headwater.rdb.image import NOBODY as UNOWNED
from headwater.rdb.lengths import ID_BYTES, ByteReader, put_id, put_length, put_string, put_time

NOBODY = b""
"""Name of the consumer that owns the released entries in forms before 27 (rule 2)."""

_WRAP = 2**64

_AT_ONCE = 8192
"""Maximum number of pending entries in one step."""


def read(
    reader: ByteReader, *, counted: bool, active: bool, released: bool
) -> Steps[list[GroupImage]]:
    """Return the groups. The three flags say which parts the type of stream has. Raises `BadPayload`."""
    groups: dict[bytes, GroupImage] = {}
    for _ in range(reader.count(5)):
        name, last_id = reader.string(), reader.id()
        entries_read = reader.length() if counted else None
        if name in groups:
            raise BadPayload(f"two groups have the name {name!r}")
        if entries_read is not None and entries_read > MAX_ENTRIES_COUNT:
            entries_read = UNKNOWN  # Redis writes -1 as 64 bits.
        group = GroupImage(name, last_id, entries_read)
        left = reader.count(ID_BYTES + 9)
        while left:
            count = min(left, _AT_ONCE)
            pending.read(reader, group.pending, count)
            left -= count
            yield
        yield from _read_consumers(reader, group, active=active)
        if released:
            group.released = yield from _read_owner(reader, group.pending, UNOWNED)
        unclaimed = pending.unclaimed(group.pending)
        if unclaimed:
            raise BadPayload(f"{unclaimed} pending entries have no owner")
        groups[name] = group
        yield
    return list(groups.values())


def _read_consumers(reader: ByteReader, group: GroupImage, *, active: bool) -> Steps[None]:
    names: set[bytes] = set()
    for _ in range(reader.count(10)):
        name, seen_time = reader.string(), reader.time()
        # Without an active time, Redis uses the seen time.
        active_time = reader.time() if active else seen_time
        if name in names:
            raise BadPayload(f"two consumers have the name {name!r}")
        if seen_time < 0 or (active_time < 0 and active_time != NEVER):
            raise BadPayload(
                f"a consumer has the seen time {seen_time} and active time {active_time}"
            )
        names.add(name)
        group.consumers.append(ConsumerImage(name, seen_time, active_time))
        yield from _read_owner(reader, group.pending, len(group.consumers))


def _read_owner(reader: ByteReader, entries: PendingImage, owner: int) -> Steps[array[int]]:
    """Return the ids of the pending entries of one consumer, or of the released ones, and set their owner."""
    found = array("Q")
    left = reader.count(ID_BYTES)
    while left:
        count = min(left, _AT_ONCE)
        ids = pending.read_ids(reader, count)
        pending.claim(entries, ids, owner)
        found += ids
        left -= count
        yield
    return found


def write(out: bytearray, groups: list[GroupImage], *, active: bool, released: bool) -> Steps[None]:
    """Write the groups. Without ``released``, released entries are written according to rule 2."""
    put_length(out, len(groups))
    for group in groups:
        put_string(out, group.name)
        put_id(out, group.last_id)
        assert group.entries_read is not None, "every form that is written has entries_read"
        put_length(out, group.entries_read % _WRAP)
        count = len(group.pending.owners)
        put_length(out, count)
        for first in range(0, count, _AT_ONCE):
            pending.write(out, group.pending, first, min(first + _AT_ONCE, count))
            yield
        yield from _write_consumers(out, group, active=active, released=released)
        if released:
            put_length(out, len(group.released) // 2)
            for word in range(0, len(group.released), 2 * _AT_ONCE):
                pending.write_words(out, group.released[word : word + 2 * _AT_ONCE])
                yield


def _write_consumers(
    out: bytearray, group: GroupImage, *, active: bool, released: bool
) -> Steps[None]:
    """Write the consumers. Without ``released``, the consumer `NOBODY` owns the released entries."""
    entries = group.pending
    begins, order = pending.of_each(entries, len(group.consumers))
    yield
    shown = [(one, number) for number, one in enumerate(group.consumers, 1)]
    spare = 0 if released else len(group.released) // 2
    if spare and not any(one.name == NOBODY for one in group.consumers):
        shown.append((ConsumerImage(NOBODY, 0, NEVER), UNOWNED))
    if spare:
        shown.sort(key=lambda pair: pair[0].name)
    put_length(out, len(shown))
    for consumer, number in shown:
        put_string(out, consumer.name)
        put_time(out, consumer.seen_time)
        if active:
            put_time(out, consumer.active_time)
        own = order[begins[number] : begins[number + 1]]
        if spare and number != UNOWNED and consumer.name == NOBODY:
            own = array("I", sorted(own + order[begins[UNOWNED] : begins[UNOWNED + 1]]))
        put_length(out, len(own))
        for first in range(0, len(own), _AT_ONCE):
            pending.write_ids(out, entries, own, first, min(first + _AT_ONCE, len(own)))
            yield
