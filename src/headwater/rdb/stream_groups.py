"""The consumer groups of a stream's value: who reads, how far, and what is pending.

Rule 1. A pending entry that is read is owned by exactly one consumer or is released, never both and
        never neither; forms before 27 know no released ones.
Rule 2. Where a form knows none, the consumer with the empty name owns them: that is how XPENDING
        shows them in Redis 8.8. A released entry then has the delivery time 0, so that it is idle
        enough for any XAUTOCLAIM; a delayed one the time at which it is due.

Source: Redis, rdb.c (rdbSaveStreamPEL, rdbSaveStreamConsumers, rdbLoadObject).
"""

from __future__ import annotations

from headwater.limits import MAX_DELIVERY_COUNT, MAX_ENTRIES_COUNT
from headwater.rdb.image import (
    ID,
    NEVER,
    UNKNOWN,
    ConsumerImage,
    GroupImage,
    PendingImage,
)
from headwater.rdb.lengths import (
    ID_BYTES,
    Reader,
    put_id,
    put_length,
    put_raw_id,
    put_string,
    put_time,
)
from headwater.rdb.payload import BadPayload

NOBODY = b""
"""The consumer that has what nobody owns, in forms that cannot say so."""

_WRAP = 2**64


def read(reader: Reader, *, counted: bool, active: bool, released: bool) -> list[GroupImage]:
    """The groups; which parts a type has, its caller knows. Raises `BadPayload`."""
    groups: dict[bytes, GroupImage] = {}
    for _ in range(reader.count(5)):
        name, last_id = reader.string(), reader.id()
        entries_read = reader.length() if counted else None
        if name in groups:
            raise BadPayload(f"two groups are named {name!r}")
        if entries_read is not None and entries_read > MAX_ENTRIES_COUNT:
            entries_read = UNKNOWN  # -1 in the 64 bits that Redis writes.
        group = GroupImage(name, last_id, entries_read)
        group.pending = _pending(reader)
        group.consumers = _consumers(reader, active=active)
        if released:
            group.released = [reader.raw_id() for _ in range(reader.count(ID_BYTES))]
        _check_owners(group)
        groups[name] = group
    return list(groups.values())


def _pending(reader: Reader) -> list[PendingImage]:
    found: list[PendingImage] = []
    for _ in range(reader.count(ID_BYTES + 9)):
        entry_id, time, count = reader.raw_id(), reader.time(), reader.length()
        if found and entry_id <= found[-1].id:
            raise BadPayload("pending ids do not rise")
        if time < 0:
            raise BadPayload(f"an entry was delivered at {time}")
        found.append(PendingImage(entry_id, time, min(count, MAX_DELIVERY_COUNT)))
    return found


def _consumers(reader: Reader, *, active: bool) -> list[ConsumerImage]:
    found: dict[bytes, ConsumerImage] = {}
    for _ in range(reader.count(10)):
        name, seen_time = reader.string(), reader.time()
        # Where nothing else is known, who was seen was active, as Redis reads it.
        active_time = reader.time() if active else seen_time
        if name in found:
            raise BadPayload(f"two consumers are named {name!r}")
        if seen_time < 0 or (active_time < 0 and active_time != NEVER):
            raise BadPayload(f"a consumer was seen at {seen_time} and active at {active_time}")
        pending = [reader.raw_id() for _ in range(reader.count(ID_BYTES))]
        found[name] = ConsumerImage(name, seen_time, active_time, pending)
    return list(found.values())


def _check_owners(group: GroupImage) -> None:
    """Rule 1."""
    unowned = {pending.id for pending in group.pending}
    for ids in (*(consumer.pending for consumer in group.consumers), group.released):
        for entry_id in ids:
            if entry_id not in unowned:
                raise BadPayload(f"{entry_id} is not pending, or somebody else's")
            unowned.remove(entry_id)
    if unowned:
        raise BadPayload(f"{len(unowned)} pending entries belong to nobody")


def write(out: bytearray, groups: list[GroupImage], *, active: bool, released: bool) -> None:
    """The groups; without ``released`` by rule 2."""
    put_length(out, len(groups))
    for group in groups:
        put_string(out, group.name)
        put_id(out, group.last_id)
        assert group.entries_read is not None, "every form that is written says how much was read"
        put_length(out, group.entries_read % _WRAP)
        put_length(out, len(group.pending))
        for entry_id, time, deliveries in group.pending:
            put_raw_id(out, entry_id)
            put_time(out, time)
            put_length(out, deliveries)
        consumers = group.consumers if released else _with_nobody(group)
        put_length(out, len(consumers))
        for consumer in consumers:
            _put_consumer(out, consumer, active=active)
        if released:
            _put_ids(out, group.released)


def _with_nobody(group: GroupImage) -> list[ConsumerImage]:
    """The consumers, one of which has what nobody owns."""
    if not group.released:
        return group.consumers
    found = {consumer.name: consumer for consumer in group.consumers}
    there = found.get(NOBODY, ConsumerImage(NOBODY, 0, NEVER))
    found[NOBODY] = ConsumerImage(
        NOBODY, there.seen_time, there.active_time, sorted(there.pending + group.released)
    )
    return [found[name] for name in sorted(found)]


def _put_consumer(out: bytearray, consumer: ConsumerImage, *, active: bool) -> None:
    put_string(out, consumer.name)
    put_time(out, consumer.seen_time)
    if active:
        put_time(out, consumer.active_time)
    _put_ids(out, consumer.pending)


def _put_ids(out: bytearray, ids: list[ID]) -> None:
    put_length(out, len(ids))
    for entry_id in ids:
        put_raw_id(out, entry_id)
