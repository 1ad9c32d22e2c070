"""Timers of a node: end delays, expire keys, forget idempotent ids, record the times at which consumers
were seen.

Each change is a separate record group. While the journal has no room for it, the change waits: a delayed
entry stays delayed, an expired key stays invisible (database.py, rule 1).
"""

from __future__ import annotations

from headwater.common.limits import IID_SWEEP_MS, MAX_IIDS_A_SWEEP, MAX_KEYS_EXPIRED_AT_ONCE
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.keyspace.events import EXPIRED
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.server.services.records import TurnRecords

SEEN_BYTES = 32
"""Bytes of the fact of a seen time."""


def end_delays(keyspace: Keyspace, records: TurnRecords, now_ms: int) -> None:
    """Move due delayed entries to the released zone of their group."""
    while (at := keyspace.next_due()) is not None and at <= now_ms:
        group = keyspace.next_due_group()
        due = group.due(now_ms)
        if not records.admits(HEADROOM + len(due) * due.itemsize):
            return
        mark = records.begin()
        group.end_delay(due)
        records.seal(mark, now_ms)


def expire_keys(keyspace: Keyspace, records: TurnRecords, now_ms: int) -> None:
    """Delete keys that have expired, in order of expiry, `MAX_KEYS_EXPIRED_AT_ONCE` at most."""
    for _ in range(MAX_KEYS_EXPIRED_AT_ONCE):
        first = keyspace.first_expiry()
        if first is None or first[0] > now_ms or not records.admits(HEADROOM + len(first[2])):
            return
        _, database, key = first
        mark = records.begin()
        database.delete(key)
        records.seal(mark, now_ms)
        keyspace.expired_count += 1
        if keyspace.notified & EXPIRED:
            keyspace.events.append((database.index, b"expired", key))


def forget_iids(keyspace: Keyspace, records: TurnRecords, now_ms: int) -> None:
    """Forget the idempotent ids that had expired at the last whole second. No reply waits for this change.

    A call stops after `MAX_IIDS_A_SWEEP` ids, before the next producer. If the disk is full, the next attempt is a
    second later.
    """
    deadlines = keyspace.iid_deadlines
    at = deadlines.next_sweep_ms()
    if at is None or at > now_ms:
        return
    second = now_ms - now_ms % IID_SWEEP_MS
    left = MAX_IIDS_A_SWEEP
    mark = records.begin()
    while left > 0 and (first := deadlines.first()) is not None and first[0] <= second:
        _, idempotency, pid = first
        if not records.admits(HEADROOM + len(pid)):
            deadlines.postponed_ms = now_ms + IID_SWEEP_MS
            break
        count = idempotency.run_out(pid, second)
        assert count, f"the oldest iid of {pid!r} has expired, but none is found"
        idempotency.expire(pid, count)
        left -= count
    records.seal_unawaited(mark, now_ms)


def record_seen(keyspace: Keyspace, records: TurnRecords, now_ms: int) -> None:
    """Record the seen times of consumers that no other fact has recorded; no reply waits (design rule 3)."""
    if keyspace.unseen and records.admits(SEEN_BYTES * sum(map(len, keyspace.unseen.values()))):
        mark = records.begin()
        record_unseen(keyspace)
        records.seal_unawaited(mark, now_ms)
    keyspace.unseen.clear()


def record_unseen(keyspace: Keyspace) -> None:
    """Write the facts of these seen times. The caller must have opened a group."""
    for gid, cids in [*keyspace.unseen.items()]:
        group = keyspace.groups[gid]
        for consumer in map(group.by_cid.__getitem__, list(cids)):
            group.record_seen(consumer, consumer.seen_time, consumer.active_time)
