"""Values that nobody can reach any more, freed a little at a time.

A mutator lets go of a stream, a group or a flushed database at once, and puts it into
`Keyspace.garbage` when it is large. Freeing a million small objects holds the loop for a tenth of a
second; the node calls `free` instead whenever it has a moment.
"""

from __future__ import annotations

from collections import deque

from headwater.engine.group import ConsumerGroup
from headwater.engine.idempotency import Producer
from headwater.engine.keyspace import Keyspace
from headwater.engine.stream import StoredStream

_CONTAINERS = (dict, list, set, deque, StoredStream, ConsumerGroup, Producer)

FREED_AT_ONCE = 5000
"""Objects that a turn frees, in less than a millisecond."""


def free(garbage: list[object], steps: int) -> None:
    """Let go of ``steps`` objects out of ``garbage``, or of all that is there."""
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
    """Take a whole keyspace apart that nobody needs any more, so that no references go round in it; the
    values that were still in it, to be freed."""
    for database in keyspace.databases:
        keyspace.empty(database)
    garbage, keyspace.garbage = keyspace.garbage, []
    keyspace.databases.clear()
    del keyspace.iid_deadlines
    return garbage


def _parts(value: object) -> list[object] | None:
    """What a value is made of; None for a container or anything small. Streams and groups know each
    other, so they are parted here and not left to the collector of cycles."""
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
    """Take up to ``steps`` values out of a container, large ones to be taken apart in their turn; how
    many were taken."""
    taken = 0
    while container and taken < steps:
        value = container.popitem()[1] if isinstance(container, dict) else container.pop()
        taken += 1
        if isinstance(value, _CONTAINERS):
            garbage.append(value)
            break  # it stands above its container now
    return taken
