"""Frees unreachable values a little at a time.

A mutator unlinks a deleted value or group immediately, and adds it to `Keyspace.garbage` if it is large. Freeing
a million small objects in one go would block the loop for a tenth of a second. Instead, the node calls `free` at
the end of each turn.
"""

from __future__ import annotations

from collections import deque

from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.idempotency import Producer
from headwater.engine.streams.stream import StoredStream

_CONTAINERS = (dict, list, set, deque, StoredStream, ConsumerGroup, Producer)

FREED_AT_ONCE = 5000
"""Maximum number of objects that a turn frees. Freeing them takes less than a millisecond."""


def free(garbage: list[object], steps: int) -> None:
    """Free ``steps`` objects of ``garbage``, or all if there are fewer."""
    while garbage and steps > 0:
        value = garbage[-1]
        parts = _parts(value)
        if parts is not None:
            garbage.pop()
            garbage.extend(parts)
        elif isinstance(value, dict | list | set | deque) and value:
            steps -= _take(value, garbage, steps)
        else:
            garbage.pop()
        steps -= 1


def dismantle(keyspace: Keyspace) -> list[object]:
    """Take apart a keyspace that is not needed any more, so that it contains no reference cycles. Return the
    values that were still in it, to be freed."""
    for database in keyspace.databases:
        keyspace.empty(database)
    garbage, keyspace.garbage = keyspace.garbage, []
    keyspace.databases.clear()
    del keyspace.iid_deadlines
    return garbage


def _parts(value: object) -> list[object] | None:
    """Return the parts of a value; None for a container or anything small. Streams and groups refer to each
    other, so they are separated here rather than by the cyclic collector."""
    if isinstance(value, StoredStream):
        groups, value.groups = value.groups, {}
        return [*groups.values(), value.log.blocks, value.idempotency.producers]
    if isinstance(value, ConsumerGroup):
        pel, order = value.pel, value.order
        parts = [value.released, value.delayed, value.due_order, value.by_cid, value.consumers]
        return [*parts, pel.blocks, pel.big_counts, order.index]
    if isinstance(value, Producer):
        return [value.iids, value.since_ms]
    return None


def _take(
    container: dict[object, object] | list[object] | set[object] | deque[object],
    garbage: list[object],
    steps: int,
) -> int:
    """Remove up to ``steps`` values from a container, and add large ones to ``garbage``. Return the number of
    removed values."""
    taken = 0
    while container and taken < steps:
        value = container.popitem()[1] if isinstance(container, dict) else container.pop()
        taken += 1
        if isinstance(value, _CONTAINERS):
            garbage.append(value)
            break  # it is now after its container in ``garbage``
    return taken
