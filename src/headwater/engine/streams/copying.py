"""Copying streams (COPY) and adopting streams that were built in another keyspace (RESTORE). Both take over
whole blocks without reading individual entries.

Rule 1. A copy shares nothing with its source that can change.
Rule 2. The numbers of a copied stream and its groups are arguments, because the fact contains them.
        Consumers keep their numbers within the group.
"""

from __future__ import annotations

from headwater.engine.facts.facts import FactBuffer
from headwater.engine.groups.consumer import GroupConsumer
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.shared.keyspace_state import KeyspaceState
from headwater.engine.shared.signals import KeySignals
from headwater.engine.streams.stream import StoredStream

PREFIX_BYTES = 256
"""Number of free bytes in front of facts that `adopt_facts` takes over, for the header of their record group."""


def copy_stream(
    source: StoredStream, db: KeySignals, key: bytes, sid: int, gids: dict[int, int]
) -> StoredStream:
    """Return a copy of ``source`` for ``key`` of ``db``. The copy is already registered with the keyspace.

    ``gids`` maps the number of each group to the number of its copy.
    """
    made = StoredStream(source.keyspace, db, key, sid)
    made.log, made.nodes = source.log.copy(sid), source.nodes.copy()
    made.last_id, made.entries_added = source.last_id, source.entries_added
    made.max_deleted_id, made.max_trimmed_id = source.max_deleted_id, source.max_trimmed_id
    made.enter()
    for name, group in source.groups.items():
        made.groups[name] = _copy_group(group, made, gids[group.gid])
    made.idempotency.copy_from(source.idempotency)
    return made


def adopt_stream(stream: StoredStream, db: KeySignals, key: bytes, *, now_ms: int) -> None:
    """Move a stream that was built in another keyspace to ``key`` of ``db``. Its number and the numbers of its
    groups must be unused in this keyspace, and its builder must not use the stream any longer. ``now_ms``
    is the time of the record group."""
    keyspace = db.keyspace
    stream.keyspace, stream.db, stream.key = keyspace, db, key
    stream.log.adopt(keyspace.sealing)
    stream.nodes.adopt(keyspace.weighing)
    stream.enter()
    for group in stream.groups.values():
        _adopt_group(group, keyspace)
        group.enter()
        if group.delayed:
            keyspace.delaying[group.gid] = group
            keyspace.note_due(group.due_order[0][0], group.gid)
    stream.idempotency.adopt(keyspace, now_ms)


def adopt_facts(buffer: FactBuffer, facts: bytearray) -> None:
    """Append facts that were written in another keyspace. They follow `PREFIX_BYTES` arbitrary bytes in
    ``facts``. If that prefix has space for the content of ``buffer``, they are not copied, and ``facts``
    becomes the memory of the buffer."""
    held = len(buffer.data)
    if buffer.muted:
        return
    if held > PREFIX_BYTES:
        buffer.data += memoryview(facts)[PREFIX_BYTES:]
    else:
        del facts[: PREFIX_BYTES - held]  # does not move the rest
        facts[:held] = buffer.data
        buffer.data = facts


def _adopt_group(group: ConsumerGroup, keyspace: KeyspaceState) -> None:
    group.keyspace.memory.groups -= group.booked
    group.keyspace, group.facts, group.booked = keyspace, keyspace.facts, 0
    group.order.leave_account()
    group.pel.account.pending -= group.pel.booked
    group.pel.account, group.pel.booked = keyspace.memory, 0
    group.pel.book()
    group.order.book()


def _copy_group(source: ConsumerGroup, stream: StoredStream, gid: int) -> ConsumerGroup:
    keyspace = source.keyspace
    made = ConsumerGroup(stream, source.name, gid, source.last_id, source.entries_read)
    made.next_cid = source.next_cid
    made.pel = source.pel.copy()
    made.order = source.order.copy(made.pel)
    made.released, made.delayed = dict(source.released), dict(source.delayed)
    made.due_order = list(source.due_order)
    for name, one in source.consumers.items():
        consumer = GroupConsumer(one.cid, name, one.seen_time)
        consumer.active_time, consumer.pending = one.active_time, one.pending
        made.consumers[name] = made.by_cid[one.cid] = consumer
    made.names_bytes = source.names_bytes
    made.enter()
    if made.delayed:
        keyspace.delaying[gid] = made
        keyspace.note_due(made.due_order[0][0], gid)
    for cid in keyspace.unseen.get(source.gid, ()):
        # The fact of the copy refers to the source, which has an older seen time after recovery.
        keyspace.note_seen(gid, cid)
    return made
