"""Settings of Redis and Valkey that are accepted without effect, so that their configuration files can be used.

    redis.conf ── hz 100 ──▶ accepted, shown by CONFIG GET, written by CONFIG REWRITE, listed in the log

Rule 1. A setting is here if nothing depends on it: Headwater does the work differently or does it in any case, or
        the setting tunes a feature that another setting would have to enable. A setting that would promise a
        missing feature is in fixed.py, which permits only one value.
Rule 2. The default is Redis's, or Valkey's if Redis has no such setting. The default determines the kind: yes or
        no, an integer, or any text. `_SIZES` lists the sizes.
Rule 3. As in Redis, patterns of CONFIG GET do not match the settings in `HIDDEN`; their exact names do.
Rule 4. Reading or setting an alias reads or sets the setting that it stands for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headwater.config.kinds import I64, Boolean, Flags, Integer, Kind, Memory, Text
from headwater.config.setting import AT_START, ONLY_AT_START, PROTECTED


class InertSetting(NamedTuple):
    """A setting without effect, and the reason. MONITOR and SLOWLOG redact the values of a ``secret``."""

    default: str
    reason: str
    kind: Kind[Any]
    secret: bool = False


_GROUPS: dict[str, str] = {
    "values are stored in Python's own containers": """
        activerehashing=yes hash-max-listpack-entries=512 hash-max-listpack-value=64
        hll-sparse-max-bytes=3000 list-compress-depth=0 list-max-listpack-size=-2
        set-max-intset-entries=512 set-max-listpack-entries=128 set-max-listpack-value=64
        vset-force-single-threaded-execution=no zset-max-listpack-entries=128
        zset-max-listpack-value=64 hash-seed=
    """,
    "the allocator is Python's and the system's": """
        active-defrag-cycle-max=25 active-defrag-cycle-min=1 active-defrag-cycle-us=500
        active-defrag-ignore-bytes=104857600 active-defrag-max-scan-fields=1000
        active-defrag-threshold-lower=10 active-defrag-threshold-upper=100 activedefrag=no
        disable-thp=yes jemalloc-bg-thread=yes
    """,
    "nothing is evicted": """
        lfu-decay-time=1 lfu-log-factor=10 maxmemory-eviction-tenacity=10 maxmemory-samples=5
        lazyfree-lazy-eviction=no
    """,
    "large values are always freed little by little": """
        lazyfree-lazy-expire=no lazyfree-lazy-server-del=no lazyfree-lazy-user-del=no
        lazyfree-lazy-user-flush=no replica-lazy-flush=no
    """,
    "timers run when they are due, not at intervals": """
        active-expire-effort=1 dynamic-hz=yes hz=10
    """,
    "the files have their own names and one format, with checksums": """
        aof-disable-auto-gc=no aof-rewrite-incremental-fsync=yes aof-timestamp-enabled=no
        aof-use-rdb-preamble=yes appenddirname=appendonlydir appendfilename=appendonly.aof
        dbfilename=dump.rdb no-appendfsync-on-rewrite=no rdb-del-sync-files=no
        rdb-save-incremental-fsync=yes rdb-version-check=strict rdbchecksum=yes
        rdbcompression=yes
    """,
    "what a command depends on is always checked: writes are refused while the disk is full, and "
    "RESTORE examines its payload": """
        propagation-error-behavior=ignore sanitize-dump-payload=no
        stop-writes-on-bgsave-error=yes
    """,
    "a replica reads the journal of its primary, and a copy of its files": """
        bind-source-addr= dual-channel-replication-enabled=no repl-disable-tcp-nodelay=no
        repl-diskless-load=disabled repl-diskless-sync=yes repl-diskless-sync-delay=5
        repl-diskless-sync-max-replicas=0 repl-mptcp=no replica-full-sync-buffer-limit=0
        replica-ignore-disk-write-errors=no replica-ignore-maxmemory=yes
        tls-client-cert-file= tls-client-key-file= tls-client-key-file-pass=
    """,
    "there is no cluster mode": """
        availability-zone= cluster-allow-pubsubshard-when-down=yes
        cluster-allow-reads-when-down=no cluster-allow-replica-migration=yes
        cluster-announce-bus-port=0 cluster-announce-client-ipv4= cluster-announce-client-ipv6=
        cluster-announce-client-port=0 cluster-announce-client-tls-port=0
        cluster-announce-hostname= cluster-announce-human-nodename= cluster-announce-ip=
        cluster-announce-port=0 cluster-announce-tls-port=0 cluster-blacklist-ttl=60
        cluster-compatibility-sample-ratio=0 cluster-config-file=nodes.conf
        cluster-config-save-behavior=sync cluster-databases=1 cluster-link-sendbuf-limit=0
        cluster-manual-failover-timeout=5000 cluster-migration-barrier=1
        cluster-node-timeout=15000 cluster-port=0 cluster-preferred-endpoint-type=ip
        cluster-replica-no-failover=no cluster-replica-validity-factor=10
        cluster-require-full-coverage=yes cluster-slot-migration-log-max-len=1000
        cluster-slot-stats-enabled=no slot-migration-max-failover-repl-bytes=0
    """,
    "one thread executes all commands and serves all sockets; taskset binds it to a processor": """
        aof-rewrite-cpulist= bgsave-cpulist= bio-cpulist= io-threads=1 io-threads-do-reads=no
        max-new-connections-per-cycle=10 max-new-tls-connections-per-cycle=1
        prefetch-batch-max-size=16 server-cpulist=
    """,
    "the server stays in the foreground, and a service manager starts and stops it": """
        always-show-logo=no daemonize=no oom-score-adj=no oom-score-adj-values=0,200,800 pidfile=
        proc-title-template={title},{listen-addr},{server-mode} set-proc-title=yes
        shutdown-on-sigint=default shutdown-on-sigterm=default shutdown-timeout=10
    """,
    "the log has its own format": """
        crash-log-enabled=yes crash-memcheck-enabled=yes hide-user-data-from-log=no
        ignore-warnings= log-timestamp-format=legacy syslog-facility=local0 syslog-ident=redis
    """,
    "SLOWLOG has the slow commands; there is no COMMANDLOG": """
        commandlog-execution-slower-than=10000 commandlog-large-reply-max-len=128
        commandlog-large-request-max-len=128 commandlog-reply-larger-than=1048576
        commandlog-request-larger-than=1048576 commandlog-slow-execution-max-len=128
    """,
    "sockets are TCP, TLS or unix sockets; OpenSSL manages the sessions": """
        mptcp=no rdma-bind= rdma-completion-vector=-1 rdma-rx-size=1048576
        tls-session-cache-size=20480 tls-session-cache-timeout=300
    """,
    "there is no client-side caching in this release": """
        tracking-table-max-keys=1000000
    """,
    "errors and versions are always those of Redis": """
        extended-redis-compatibility=no locale-collate=
    """,
    "only Redis's own tests use it, to delay or examine Redis": """
        cluster-ping-interval=0 key-load-delay=0 lazyexpire-nested-arbitrary-keys=yes
        loading-process-events-interval-bytes=524288 rdb-key-save-delay=0 repl-rdb-channel=yes
        use-exit-on-panic=no watchdog-period=0
    """,
}
"""Reason why settings have no effect → the settings, as ``name=default``; a comma in a default means a space."""

_SIZES = frozenset({
    "active-defrag-ignore-bytes", "cluster-link-sendbuf-limit", "commandlog-reply-larger-than",
    "commandlog-request-larger-than", "hll-sparse-max-bytes", "rdma-rx-size",
    "replica-full-sync-buffer-limit", "slot-migration-max-failover-repl-bytes",
})  # fmt: skip

_SHUTDOWN = Flags("default", "save", "nosave", "now", "force", pair=("save", "nosave"))

HIDDEN = frozenset({
    "aof-disable-auto-gc", "cluster-ping-interval", "key-load-delay", "lazyexpire-nested-arbitrary-keys",
    "loading-process-events-interval-bytes", "prefetch-batch-max-size", "rdb-key-save-delay",
    "repl-rdb-channel", "use-exit-on-panic", "watchdog-period",
})  # fmt: skip
"""Settings that CONFIG GET shows only by their exact name. Source: CONFIG GET of Redis 8.2.3."""

_SECRETS = frozenset({"tls-client-key-file-pass"})

FIXED_AFTER_START: dict[str, str] = {"dbfilename": PROTECTED} | dict.fromkeys(
    [
        "always-show-logo",
        "aof-rewrite-cpulist",
        "appenddirname",
        "appendfilename",
        "bgsave-cpulist",
        "bio-cpulist",
        "cluster-config-file",
        "cluster-enabled",
        "cluster-port",
        "daemonize",
        "databases",
        "disable-thp",
        "enable-module-command",
        "io-threads",
        "lua-enable-deprecated-api",
        "pidfile",
        "rdbchecksum",
        "server-cpulist",
        "set-proc-title",
        "socket-mark-id",
        "syslog-enabled",
        "syslog-facility",
        "syslog-ident",
    ],
    AT_START,
) | dict.fromkeys(
    [
        "cluster-databases", "hash-seed", "mptcp", "rdma-completion-vector", "rdma-rx-size", "repl-mptcp",
        "unixsocketgroup",
    ],
    ONLY_AT_START,  # Redis does not have them
)  # fmt: skip
"""Settings here and in fixed.py that CONFIG SET of Redis or Valkey cannot change, and the reasons."""

ALIASES: dict[str, str] = {
    "aof_rewrite_cpulist": "aof-rewrite-cpulist",
    "bgsave_cpulist": "bgsave-cpulist",
    "bio_cpulist": "bio-cpulist",
    "busy-reply-threshold": "lua-time-limit",
    "cluster-slave-no-failover": "cluster-replica-no-failover",
    "cluster-slave-validity-factor": "cluster-replica-validity-factor",
    "hash-max-ziplist-entries": "hash-max-listpack-entries",
    "hash-max-ziplist-value": "hash-max-listpack-value",
    "list-max-ziplist-size": "list-max-listpack-size",
    "min-slaves-max-lag": "min-replicas-max-lag",
    "min-slaves-to-write": "min-replicas-to-write",
    "primaryauth": "masterauth",
    "primaryuser": "masteruser",
    "repl-ping-slave-period": "repl-ping-replica-period",
    "server_cpulist": "server-cpulist",
    "slave-announce-ip": "replica-announce-ip",
    "slave-announce-port": "replica-announce-port",
    "slave-ignore-maxmemory": "replica-ignore-maxmemory",
    "slave-lazy-flush": "replica-lazy-flush",
    "slave-priority": "replica-priority",
    "slave-read-only": "replica-read-only",
    "slave-serve-stale-data": "replica-serve-stale-data",
    "slaveof": "replicaof",
    "zset-max-ziplist-entries": "zset-max-listpack-entries",
    "zset-max-ziplist-value": "zset-max-listpack-value",
}
"""Alias → the name of the setting."""


def _kind(name: str, default: str) -> Kind[Any]:
    if name in _SIZES:
        return Memory()
    if name.startswith("shutdown-on-"):
        return _SHUTDOWN
    if default in {"yes", "no"} and name != "oom-score-adj":
        return Boolean()
    return Integer(-I64 - 1) if default.removeprefix("-").isdigit() else Text()


def _declared() -> dict[str, InertSetting]:
    found = {}
    for reason, declarations in _GROUPS.items():
        for declaration in declarations.split():
            name, _, default = declaration.partition("=")
            text = default.replace(",", " ")
            found[name] = InertSetting(text, reason, _kind(name, text), name in _SECRETS)
    return found


INERT: dict[str, InertSetting] = _declared()
"""All settings without effect, by name."""
