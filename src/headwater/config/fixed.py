"""Names of redis.conf that accept a single value.

Clients read these settings and configuration files contain them, but this store does not (yet) have
what they control. Any other value is an error with the reason; none is silently ignored.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.limits import DATABASES


class FixedSetting(NamedTuple):
    """The only value of a setting, and why. MONITOR and SLOWLOG hide values of a ``secret``."""

    value: str
    reason: str
    secret: bool = False


_NO_SNAPSHOTS = "there are no snapshots: the journal holds everything"
_NO_REWRITE = "a checkpoint does not delay the fsyncs of the journal"
_NO_MEMORY_LIMIT = "no memory limit can be set in this release"
_NO_REPLICATION = "there is no replication in this release"
_NO_CLUSTER = "there is no cluster mode"
_TLS_1_3 = "Python's ssl cannot select the ciphers of TLSv1.3; all that OpenSSL has are offered"
_TLS_CURVES = "keys are exchanged by elliptic curves, which need no such file"
_TLS_SESSIONS = "sessions are resumed by tickets, which OpenSSL manages"
_FOREGROUND = "the server stays in the foreground; a service manager keeps it running"
_NO_THREADS = "one thread executes all commands and serves all sockets"
_NO_TRACKING = "there is no client-side caching in this release"
_ONE_FORMAT = "the journal has a single format and its own file names"

FIXED: dict[str, FixedSetting] = {
    "databases": FixedSetting(str(DATABASES), "the number of databases cannot be changed"),
    "save": FixedSetting("", _NO_SNAPSHOTS),
    "dbfilename": FixedSetting("", _NO_SNAPSHOTS),
    "stop-writes-on-bgsave-error": FixedSetting("no", _NO_SNAPSHOTS),
    "appendfilename": FixedSetting("journal", _ONE_FORMAT),
    "appenddirname": FixedSetting("", _ONE_FORMAT),
    "aof-use-rdb-preamble": FixedSetting("no", _ONE_FORMAT),
    "aof-load-truncated": FixedSetting("yes", "a torn tail of the journal is cut and reported"),
    "no-appendfsync-on-rewrite": FixedSetting("no", _NO_REWRITE),
    "maxmemory": FixedSetting("0", _NO_MEMORY_LIMIT),
    "maxmemory-policy": FixedSetting("noeviction", _NO_MEMORY_LIMIT),
    "maxmemory-clients": FixedSetting("0", _NO_MEMORY_LIMIT),
    "replicaof": FixedSetting("", _NO_REPLICATION),
    "slaveof": FixedSetting("", _NO_REPLICATION),
    "masterauth": FixedSetting("", _NO_REPLICATION, secret=True),
    "repl-backlog-size": FixedSetting("0", _NO_REPLICATION),
    "min-replicas-to-write": FixedSetting("0", _NO_REPLICATION),
    "cluster-enabled": FixedSetting("no", _NO_CLUSTER),
    "tls-ciphersuites": FixedSetting("", _TLS_1_3),
    "tls-dh-params-file": FixedSetting("", _TLS_CURVES),
    "tls-session-caching": FixedSetting("yes", _TLS_SESSIONS),
    "tls-replication": FixedSetting("no", _NO_REPLICATION),
    "tls-cluster": FixedSetting("no", _NO_CLUSTER),
    "daemonize": FixedSetting("no", _FOREGROUND),
    "pidfile": FixedSetting("", _FOREGROUND),
    "io-threads": FixedSetting("1", _NO_THREADS),
    "tracking-table-max-keys": FixedSetting("0", _NO_TRACKING),
}
