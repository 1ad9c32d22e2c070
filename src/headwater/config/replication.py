"""Settings of replication."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.kinds import I32, KIB, MIB, Integer, Memory, OtherServer
from headwater.config.setting import AT_START, setting


@dataclass(kw_only=True)
class ReplicationConfig:
    """Settings of replication: the primary of a replica, and what a primary does for its replicas."""

    replicaof: str = setting(
        "",
        "Host and port of the primary of which this server is a replica; empty: none. REPLICAOF changes it.",
        kind=OtherServer(),
        fixed_after_start=AT_START,
    )
    masteruser: str = setting(
        "",
        "User with which a replica logs in at its primary; empty: the default user.",
        secret=True,
    )
    masterauth: str = setting(
        "", "Password with which a replica logs in at its primary.", secret=True
    )
    tls_replication: bool = setting(False, "Connect to the primary with TLS.")
    replica_serve_stale_data: bool = setting(
        True, "Answer reads while the link to the primary is down, with data that may be old."
    )
    replica_priority: int = setting(
        100,
        "Sentinel promotes the replica with the lowest priority; 0: it never promotes this one.",
        kind=Integer(0, I32),
    )
    replica_announce_ip: str = setting(
        "",
        "Address at which the primary says that this replica is; empty: the address that it sees.",
    )
    replica_announce_port: int = setting(
        0, "Port at which the primary says that this replica is; 0: `port`.", kind=Integer(0, 65535)
    )
    replica_announced: bool = setting(True, "Sentinel learns of this replica.")
    repl_timeout: int = setting(
        60,
        "Seconds without a sign of life after which a link between primary and replica is closed.",
        kind=Integer(1, I32),
    )
    repl_ping_replica_period: int = setting(
        10,
        "Seconds between signs of life of a primary that has nothing else to send.",
        kind=Integer(1, I32),
    )
    repl_backlog_size: int = setting(
        KIB * MIB,
        "Bytes of journal files that are kept for replicas beyond those that the store needs itself.",
        kind=Memory(1),
    )
    repl_backlog_ttl: int = setting(
        3600,
        "Seconds for which journal files are kept for a replica that is gone; 0: as long as it takes.",
        kind=Integer(0, I32),
    )
    synchronous_replicas: int = setting(
        0,
        "Number of replicas that must have what a reply shows before it is sent; with appendfsync always, on disk. With "
        "fewer replicas, writes are refused. 0: replies do not wait.",
        kind=Integer(0, I32),
    )
    min_replicas_to_write: int = setting(
        0,
        "Replicas that must be connected for a write to be accepted; 0: none.",
        kind=Integer(0, I32),
    )
    min_replicas_max_lag: int = setting(
        10,
        "Seconds since its last sign of life after which a replica does not count for min-replicas-to-write.",
        kind=Integer(0, I32),
    )
