"""INFO's sections about past activity: Threads, Stats, Commandstats, Errorstats, Latencystats."""

from __future__ import annotations

from headwater.server.services.services import Services

Fields = dict[str, object]


def threads(services: Services) -> Fields:
    """Return a field for the one thread that serves all clients."""
    traffic, clients = services.traffic, len(services.clients.sessions)
    return {"io_thread_0": f"clients={clients},reads={traffic.reads},writes={traffic.writes}"}


def stats(services: Services) -> Fields:
    """Return counters since the start or CONFIG RESETSTAT, and rates."""
    traffic, observer = services.traffic, services.observer
    collections = observer.collections
    return {
        "total_connections_received": services.clients.connections_seen
        - traffic.connections_before,
        "total_commands_processed": observer.commands_processed(),
        "instantaneous_ops_per_sec": traffic.commands_per_second,
        "total_net_input_bytes": traffic.received_bytes,
        "total_net_output_bytes": traffic.sent_bytes,
        "instantaneous_input_kbps": f"{traffic.received_bytes_per_second / 1024:.2f}",
        "instantaneous_output_kbps": f"{traffic.sent_bytes_per_second / 1024:.2f}",
        "rejected_connections": traffic.rejected_connections,
        "sync_full": 0,
        "sync_partial_ok": 0,
        "sync_partial_err": 0,
        "expired_keys": services.keyspace.expired_count - observer.expired_before,
        "evicted_keys": 0,
        "evicted_scripts": services.scripts.evicted,
        "evicted_clients": 0,
        "keyspace_hits": services.keyspace.hits,
        "keyspace_misses": services.keyspace.misses,
        "pubsub_channels": len(services.pubsub.channels),
        "pubsub_patterns": len(services.pubsub.patterns.by_pattern),
        "pubsubshard_channels": len(services.pubsub.shard_channels),
        "latest_fork_usec": 0,
        "total_forks": 0,
        "unexpected_error_replies": 0,
        "internal_errors": services.faults.count,
        "total_error_replies": observer.error_count,
        "total_reads_processed": traffic.reads,
        "total_writes_processed": traffic.writes,
        "client_query_buffer_limit_disconnections": traffic.input_limit_disconnections,
        "client_output_buffer_limit_disconnections": traffic.output_limit_disconnections,
        **{
            f"acl_access_denied_{_DENIALS.get(kind, kind)}": count
            for kind, count in services.access.log.counts.items()
        },
        "gc_collections": collections.count,
        "gc_full_collections": collections.full,
        "gc_collected_objects": collections.collected,
        "gc_pause_total_usec": collections.total_ns // 1000,
        "gc_pause_max_usec": collections.longest_ns // 1000,
        "eventloop_cycles": traffic.cycles(services.records.turn),
        "eventloop_duration_sum": traffic.cpu_ns() // 1000,
        "eventloop_duration_cmd_sum": sum(
            each.nanoseconds for name, each in observer.commands.items() if name != b"EXEC"
        )  # without EXEC, whose commands are counted; those of scripts are counted twice
        // 1000,
        "instantaneous_eventloop_cycles_per_sec": traffic.cycles_per_second,
        "instantaneous_eventloop_duration_usec": traffic.cpu_ns_a_cycle // 1000,
        "turns": services.records.turn,
    }


_DENIALS = {"command": "cmd"}
"""Kinds of ACL LOG that have another name in INFO."""


def commandstats(services: Services) -> Fields:
    """Return a field for each command that was called or rejected."""
    fields: Fields = {}
    for name, statistics in services.observer.commands.items():
        if statistics.calls or statistics.rejected:
            microseconds = statistics.nanoseconds // 1000
            each = microseconds / statistics.calls if statistics.calls else 0.0
            fields[f"cmdstat_{name.decode().lower()}"] = (
                f"calls={statistics.calls},usec={microseconds},usec_per_call={each:.2f},"
                f"rejected_calls={statistics.rejected},failed_calls={statistics.failed}"
            )
    return fields


_SAFE = str.maketrans("#:\r\n", "____")
"""Translation table for characters that have a meaning in INFO. Precedent: Redis, server.c, getSafeInfoString."""


def errorstats(services: Services) -> Fields:
    """Return a field for each code of an error reply."""
    return {
        f"errorstat_{code.translate(_SAFE)}": f"count={count}"
        for code, count in sorted(services.observer.errors.items())
    }


def latencystats(services: Services) -> Fields:
    """Return a field for each command whose durations are recorded, in microseconds."""
    percentiles = services.config.latency_tracking_info_percentiles
    return {
        f"latency_percentiles_usec_{name.decode().lower()}": ",".join(
            f"p{percent}={statistics.histogram.percentile_us(float(percent)):.3f}"
            for percent in percentiles
        )
        for name, statistics in services.observer.commands.items()
        if statistics.histogram is not None and percentiles
    }
