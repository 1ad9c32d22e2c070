"""The settings, as data: names and syntax of redis.conf, and which of them do something here.

`SETTINGS` are those that work. `FIXED` are those that clients ask for and whose answer is always the
same, because what they govern does not exist in this store (yet): another value is refused with the
reason, never accepted in silence.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.limits import DATABASES, MAX_IDMP_DURATION_S, MAX_IDMP_MAXSIZE

KIB = 1024
MIB = 1024 * KIB
I32 = 2**31 - 1
I64 = 2**63 - 1


class Setting(NamedTuple):
    """What a setting can be. ``kind`` is integer, memory (with size suffixes), boolean, choice,
    words (several, separated by spaces) or text; ``low`` and ``high`` bound the first two.

    ``fixed_after_start`` says why CONFIG SET cannot change it; empty when it can. What is
    ``secret`` is not shown by CONFIG GET.
    """

    name: str
    kind: str
    summary: str
    low: int = 0
    high: int = I64
    choices: tuple[str, ...] = ()
    fixed_after_start: str = ""
    secret: bool = False

    @property
    def attribute(self) -> str:
        """Its name as an attribute of `headwater.server.config.Config`."""
        return self.name.replace("-", "_")


_AT_START = "can't set immutable config"
_PROTECTED = "can't set protected config"
_JOURNAL = "can't set immutable config; whether there is a journal is decided at the start"

_ALL = (
    Setting("port", "integer", "TCP port; 0 picks a free one, or with `tls-port` means TLS only.",
            0, 65535, (), _AT_START),
    Setting("bind", "words", "Addresses to listen at; `*` is all of IPv4, `-` before one that may "
            "be missing.", fixed_after_start=_AT_START),
    Setting("unixsocket", "text", "Path of a unix socket; empty for none.",
            fixed_after_start=_AT_START),
    Setting("unixsocketperm", "text", "Its permissions, octal; 0 leaves them to the umask.",
            fixed_after_start=_AT_START),
    Setting("dir", "text", "Data directory.", fixed_after_start=_PROTECTED),
    Setting("appendonly", "boolean", "Whether there is a journal at all.",
            fixed_after_start=_JOURNAL),
    Setting("appendfsync", "choice", "When the journal is made durable: before each reply, once a "
            "second, or when the system likes.", choices=("everysec", "always", "no")),
    Setting("requirepass", "text", "Password of the user `default`; empty for none."),
    Setting("aclfile", "text", "File of users, for ACL LOAD and ACL SAVE; empty for none.",
            fixed_after_start=_AT_START),
    Setting("acl-pubsub-default", "choice", "The channels of a new user: all of them or none.",
            choices=("allchannels", "resetchannels")),
    Setting("acllog-max-len", "integer", "Entries that ACL LOG keeps."),
    Setting("protected-mode", "boolean", "Without a password, answer local clients only."),
    Setting("tls-port", "integer", "TCP port for TLS; 0: none.", 0, 65535, (), _AT_START),
    Setting("tls-cert-file", "text", "The server's certificate and those between it and its "
            "authority, PEM."),
    Setting("tls-key-file", "text", "Its key, PEM; empty: in the same file."),
    Setting("tls-key-file-pass", "text", "Password of the key; CONFIG GET does not show it.",
            secret=True),
    Setting("tls-ca-cert-file", "text", "Authorities that sign clients' certificates, PEM."),
    Setting("tls-ca-cert-dir", "text", "The same, a directory that `openssl rehash` has indexed."),
    Setting("tls-auth-clients", "choice", "Whether a client has to show a certificate, or may.",
            choices=("no", "yes", "optional")),
    Setting("tls-protocols", "words", "Versions that are spoken."),
    Setting("tls-ciphers", "text", "Ciphers of TLSv1.2, by OpenSSL's names; empty: Python's choice."),
    Setting("tls-prefer-server-ciphers", "boolean", "Whether the server's order of ciphers counts."),
    Setting("maxclients", "integer", "Most connections at a time.", 1, 2**32 - 1),
    Setting("timeout", "integer", "Seconds after which an idle client is disconnected; 0: never.",
            0, I32),
    Setting("tcp-keepalive", "integer", "Seconds between probes of a silent peer; 0: none.",
            0, I32),
    Setting("tcp-backlog", "integer", "Connections that may wait to be accepted.", 0, I32, (),
            _AT_START),
    Setting("proto-max-bulk-len", "memory", "Longest argument.", MIB),
    Setting("client-query-buffer-limit", "memory", "Most input of a client that has not run yet.",
            MIB),
    Setting("client-output-buffer-limit", "words", "Most output that a client has not read: class, "
            "hard limit, soft limit, seconds that the soft one may be exceeded."),
    Setting("notify-keyspace-events", "text", "Which changes of keys are published as messages; "
            "empty: none."),
    Setting("stream-node-max-bytes", "memory", "Bytes of a node, for trimming with `~`."),
    Setting("stream-node-max-entries", "integer", "Entries of a node, for trimming with `~`."),
    Setting("stream-autoclaim-scan-factor", "integer",
            "XAUTOCLAIM looks at no more than COUNT times this; 0: no bound.", 0, I32),
    Setting("stream-idmp-duration", "integer", "Seconds for which a new stream knows an idempotent "
            "id; XCFGSET changes it for one.", 1, MAX_IDMP_DURATION_S),
    Setting("stream-idmp-maxsize", "integer", "Idempotent ids of one producer that a new stream "
            "knows; XCFGSET changes it for one.", 1, MAX_IDMP_MAXSIZE),
    Setting("stream-hot-bytes", "memory", "How much of the newest entries of all streams together stays "
            "in memory as it was written; older ones are compressed."),
    Setting("stream-compression", "choice", "How older entries are compressed: auto is zstd where the "
            "package zstandard is installed, else zlib; none leaves them as they are.",
            choices=("auto", "zstd", "zlib", "none")),
    Setting("dump-format", "choice", "Whose form of streams DUMP writes: Redis 8.8's, one that Redis "
            "7.2 to 8.4 and Valkey read too, or one for 7.0.", choices=("8.8", "8.2", "7.0")),
    Setting("slowlog-log-slower-than", "integer", "Microseconds from which on a command is kept in "
            "the slow log; -1: none is.", -1),
    Setting("slowlog-max-len", "integer", "Most commands in the slow log."),
    Setting("lua-time-limit", "integer", "Milliseconds after which a script is ended.", 1),
    Setting("latency-monitor-threshold", "integer", "Milliseconds from which on LATENCY keeps what "
            "held the server up; 0: nothing."),
    Setting("latency-tracking", "boolean", "Whether to keep how long commands take, for LATENCY "
            "HISTOGRAM and INFO latencystats."),
    Setting("latency-tracking-info-percentiles", "words", "Percentiles that INFO latencystats shows."),
    Setting("enable-debug-command", "choice", "Who may use DEBUG: nobody, clients of this machine, "
            "or everyone.", choices=("no", "local", "yes"), fixed_after_start=_AT_START),
    Setting("loglevel", "choice", "What is logged.",
            choices=("debug", "verbose", "notice", "warning", "nothing")),
    Setting("logfile", "text", "Where the log goes; empty: standard error. SIGHUP opens it again.",
            fixed_after_start=_AT_START),
    Setting("log-format", "choice", "Lines of the log: text, or one JSON object each.",
            choices=("text", "json")),
    Setting("supervised", "choice", "Whether systemd is told of start, reload and stop: auto does so when "
            "it asks (NOTIFY_SOCKET).", choices=("auto", "systemd", "no"), fixed_after_start=_AT_START),
)  # fmt: skip

SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _ALL}


class Fixed(NamedTuple):
    """A setting with one possible value, and why."""

    value: str
    reason: str


_NO_SNAPSHOTS = "there are no snapshots: the journal holds everything"
_NO_REWRITE = "the journal is never rewritten in this release"
_NO_MEMORY_LIMIT = "no memory limit can be set in this release"
_NO_REPLICATION = "there is no replication in this release"
_NO_CLUSTER = "there is no cluster mode"
_TLS_1_3 = "Python's ssl does not choose the ciphers of TLSv1.3; all that OpenSSL has are offered"
_TLS_CURVES = "keys are exchanged by elliptic curves, which need no such file"
_TLS_SESSIONS = "sessions are resumed by tickets, as OpenSSL keeps them"
_FOREGROUND = "the server stays in the foreground; a service manager keeps it running"
_NO_THREADS = "commands and sockets are served by one thread"
_NO_TRACKING = "there is no client-side caching in this release"
_ONE_FORMAT = "the journal has one format and chooses the names of its files"

FIXED: dict[str, Fixed] = {
    "databases": Fixed(str(DATABASES), "there are 16 databases, always"),
    "save": Fixed("", _NO_SNAPSHOTS),
    "dbfilename": Fixed("", _NO_SNAPSHOTS),
    "stop-writes-on-bgsave-error": Fixed("no", _NO_SNAPSHOTS),
    "appendfilename": Fixed("journal", _ONE_FORMAT),
    "appenddirname": Fixed("", _ONE_FORMAT),
    "aof-use-rdb-preamble": Fixed("no", _ONE_FORMAT),
    "aof-load-truncated": Fixed("yes", "a torn tail of the journal is cut and reported"),
    "no-appendfsync-on-rewrite": Fixed("no", _NO_REWRITE),
    "auto-aof-rewrite-percentage": Fixed("0", _NO_REWRITE),
    "auto-aof-rewrite-min-size": Fixed("0", _NO_REWRITE),
    "maxmemory": Fixed("0", _NO_MEMORY_LIMIT),
    "maxmemory-policy": Fixed("noeviction", _NO_MEMORY_LIMIT),
    "maxmemory-clients": Fixed("0", _NO_MEMORY_LIMIT),
    "replicaof": Fixed("", _NO_REPLICATION),
    "slaveof": Fixed("", _NO_REPLICATION),
    "masterauth": Fixed("", _NO_REPLICATION),
    "repl-backlog-size": Fixed("0", _NO_REPLICATION),
    "min-replicas-to-write": Fixed("0", _NO_REPLICATION),
    "cluster-enabled": Fixed("no", _NO_CLUSTER),
    "tls-ciphersuites": Fixed("", _TLS_1_3),
    "tls-dh-params-file": Fixed("", _TLS_CURVES),
    "tls-session-caching": Fixed("yes", _TLS_SESSIONS),
    "tls-replication": Fixed("no", _NO_REPLICATION),
    "tls-cluster": Fixed("no", _NO_CLUSTER),
    "daemonize": Fixed("no", _FOREGROUND),
    "pidfile": Fixed("", _FOREGROUND),
    "io-threads": Fixed("1", _NO_THREADS),
    "tracking-table-max-keys": Fixed("0", _NO_TRACKING),
}

TLS_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
"""The versions of TLS that can be spoken."""


class OutputLimit(NamedTuple):
    """Most bytes that a client may leave unread; 0 is no limit. ``soft`` may be exceeded for so many
    seconds."""

    hard: int = 0
    soft: int = 0
    seconds: int = 0


class OutputLimits(NamedTuple):
    """client-output-buffer-limit: one for each class of clients, with Redis's defaults. Replicas do
    not exist yet."""

    normal: OutputLimit = OutputLimit()
    replica: OutputLimit = OutputLimit(256 * MIB, 64 * MIB, 60)
    pubsub: OutputLimit = OutputLimit(32 * MIB, 8 * MIB, 60)


OUTPUT_LIMITS = OutputLimits()
