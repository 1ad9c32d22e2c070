"""The metrics of a store, for Prometheus: one table with the definition and the source of each.

Rule 1. If redis_exporter has a metric, its name and labels are used, so that its dashboards work.
Rule 2. A value that the server does not report is omitted, not 0.
Rule 3. Streams are read together (`streams`). Entries are transferred only if the user may not run scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from headwater.common.names import text_of
from headwater.common.prometheus import Metric, MetricSample, counter, gauge
from headwater.groups.protocol.capabilities import info_fields
from headwater.groups.protocol.operation import Command, Operation, Refused, accepted, mapping
from headwater.messages.keys import dead_letter_stream
from headwater.operations.replication import Link, LinkState, ReplicaRow, member
from headwater.operations.streams import GroupLag, StreamSummary, lags, names, summaries

T = TypeVar("T")

GROUPS_AT_ONCE = 500
"""Maximum number of groups whose consumers are read in one request."""


_STREAM, _GROUP = ("db", "stream"), ("db", "stream", "group")
_CONSUMER = (*_GROUP, "consumer")


UP: Final = gauge("redis_up", "1 if the store answered.")

SERVER: Final[Mapping[Metric, str]] = {
    gauge("redis_uptime_in_seconds", "Seconds since the server started."): "uptime_in_seconds",
    gauge("redis_connected_clients", "Connected clients."): "connected_clients",
    gauge("redis_blocked_clients", "Clients that wait in a blocking command."): "blocked_clients",
    gauge("redis_connected_slaves", "Connected replicas."): "connected_slaves",
    gauge("redis_master_repl_offset", "Offset of the store in its history."): "master_repl_offset",
    gauge("redis_memory_used_bytes", "Memory that the data and the clients use."): "used_memory",
    gauge("redis_memory_used_rss_bytes", "Memory of the process."): "used_memory_rss",
    gauge("redis_memory_max_bytes", "maxmemory; 0 for no limit."): "maxmemory",
    gauge("redis_loading_dump_file", "1 while the store is loaded."): "loading",
    gauge(
        "redis_rdb_last_save_timestamp_seconds", "Time of the last snapshot or image, in Unix time."
    ): ("rdb_last_save_time"),
    gauge("redis_rdb_changes_since_last_save", "Changes since the last snapshot or image."): (
        "rdb_changes_since_last_save"
    ),
    gauge("redis_aof_current_size_bytes", "Size of the append-only file or journal."): (
        "aof_current_size"
    ),
    counter("redis_commands_processed_total", "Commands that were executed."): (
        "total_commands_processed"
    ),
    counter("redis_connections_received_total", "Connections that were accepted."): (
        "total_connections_received"
    ),
    counter("redis_rejected_connections_total", "Connections that were refused."): (
        "rejected_connections"
    ),
    counter("redis_net_input_bytes_total", "Bytes received."): "total_net_input_bytes",
    counter("redis_net_output_bytes_total", "Bytes sent."): "total_net_output_bytes",
    counter("redis_expired_keys_total", "Keys that expired."): "expired_keys",
    counter("redis_evicted_keys_total", "Keys that were evicted."): "evicted_keys",
    counter("redis_keyspace_hits_total", "Reads of keys that exist."): "keyspace_hits",
    counter("redis_keyspace_misses_total", "Reads of keys that do not exist."): "keyspace_misses",
    gauge("headwater_journal_files", "Files of the journal."): "journal_files",
    counter("headwater_journal_fsyncs_total", "Calls of fsync for the journal."): "journal_fsyncs",
    gauge("headwater_journal_recovery_cuts", "Torn ends that the last start cut off."): (
        "journal_recovery_cuts"
    ),
    gauge("headwater_segments", "Files of entries on disk."): "segments",
    gauge("headwater_segment_live_bytes", "Size of live entries on disk."): "segment_live_bytes",
    counter("headwater_cold_reads_total", "Reads of entries on disk."): "cold_reads",
    counter("headwater_cold_read_failures_total", "Reads of entries on disk that failed."): (
        "cold_read_failures"
    ),
    counter("headwater_checkpoints_total", "Images that were written."): "rdb_saves",
}
"""Metrics of the server, each with its field of INFO."""

HEALTH: Final[Mapping[Metric, str]] = {
    gauge("redis_rdb_last_bgsave_status", "1 if the last snapshot or image succeeded."): (
        "rdb_last_bgsave_status"
    ),
    gauge(
        "redis_aof_last_write_status", "1 if the last write to the append-only file succeeded."
    ): ("aof_last_write_status"),
}
"""Metrics that are 1 if a field of INFO is ``ok``, each with the field."""

_REPLICA, _PRIMARY = ("slave_ip", "slave_port", "slave_state"), ("master_host", "master_port")

REPLICAS: Final[Mapping[Metric, Callable[[ReplicaRow], float | None]]] = {
    gauge(
        "redis_connected_slave_offset_bytes", "Offset that a replica has acknowledged.", _REPLICA
    ): lambda one: one.offset,
    gauge(
        "redis_connected_slave_lag_seconds", "Seconds since a replica acknowledged.", _REPLICA
    ): lambda one: one.silent_s,
    gauge(
        "headwater_replica_behind_bytes", "Bytes that a replica has not acknowledged.", _REPLICA
    ): lambda one: one.behind_bytes,
}
"""Metrics of each connected replica of a server."""

LINK: Final[Mapping[Metric, Callable[[Link], float | None]]] = {
    gauge("redis_master_link_up", "1 if the link to the primary is up.", _PRIMARY): lambda one: (
        float(one.up)
    ),
    gauge(
        "redis_master_sync_in_progress", "1 while a full copy of the primary arrives.", _PRIMARY
    ): lambda one: float(one.state is LinkState.COPYING),
    gauge(
        "redis_master_last_io_seconds_ago", "Seconds since the primary sent something.", _PRIMARY
    ): lambda one: one.heard_s,
    gauge(
        "headwater_primary_link_down_seconds",
        "Seconds since the link to the primary went down; 0 if it is up.",
        _PRIMARY,
    ): lambda one: 0.0 if one.up else one.down_s,
}
"""Metrics of a replica's link to its primary."""

STREAMS: Final[Mapping[Metric, Callable[[StreamSummary], int | None]]] = {
    gauge("redis_stream_length", "Entries of a stream.", _STREAM): lambda one: one.entries,
    gauge("redis_stream_groups", "Groups of a stream.", _STREAM): lambda one: one.groups,
}


def _seconds(ms: int | None, *, nothing: bool) -> float | None:
    """Return milliseconds in seconds. For None, return 0 if there is ``nothing`` to measure, otherwise None."""
    return (0.0 if nothing else None) if ms is None else ms / 1000


GROUPS: Final[Mapping[Metric, Callable[[GroupLag], float | None]]] = {
    gauge("redis_stream_group_consumers", "Consumers of a group.", _GROUP): lambda one: (
        one.consumers
    ),
    gauge(
        "redis_stream_group_messages_pending", "Pending entries of a group.", _GROUP
    ): lambda one: one.pending,
    gauge("redis_stream_group_lag", "Entries that a group has not read.", _GROUP): lambda one: (
        one.unread
    ),
    gauge("headwater_group_unread", "Entries that a group has not read.", _GROUP): lambda one: (
        one.unread
    ),
    gauge(
        "headwater_group_lag_seconds", "Age of a group's oldest unread entry.", _GROUP
    ): lambda one: None if one.lag_ms is None else one.lag_ms / 1000,
    gauge(
        "headwater_group_oldest_pending_seconds", "Age of a group's oldest pending entry.", _GROUP
    ): lambda one: _seconds(one.oldest_pending_ms, nothing=not one.pending),
    gauge(
        "headwater_group_delayed", "Pending entries that wait for a retry.", _GROUP
    ): lambda one: one.delayed,
}

CONSUMERS: Final[Sequence[Metric]] = (
    gauge(
        "redis_stream_group_consumer_messages_pending", "Pending entries of a consumer.", _CONSUMER
    ),
    gauge(
        "redis_stream_group_consumer_idle_seconds", "Seconds since a consumer was seen.", _CONSUMER
    ),
)
"""Metrics of consumers: ``pending`` and ``idle`` of XINFO CONSUMERS."""

DEAD_LETTERS: Final = gauge(
    "headwater_dead_letters",
    "Dead letters of a stream that nobody has replayed or dropped.",
    _STREAM,
)

TABLE: Final[Sequence[Metric]] = (
    UP,
    *SERVER,
    *HEALTH,
    *REPLICAS,
    *LINK,
    *STREAMS,
    *GROUPS,
    *CONSUMERS,
    DEAD_LETTERS,
)
"""All metrics of a store."""


def samples(
    pattern: str = "*", *, db: int = 0, consumers: bool = False
) -> Operation[list[MetricSample]]:
    """Return all samples of a store: those of the server, and of the streams that match ``pattern``.
    With ``consumers``, also return those of each consumer. A group may have many consumers."""
    replies = yield [["INFO"]]
    info = info_fields(replies[0])
    found = [MetricSample(UP, (), 1.0), *_of_server(info), *_of_replication(info)]
    streams = yield from names(pattern)
    database = f"db{db}"
    for summary in (yield from summaries(streams)):
        found += _of(STREAMS, (database, summary.stream), summary)
    groups = yield from lags(streams)
    for lag in groups:
        found += _of(GROUPS, (database, lag.stream, lag.group), lag)
    if consumers:
        found += yield from _of_consumers(groups, database)
    commands: list[Command] = [["XLEN", dead_letter_stream(one)] for one in streams]
    replies = (yield commands) if commands else []
    for one, length in zip(streams, replies, strict=True):
        if not isinstance(length, Refused):
            found.append(MetricSample(DEAD_LETTERS, (database, one), accepted(length)))
    return found


def _of_consumers(groups: Sequence[GroupLag], database: str) -> Operation[list[MetricSample]]:
    found: list[MetricSample] = []
    for first in range(0, len(groups), GROUPS_AT_ONCE):
        part = groups[first : first + GROUPS_AT_ONCE]
        replies = yield [["XINFO", "CONSUMERS", one.stream, one.group] for one in part]
        for one, reply in zip(part, replies, strict=True):
            for row in () if isinstance(reply, Refused) else map(mapping, accepted(reply)):
                name = text_of(row[b"name"])
                labels = (database, one.stream, one.group, name)
                pending, idle = row[b"pending"], row[b"idle"] / 1000
                values = zip(CONSUMERS, (pending, idle), strict=True)
                found += [MetricSample(metric, labels, value) for metric, value in values]
    return found


def _of_server(info: Mapping[str, str]) -> list[MetricSample]:
    found = []
    for metric, field in SERVER.items():
        if field in info:
            found.append(MetricSample(metric, (), float(info[field])))
    for metric, field in HEALTH.items():
        if field in info:
            found.append(MetricSample(metric, (), float(info[field] == "ok")))
    return found


def _of_replication(info: Mapping[str, str]) -> list[MetricSample]:
    found = []
    here = member(info)
    for one in here.replicas:
        host, _colon, port = one.address.rpartition(":")
        found += _of(REPLICAS, (host, port, one.state), one)
    if here.link is not None:
        host, _colon, port = here.link.primary.rpartition(":")
        found += _of(LINK, (host, port), here.link)
    return found


def _of(
    table: Mapping[Metric, Callable[[T], float | None]], labels: Sequence[str], one: T
) -> list[MetricSample]:
    values = ((metric, value(one)) for metric, value in table.items())
    return [MetricSample(metric, labels, value) for metric, value in values if value is not None]
