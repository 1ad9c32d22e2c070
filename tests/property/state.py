"""The state of a keyspace as plain values, so that two states can be compared and differences read."""

from __future__ import annotations

from typing import Any

from headwater.engine.facts.facts import FactBuffer
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.image.image import image_facts
from headwater.engine.keyspace.database import Value
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from headwater.engine.streams.stream import StoredStream
from tests.property.model import GREATEST, LEAST

Picture = dict[str, Any]


def picture(keyspace: Keyspace, *, bodies: bool = True) -> Picture:
    """Return everything that survives a restart; without ``bodies`` only the ids of entries, not their bytes."""
    return {
        "next": (keyspace.next_sid, keyspace.next_gid),
        "delaying": sorted(keyspace.delaying),
        "databases": {
            database.index: {
                key: (_value(value, bodies), database.expiries.get(key))
                for key, value in sorted(database.values.items())
            }
            for database in keyspace.databases
            if database.values
        },
    }


def from_an_image(groups: list[tuple[bytes, int]], moment: int) -> Keyspace:
    """Return the state that results from record groups, of which the first ``moment`` become an image. Half
    of the images have sealed blocks."""
    before = Keyspace(FactBuffer(muted=True))
    if moment % 2:
        before.sealing.configure(0, "zlib")
    for facts, now_ms in groups[:moment]:
        Replay(before).apply(memoryview(facts), now_ms)
        before.sealing.help(2)
    again = Keyspace(FactBuffer(muted=True))
    replay = Replay(again)
    for image in image_facts(before):
        replay.apply(memoryview(image), 0)
    assert picture(again) == picture(before)
    for facts, now_ms in groups[moment:]:
        replay.apply(memoryview(facts), now_ms)
    return again


def _value(value: Value, bodies: bool) -> Any:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, StoredStream):
        return value.copy()
    nodes, known = value.nodes, value.idempotency
    spans, _ = value.log.spans(LEAST, GREATEST)
    return {
        "sid": value.sid,
        "entries": b"".join(bytes(span.data()[span.start() : span.stop()]) for span in spans)
        if bodies
        else [entry_id for span in spans for entry_id in span.ids()],
        "counters": (
            value.length,
            value.last_id,
            value.max_deleted_id,
            value.max_trimmed_id,
            value.entries_added,
        ),
        "nodes": [
            (nodes.first(at), nodes.last(at), nodes.taken(at), nodes.live(at), nodes.size(at))
            for at in range(len(nodes))
        ],
        "idempotency": (known.duration_s, known.maxsize, known.added, known.duplicates),
        "producers": known.contents(),
        "since": {pid: list(one.since_ms) for pid, one in known.producers.items()},
        "groups": {name: _group(group) for name, group in sorted(value.groups.items())},
    }


def _group(group: ConsumerGroup) -> Picture:
    pel = group.pel
    pending = []
    at = pel.seek(0, 0)
    while at >= 0:
        pending.append((pel.id(at), pel.owner(at), pel.time(at), pel.delivery_count(at)))
        at = pel.after(at)
    return {
        "gid": group.gid,
        "position": (group.last_id, group.entries_read),
        "pending": pending,
        "order": [pel.id(at) for at in group.order.walk()],
        "released": list(group.released),
        "delayed": dict(group.delayed),
        "next_cid": group.next_cid,
        "consumers": {
            name: (one.cid, one.seen_time, one.active_time, one.pending)
            for name, one in sorted(group.consumers.items())
        },
    }
