"""What time alone asks of a node: delays end, keys expire, seen times become facts.

Each is a record group of its own. What the journal has no room for stays as it is until it has:
a delayed entry goes on waiting, an expired key stays invisible (keyspace.py, rule 1).
"""

from __future__ import annotations

from headwater.engine.facts import HEADROOM, ID_BYTES
from headwater.engine.keyspace import Keyspace
from headwater.server.records import TurnRecords

_SEEN_BYTES = 32


def end_delays(keyspace: Keyspace, records: TurnRecords, now_ms: int) -> None:
    """Move delayed entries whose time has come to the released zone of their group."""
    while (at := keyspace.next_due()) is not None and at <= now_ms:
        group = keyspace.next_due_group()
        due = group.due(now_ms)
        if not records.admits(HEADROOM + ID_BYTES * len(due)):
            return
        mark = records.begin()
        group.end_delay(due)
        records.seal(mark, now_ms)


def expire_keys(keyspace: Keyspace, records: TurnRecords, now_ms: int) -> None:
    """Delete keys whose time has come."""
    at = keyspace.next_expiry()
    if at is None or at > now_ms:
        return
    for database, key in keyspace.expired(now_ms):
        if records.admits(HEADROOM + len(key)):
            mark = records.begin()
            database.delete(key)
            records.seal(mark, now_ms)


def record_seen(keyspace: Keyspace, records: TurnRecords, now_ms: int) -> None:
    """Write down the times of consumers that were only seen; nobody waits for that (law 3)."""
    unseen = keyspace.unseen
    if unseen and records.admits(_SEEN_BYTES * len(unseen)):
        mark = records.begin()
        for gid, cid in unseen:
            group = keyspace.groups[gid]
            consumer = group.by_cid[cid]
            group.record_seen(consumer, consumer.seen_time, consumer.active_time)
        records.seal(mark, now_ms, awaited=False)
    unseen.clear()
