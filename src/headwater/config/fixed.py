"""Names of redis.conf that accept a single value.

Clients read these settings, and configuration files contain them. Any other value is rejected, because it would
promise a feature that the store does not have (yet). The error gives the reason and, if one exists, an
alternative. No value is silently ignored. Settings whose value does not matter are in inert.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headwater.common.limits import DATABASES
from headwater.config.kinds import Boolean, Choice, Kind, MemoryOrPercent


class FixedSetting(NamedTuple):
    """The only value of a setting, and the reason for it. A value that ``kind`` cannot parse causes the same error
    as in Redis. MONITOR and SLOWLOG redact a ``secret``. Patterns of CONFIG GET do not match a ``hidden`` name."""

    value: str
    reason: str
    kind: Kind[Any] | None = None
    hidden: bool = False
    secret: bool = False


_NO_EVICTION = (
    "no key is deleted to free memory: let keys expire, trim streams with XTRIM or XADD MAXLEN, and let "
    "maxmemory refuse what would take more"
)
_NO_CLIENT_EVICTION = (
    "no client is disconnected to free memory: set client-output-buffer-limit, "
    "client-query-buffer-limit and maxclients"
)
_NO_IMPORT = "data is imported with RESTORE, or by a replica of this server"
_FOLLOWS = "a replica changes only as its primary does"
_NO_CLUSTER = "there is no cluster mode: start the server without it"
_TLS_1_3 = "Python's ssl cannot select the ciphers of TLSv1.3; all that OpenSSL has are offered"
_TLS_CURVES = "keys are exchanged by elliptic curves, which need no such file"
_TLS_SESSIONS = "sessions are resumed by tickets, which OpenSSL manages"
_TLS_USERS = "clients log in with AUTH; a certificate does not name a user"
_TLS_RELOAD = "CONFIG SET tls-cert-file loads a renewed certificate"
_NO_MODULES = "modules cannot be loaded; remove the line"
_NO_OLD_LUA = (
    "scripts have no getfenv, setfenv or newproxy, with which they could leave their sandbox"
)
_NO_SYSLOG = "the log goes to standard error, which systemd passes to its journal, or to logfile"
_SOCKETS = (
    "the sockets have no other options; use the system's firewall or the directory's permissions"
)

_POLICIES = Choice(
    "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
    "allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction",
)  # fmt: skip

FIXED: dict[str, FixedSetting] = {
    "databases": FixedSetting(str(DATABASES), "the number of databases cannot be changed"),
    "aof-load-truncated": FixedSetting("yes", "a torn tail of the journal is cut and reported"),
    "maxmemory-policy": FixedSetting("noeviction", _NO_EVICTION, _POLICIES),
    "maxmemory-clients": FixedSetting("0", _NO_CLIENT_EVICTION, MemoryOrPercent()),
    "replica-read-only": FixedSetting("yes", _FOLLOWS, Boolean()),
    "cluster-enabled": FixedSetting("no", _NO_CLUSTER),
    "import-mode": FixedSetting("no", _NO_IMPORT),
    "tls-ciphersuites": FixedSetting("", _TLS_1_3),
    "tls-dh-params-file": FixedSetting("", _TLS_CURVES),
    "tls-session-caching": FixedSetting("yes", _TLS_SESSIONS),
    "tls-auth-clients-user": FixedSetting("off", _TLS_USERS),
    "tls-auto-reload-interval": FixedSetting("0", _TLS_RELOAD),
    "tls-cluster": FixedSetting("no", _NO_CLUSTER),
    "enable-module-command": FixedSetting("no", _NO_MODULES),
    "lua-enable-deprecated-api": FixedSetting("no", _NO_OLD_LUA, Boolean(), hidden=True),
    "syslog-enabled": FixedSetting("no", _NO_SYSLOG),
    "socket-mark-id": FixedSetting("0", _SOCKETS),
    "rdma-port": FixedSetting("0", _SOCKETS),
    "unixsocketgroup": FixedSetting("", _SOCKETS),
}

REFUSED: dict[str, str] = {
    "rename-command": "commands cannot be renamed; take a command from users: user name … -flushall",
    "loadmodule": _NO_MODULES,
    "loadmodule-ex": _NO_MODULES,
    "sentinel": "Headwater has only the server itself",
}
"""Directives that configuration files of Redis may have, and the reasons why they are refused."""
