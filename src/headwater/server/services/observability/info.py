"""INFO: the state of the server, in Redis's sections and fields.

Fields about features that this store does not have (replicas, eviction, snapshots) are omitted,
except those that clients and exporters read. `headwater.server.services.observability.statistics` has
the sections about past activity.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from itertools import islice
from math import inf

from headwater.engine.keyspace.memory_totals import state_bytes
from headwater.persistence.source import SegmentSource
from headwater.server.identity import COMPATIBLE_VERSION, RUN_ID, version
from headwater.server.services.memory_use import STARTUP_BYTES, client_bytes, resident_bytes
from headwater.server.services.observability import statistics
from headwater.server.services.observability.statistics import Fields
from headwater.server.services.services import Services
from headwater.server.services.storage.checkpoint_statistics import REWRITE, SAVE


def render(services: Services, wanted: set[str]) -> bytes:
    """Format the INFO sections with these names, in lower case. ``all`` and ``everything`` mean all
    sections; ``default``, or an empty set, means those whose size does not grow with use."""
    every = bool(wanted & {"all", "everything"})
    default = not wanted or "default" in wanted
    texts = []
    for name, fields in SECTIONS.items():
        if every or name.lower() in wanted or (default and name not in _ON_DEMAND):
            lines = [f"# {name}", *(f"{key}:{value}" for key, value in fields(services).items())]
            texts.append("\r\n".join(lines) + "\r\n")
    return "\r\n".join(texts).encode("utf-8", "surrogateescape")


def human(size: int) -> str:
    """Format a size for people: ``1.50M``."""
    if size < 1024:
        return f"{size}B"
    value = float(size)
    for unit in "KMGT":
        value /= 1024
        if value < 1024:
            return f"{value:.2f}{unit}"
    return f"{value / 1024:.2f}P"


def running() -> str:
    """Return ``compiled`` or ``plain``, the form in which the hot modules run."""
    import headwater.engine.entries.entry_log as hot

    return "plain" if (hot.__file__ or "").endswith(".py") else "compiled"


def _server(services: Services) -> Fields:
    times = services.times
    uptime = (times.now() - services.state.started_ms) // 1000
    system = os.uname()
    fields: Fields = {
        "redis_version": COMPATIBLE_VERSION.decode(),
        "redis_git_sha1": "0" * 8,
        "redis_git_dirty": 0,
        "redis_build_id": "0" * 16,
        "redis_mode": "standalone",
        "server_name": "headwater",
        "headwater_version": version().decode(),
        "headwater_code": running(),
        "python_version": sys.version.split()[0],
        "os": f"{system.sysname} {system.release} {system.machine}",
        "arch_bits": 64 if sys.maxsize > 2**32 else 32,
        "multiplexing_api": "epoll" if sys.platform == "linux" else "asyncio",
        "process_id": os.getpid(),
        "process_supervised": services.traffic.supervised,
        "run_id": RUN_ID,
        "tcp_port": services.config.port or services.config.tls_port,
        "server_time_usec": times.wall_now() * 1000,
        "clock_jumps": times.jumps.count,
        "clock_last_jump_ms": times.jumps.last_ms,
        "uptime_in_seconds": uptime,
        "uptime_in_days": uptime // 86400,
        "executable": sys.executable,
        "config_file": services.config.file or "",
        "io_threads_active": 0,
    }
    return fields | services.traffic.listeners


def _clients(services: Services) -> Fields:
    sessions = services.clients.sessions.values()
    waiters = [
        waiter for one in sessions if (waiter := services.blocked.waiter_of(one)) is not None
    ]
    waited = {(waiter.db.index, key) for waiter in waiters for key in waiter.wait.keys}
    waited_without_key = {
        (waiter.db.index, key)
        for waiter in waiters
        if not (waiter.wait.for_streams or waiter.wait.for_lists)
        for key in waiter.wait.keys
    }
    pause = services.blocked.pause
    left = max(0.0, pause.until - services.times.monotonic()) if pause.active else 0.0
    return {
        "connected_clients": len(services.clients.sessions),
        "cluster_connections": 0,
        "maxclients": services.config.maxclients,
        "client_recent_max_input_buffer": max(
            (one.scanner.unread() for one in sessions), default=0
        ),
        "client_recent_max_output_buffer": max((one.output.unsent for one in sessions), default=0),
        "blocked_clients": len(waiters),
        "tracking_clients": 0,
        "pubsub_clients": sum(1 for one in sessions if one.subscriptions.active),
        "watching_clients": sum(1 for one in sessions if one.transaction.watch.keys),
        "clients_in_timeout_table": sum(1 for waiter in waiters if waiter.deadline != inf),
        "total_watched_keys": services.watches.count_keys(),
        "total_blocking_keys": len(waited),
        "total_blocking_keys_on_nokey": len(waited_without_key),
        "paused_reason": "client_pause" if pause.active else "none",
        "paused_actions": ("all" if pause.everything else "write") if pause.active else "none",
        "paused_timeout_milliseconds": round(left * 1000),
    }


def _memory(services: Services) -> Fields:
    used, rss, peak = services.memory.used(), resident_bytes(), services.memory.peak
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    sealing = services.keyspace.sealing
    clients, facts = client_bytes(services.clients), len(services.records.facts.data)
    lua, scripts = services.scripts.vm_bytes(), services.scripts.table_bytes()
    dataset = state_bytes(services.keyspace)
    return {
        "used_memory": used,
        "used_memory_human": human(used),
        "used_memory_rss": rss,
        "used_memory_rss_human": human(rss),
        "used_memory_peak": peak,
        "used_memory_peak_human": human(peak),
        "used_memory_peak_perc": f"{100 * used / peak:.2f}%",
        "used_memory_overhead": used - dataset,
        "used_memory_startup": STARTUP_BYTES,
        "used_memory_dataset": dataset,
        "used_memory_dataset_perc": f"{100 * dataset / max(1, used - STARTUP_BYTES):.2f}%",
        "stream_hot_bytes": sealing.hot_bytes + sealing.kept_bytes,
        "stream_sealed_bytes": sealing.sealed_bytes,
        "stream_sealed_entries_bytes": sealing.sealed_size,
        "stream_sealed_blocks": sealing.sealed_count,
        "stream_stored_entries_bytes": sealing.stored_size,
        "stream_opened_blocks": sealing.bodies.opened_count,
        "stream_compression": sealing.codec,
        "used_memory_vm_eval": lua,
        "used_memory_lua": lua,
        "used_memory_lua_human": human(lua),
        "used_memory_scripts_eval": scripts,
        "number_of_cached_scripts": len(services.scripts),
        "number_of_functions": 0,
        "number_of_libraries": 0,
        "used_memory_vm_functions": 0,
        "used_memory_vm_total": lua,
        "used_memory_vm_total_human": human(lua),
        "used_memory_functions": 0,
        "used_memory_scripts": scripts,
        "used_memory_scripts_human": human(scripts),
        "total_system_memory": total,
        "total_system_memory_human": human(total),
        **_allocator(used, rss),
        "maxmemory": services.config.maxmemory,
        "maxmemory_human": human(services.config.maxmemory),
        "maxmemory_policy": services.config.get("maxmemory-policy"),
        "mem_fragmentation_ratio": f"{rss / used:.2f}",
        "mem_clients_normal": clients,
        "mem_aof_buffer": facts,
        "mem_allocator": "python",
        "active_defrag_running": 0,
        "lazyfree_pending_objects": len(services.keyspace.garbage),
        "lazyfreed_objects": services.keyspace.freed_lazily + services.observer.forgotten_codes,
    }


def _allocator(used: int, rss: int) -> Fields:
    """Return the fields about the allocator as Redis shows them without jemalloc: the used memory of the store is
    allocated, that of the process is active and resident. Source: Redis, server.c, cronUpdateMemoryStats."""
    return {
        "allocator_allocated": used,
        "allocator_active": rss,
        "allocator_resident": rss,
        "allocator_frag_ratio": f"{rss / used:.2f}",
        "allocator_frag_bytes": rss - used,
        "allocator_rss_ratio": "1.00",
        "allocator_rss_bytes": 0,
        "rss_overhead_ratio": "1.00",
        "rss_overhead_bytes": 0,
    }


JOURNAL_OK, JOURNAL_REFUSING, JOURNAL_FAILED = 0, 1, 2
"""Values of ``journal_state``: writes are accepted; writes are refused (MISCONF) until the disk has
room again; the journal or a turn failed, and every command is refused until the store is opened
again."""


def _persistence(services: Services) -> Fields:
    checkpoints = services.storage.checkpoints.statistics
    running_s = checkpoints.seconds(services.times.monotonic())
    saving, rewriting = checkpoints.current == SAVE, checkpoints.current == REWRITE
    status = "ok" if checkpoints.last_succeeded else "err"
    fields: Fields = {
        "loading": int(services.state.loading is not None),
        "async_loading": 0,
        "rdb_changes_since_last_save": services.keyspace.dirty - checkpoints.changes_saved,
        "rdb_bgsave_in_progress": int(saving),
        "rdb_last_save_time": checkpoints.last_save,
        "rdb_last_bgsave_status": status,
        "rdb_last_bgsave_time_sec": checkpoints.last_seconds,
        "rdb_current_bgsave_time_sec": running_s if saving else -1,
        "rdb_saves": checkpoints.images,
        "aof_enabled": int(services.config.appendonly),
        "aof_rewrite_in_progress": int(rewriting),
        "aof_rewrite_scheduled": int(checkpoints.requested == REWRITE),
        "aof_last_rewrite_time_sec": checkpoints.last_seconds,
        "aof_current_rewrite_time_sec": running_s if rewriting else -1,
        "aof_last_bgrewrite_status": status,
        "aof_rewrites": checkpoints.images,
        "aof_last_write_status": "ok",
        "journal_state": JOURNAL_OK if services.state.poisoned is None else JOURNAL_FAILED,
    }
    if services.storage.journal is not None:
        journal, recovered = (
            services.storage.journal.statistics(),
            services.storage.journal.recovery.report(),
        )
        state = JOURNAL_REFUSING if journal.refusal else JOURNAL_OK
        fields |= {
            "journal_state": JOURNAL_FAILED
            if services.state.poisoned or journal.failure
            else state,
            "aof_last_write_status": "err" if journal.failure or journal.refusal else "ok",
            "aof_current_size": journal.current_bytes,
            "aof_base_size": journal.base_bytes,
            "aof_delayed_fsync": journal.delayed_fsyncs,
            "journal_files": journal.files,
            "journal_fsyncs": journal.fsyncs,
            "journal_failure": journal.failure or "",
            "journal_refusal": journal.refusal or "",
            "journal_recovered_groups": recovered.groups,
            "journal_recovery_cuts": len(recovered.cuts),
            "journal_recovery_cut_bytes": recovered.cut_bytes,
            "journal_recovery_notes": len(recovered.notes),
        }
    return fields | _on_disk(services) | _loading(services)


def _on_disk(services: Services) -> Fields:
    """Return the fields about older entries, which are on disk."""
    segments, sealing = services.storage.segments, services.keyspace.sealing
    if segments is None:
        return {}
    live, source = sealing.segments(), sealing.bodies.source
    assert isinstance(source, SegmentSource)
    return {
        "segments": len(live),
        "segment_live_bytes": sum(live.values()),
        "segment_moved_bytes": services.storage.compactions.moved_bytes,
        "segment_failure": segments.failure,
        "cold_waits": services.blocked.cold_reads.waits,
        "cold_reads": source.reads,
        "cold_read_bytes": source.read_bytes,
        "cold_read_failures": source.failures,
    }


def _loading(services: Services) -> Fields:
    """Return the fields that exist while the store's content is loaded."""
    progress = services.state.loading
    if progress is None:
        return {}
    return {
        "loading_start_time": progress.started_s,
        "loading_total_bytes": progress.total_bytes,
        "loading_rdb_used_mem": 0,
        "loading_loaded_bytes": progress.loaded_bytes,
        "loading_loaded_perc": f"{progress.percentage():.2f}",
        "loading_eta_seconds": progress.eta_seconds(),
    }


def _replication(services: Services) -> Fields:
    replication = services.replication
    now, config = services.times.monotonic(), services.config
    journal, primary = services.storage.journal, replication.primary
    fields: Fields = {"role": "master" if primary is None else "slave"}
    if primary is not None:
        connected = primary.state == "connected"
        fields |= {
            "master_host": primary.host,
            "master_port": primary.port,
            "master_link_status": "up" if connected else "down",
            "master_last_io_seconds_ago": int(now - primary.heard) if connected else -1,
            "master_sync_in_progress": int(primary.state == "sync"),
            "master_current_sync_attempts": primary.attempts - primary.attempts_before,
            "master_total_sync_attempts": primary.attempts,
            "total_disconnect_time_sec": int(
                primary.down_s + (0 if connected else now - primary.since)
            ),
            # A copy is written to files as it comes.
            "replica_full_sync_buffer_size": 0,
            "replica_full_sync_buffer_peak": 0,
            "slave_read_repl_offset": replication.offset,
            "slave_repl_offset": replication.offset,
        }
        if primary.state == "sync":
            fields["master_sync_total_bytes"] = primary.copy_bytes
            fields["master_sync_read_bytes"] = primary.copied_bytes
        since = "up" if connected else "down"
        fields[f"master_link_{since}_since_seconds"] = int(now - primary.since)
        fields |= {
            "slave_priority": config.replica_priority,
            "slave_read_only": 1,
            "replica_announced": int(config.replica_announced),
        }
    replicas = [one for one in replication.replicas.by_session.values() if one.syncing]
    fields["connected_slaves"] = len(replicas)
    for number, one in enumerate(replicas):
        lag = int(now - one.heard)
        fields[f"slave{number}"] = (
            f"ip={one.address},port={one.port},state={one.state},offset={max(0, one.acked)},lag={lag},"
            f"durable={one.durable}"
        )
    if primary is None and config.min_replicas_to_write:
        good = replication.replicas.count_good(config.min_replicas_max_lag)
        fields["min_slaves_good_slaves"] = good
    if replication.gathers:
        fields["promotion_waits_for_replicas"] = config.synchronous_replicas
    first = 0 if journal is None else journal.first_offset()
    history = None if journal is None or journal.history is None else replication.history
    left = history.left[-1] if history is not None and history.left else None
    return fields | {
        "master_failover_state": replication.failover_state,
        "master_replid": RUN_ID if history is None else history.id,
        "master_replid2": "0" * 40 if left is None else left.history,
        "master_repl_offset": replication.offset,
        "second_repl_offset": -1 if left is None else min(left.offset, replication.offset) + 1,
        "repl_backlog_active": int(journal is not None),
        "repl_backlog_size": config.repl_backlog_size,
        "repl_backlog_first_byte_offset": first + 1,
        "repl_backlog_histlen": replication.offset - first,
    }


def _cpu(_services: Services) -> Fields:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "used_cpu_sys": f"{own.ru_stime:.6f}",
        "used_cpu_user": f"{own.ru_utime:.6f}",
        "used_cpu_sys_children": f"{children.ru_stime:.6f}",
        "used_cpu_user_children": f"{children.ru_utime:.6f}",
    }


def _nothing(_services: Services) -> Fields:
    return {}


def _cluster(_services: Services) -> Fields:
    return {"cluster_enabled": 0}


_KEYS_SAMPLED = 1000
"""Number of keys over which avg_ttl is averaged. Visiting all keys would delay other clients."""


def _keyspace(services: Services) -> Fields:
    now_ms = services.times.now()
    fields: Fields = {}
    for db in services.keyspace.databases:
        if db.values:
            ends = list(islice(db.expiries.values(), _KEYS_SAMPLED))
            average = sum(max(0, at - now_ms) for at in ends) // len(ends) if ends else 0
            fields[f"db{db.index}"] = (
                f"keys={len(db.values)},expires={len(db.expiries)},avg_ttl={average},subexpiry=0"
            )
    return fields


SECTIONS: dict[str, Callable[[Services], Fields]] = {
    "Server": _server,
    "Clients": _clients,
    "Memory": _memory,
    "Persistence": _persistence,
    "Threads": statistics.threads,
    "Stats": statistics.stats,
    "Replication": _replication,
    "CPU": _cpu,
    "Modules": _nothing,
    "Commandstats": statistics.commandstats,
    "Errorstats": statistics.errorstats,
    "Latencystats": statistics.latencystats,
    "Cluster": _cluster,
    "Keyspace": _keyspace,
}

_ON_DEMAND = frozenset({"Commandstats", "Latencystats"})
"""Sections with a line per command that was used."""
