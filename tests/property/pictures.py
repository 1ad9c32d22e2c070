"""The common part of the states of the store and the naive model, in the same form."""

from __future__ import annotations

from typing import Any

from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.groups.pending import NOBODY, NOWHERE
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.idempotency import Idempotency
from headwater.engine.streams.stream import StoredStream
from headwater.testing.replies import Nil
from tests.property import model


def of_store(keyspace: Keyspace) -> dict[bytes, Any]:
    values = keyspace.databases[0].values.items()
    return {key: _stream(value) for key, value in values if isinstance(value, StoredStream)}


def of_model(store: model.EntriesModel) -> dict[bytes, Any]:
    return {key: _modelled(stream) for key, stream in store.streams.items()}


def _stream(stream: StoredStream) -> dict[str, Any]:
    spans, _ = stream.log.spans(model.LEAST, model.GREATEST)
    return {
        "entries": [entry_id for span in spans for entry_id in span.ids()],
        "counters": (stream.last_id, stream.max_deleted_id, stream.entries_added),
        "nodes": [stream.nodes.live(at) for at in range(len(stream.nodes))],
        "producers": _producers(stream.idempotency),
        "groups": {name: _group(group) for name, group in stream.groups.items()},
    }


def _producers(known: Idempotency) -> Any:
    tracked = {
        pid: list(zip(one.iids.values(), one.since_ms, strict=True))
        for pid, one in known.producers.items()
    }
    return known.duration_s, known.maxsize, known.added, known.duplicates, tracked


def _modelled(stream: model.Stream) -> dict[str, Any]:
    known = stream.producers
    return {
        "entries": sorted(stream.entries),
        "counters": (stream.last, stream.deleted, stream.added),
        "nodes": [sum(at in stream.entries for at in node) for node in stream.nodes],
        "producers": (known.duration, known.maxsize, known.added, known.duplicates, known.iids()),
        "groups": {name: _modelled_group(stream, one) for name, one in stream.groups.items()},
    }


def _group(group: ConsumerGroup) -> dict[str, Any]:
    pel, rows = group.pel, {}
    at = pel.seek(0, 0)
    while at != NOWHERE:
        owner = None if pel.owner(at) == NOBODY else group.by_cid[pel.owner(at)].name
        rows[pel.id(at)] = (owner, pel.time(at), pel.delivery_count(at))
        at = pel.after(at)
    lag = group.lag()
    return {
        "position": (group.last_id, group.entries_read, Nil.BULK if lag is None else lag),
        "pending": rows,
        "order": [pel.id(at) for at in group.order.walk()],
        "released": list(group.released),
        "delayed": group.delayed,
        "consumers": {
            name: (one.seen_time, one.active_time) for name, one in group.consumers.items()
        },
    }


def _modelled_group(stream: model.Stream, group: model.Group) -> dict[str, Any]:
    pending = group.pending.items()
    return {
        "position": (group.last, group.read, stream.lag(group)),
        "pending": {at: (one.owner, one.time, one.count) for at, one in pending},
        "order": group.order,
        "released": group.released,
        "delayed": {at: one.due for at, one in pending if one.due is not None},
        "consumers": {name: (one.seen, one.active) for name, one in group.consumers.items()},
    }
