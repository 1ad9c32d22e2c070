"""INFO: the state of the server, in Redis's sections and fields.

What this store has not (replicas, eviction, scripts) is left out, but for the fields that clients
and exporters look for. `Traffic` counts what the drivers of a node see and the node does not.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from headwater.server.identity import COMPATIBLE_VERSION, RUN_ID, version

if TYPE_CHECKING:
    from headwater.server.node import Node

Facts = dict[str, object]


class Traffic:
    """Counters of a node's sockets; CONFIG RESETSTAT sets them to 0."""

    def __init__(self) -> None:
        self.listeners: list[str] = []
        """Addresses that are listened at, as the ready line shows them."""
        self.reset(connections_seen=0)

    def reset(self, *, connections_seen: int) -> None:
        """Begin to count anew; the node's own counter goes on and is shown less this."""
        self.connections_before = connections_seen
        self.received_bytes = 0
        self.sent_bytes = 0
        self.reads = 0
        self.writes = 0
        self.rejected_connections = 0
        self.input_limit_disconnections = 0
        self.output_limit_disconnections = 0


_traffic: WeakKeyDictionary[Node, Traffic] = WeakKeyDictionary()


def traffic_of(node: Node) -> Traffic:
    """The counters of a node, made when they are first asked for."""
    found = _traffic.get(node)
    if found is None:
        found = _traffic[node] = Traffic()
    return found


def render(node: Node, wanted: set[str]) -> bytes:
    """The text of INFO for these section names, in lower case; ``all``, ``default`` and
    ``everything`` stand for all of them."""
    every = not wanted or bool(wanted & {"all", "default", "everything"})
    texts = []
    for name, facts in SECTIONS.items():
        if every or name.lower() in wanted:
            lines = [f"# {name}", *(f"{key}:{value}" for key, value in facts(node).items())]
            texts.append("\r\n".join(lines) + "\r\n")
    return "\r\n".join(texts).encode("utf-8", "surrogateescape")


def human(size: int) -> str:
    """A size as people read it: ``1.50M``."""
    if size < 1024:
        return f"{size}B"
    value = float(size)
    for unit in "KMGT":
        value /= 1024
        if value < 1024:
            return f"{value:.2f}{unit}"
    return f"{value / 1024:.2f}P"


def running() -> str:
    """``compiled`` or ``plain``: how the hot files run."""
    import headwater.engine.entry_log as hot

    return "plain" if (hot.__file__ or "").endswith(".py") else "compiled"


def _server(node: Node) -> Facts:
    now_ms = node.clock.now_ms()
    uptime = max(0, now_ms - node.started_ms) // 1000
    facts: Facts = {
        "redis_version": COMPATIBLE_VERSION.decode(),
        "redis_mode": "standalone",
        "server_name": "headwater",
        "headwater_version": version().decode(),
        "headwater_code": running(),
        "python_version": platform.python_version(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "arch_bits": 64 if sys.maxsize > 2**32 else 32,
        "multiplexing_api": "epoll" if sys.platform == "linux" else "asyncio",
        "process_id": os.getpid(),
        "run_id": RUN_ID,
        "tcp_port": node.config.port or node.config.tls_port,
        "server_time_usec": now_ms * 1000,
        "uptime_in_seconds": uptime,
        "uptime_in_days": uptime // 86400,
        "executable": sys.executable,
        "config_file": node.config.file or "",
    }
    for number, listener in enumerate(traffic_of(node).listeners):
        facts[f"listener{number}"] = listener
    return facts


def _clients(node: Node) -> Facts:
    sessions = node.sessions.values()
    return {
        "connected_clients": len(node.sessions),
        "cluster_connections": 0,
        "maxclients": node.config.maxclients,
        "client_recent_max_input_buffer": max((one.scanner.unread for one in sessions), default=0),
        "client_recent_max_output_buffer": max((len(one.released) for one in sessions), default=0),
        "blocked_clients": node.waiting.count,
        "tracking_clients": 0,
        "watching_clients": sum(1 for one in sessions if one.watch.keys),
    }


def _memory(node: Node) -> Facts:
    rss, peak = resident_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "used_memory": rss,
        "used_memory_human": human(rss),
        "used_memory_rss": rss,
        "used_memory_rss_human": human(rss),
        "used_memory_peak": max(peak, rss),
        "used_memory_peak_human": human(max(peak, rss)),
        "total_system_memory": total,
        "total_system_memory_human": human(total),
        "maxmemory": node.config.get("maxmemory"),
        "maxmemory_human": "0B",
        "maxmemory_policy": node.config.get("maxmemory-policy"),
        "mem_fragmentation_ratio": "1.00",
        "mem_allocator": "python",
    }


def _persistence(node: Node) -> Facts:
    facts: Facts = {
        "loading": 0,
        "async_loading": 0,
        "rdb_changes_since_last_save": node.keyspace.dirty,
        "rdb_bgsave_in_progress": 0,
        "rdb_last_save_time": node.started_ms // 1000,
        "rdb_last_bgsave_status": "ok",
        "aof_enabled": int(node.journal is not None),
        "aof_rewrite_in_progress": 0,
        "aof_rewrite_scheduled": 0,
        "aof_last_bgrewrite_status": "ok",
        "aof_last_write_status": "ok",
    }
    if node.journal is not None:
        journal = node.journal.statistics()
        facts |= {
            "aof_last_write_status": "err" if journal.failure or journal.refusal else "ok",
            "aof_current_size": journal.current_bytes,
            "aof_base_size": journal.base_bytes,
            "aof_delayed_fsync": journal.delayed_fsyncs,
            "journal_files": journal.files,
            "journal_fsyncs": journal.fsyncs,
            "journal_failure": journal.failure or "",
            "journal_refusal": journal.refusal or "",
        }
    return facts


def _stats(node: Node) -> Facts:
    traffic = traffic_of(node)
    return {
        "total_connections_received": node.connections_seen - traffic.connections_before,
        "total_commands_processed": node.observer.commands_processed(),
        "total_net_input_bytes": traffic.received_bytes,
        "total_net_output_bytes": traffic.sent_bytes,
        "rejected_connections": traffic.rejected_connections,
        "evicted_keys": 0,
        "evicted_clients": 0,
        "pubsub_channels": 0,
        "pubsub_patterns": 0,
        "total_reads_processed": traffic.reads,
        "total_writes_processed": traffic.writes,
        "client_query_buffer_limit_disconnections": traffic.input_limit_disconnections,
        "client_output_buffer_limit_disconnections": traffic.output_limit_disconnections,
        "turns": node.records.turn,
        **{f"acl_access_denied_{kind}": count for kind, count in node.access.log.counts.items()},
    }


def _replication(_node: Node) -> Facts:
    return {
        "role": "master",
        "connected_slaves": 0,
        "master_failover_state": "no-failover",
        "master_replid": RUN_ID,
        "master_replid2": "0" * 40,
        "master_repl_offset": 0,
        "second_repl_offset": -1,
        "repl_backlog_active": 0,
    }


def _cpu(_node: Node) -> Facts:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "used_cpu_sys": f"{own.ru_stime:.6f}",
        "used_cpu_user": f"{own.ru_utime:.6f}",
        "used_cpu_sys_children": f"{children.ru_stime:.6f}",
        "used_cpu_user_children": f"{children.ru_utime:.6f}",
    }


def _nothing(_node: Node) -> Facts:
    return {}


def _cluster(_node: Node) -> Facts:
    return {"cluster_enabled": 0}


def _keyspace(node: Node) -> Facts:
    now_ms = node.clock.now_ms()
    facts: Facts = {}
    for db in node.keyspace.databases:
        if db.values:
            ends = list(db.expiries.values())
            average = sum(max(0, at - now_ms) for at in ends) // len(ends) if ends else 0
            facts[f"db{db.index}"] = (
                f"keys={len(db.values)},expires={len(ends)},avg_ttl={average},subexpiry=0"
            )
    return facts


SECTIONS: dict[str, Callable[[Node], Facts]] = {
    "Server": _server,
    "Clients": _clients,
    "Memory": _memory,
    "Persistence": _persistence,
    "Stats": _stats,
    "Replication": _replication,
    "CPU": _cpu,
    "Modules": _nothing,
    "Errorstats": _nothing,
    "Cluster": _cluster,
    "Keyspace": _keyspace,
}


def resident_bytes() -> int:
    """What the process holds in memory now, as Linux tells it; elsewhere the most it ever held."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 (a call a scrape, kept cheap)
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
