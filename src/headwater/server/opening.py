"""Opens a data directory as a node: newest state from the journal, then ready for turns.

Recovery is never silent: each cut and each note is logged, and stays in ``Journal.recovery`` for INFO
and for ``client.recovery``.
"""

from __future__ import annotations

from headwater.clock import Clock, SystemClock
from headwater.config.config import Config
from headwater.journal.files import DiskFiles, Files
from headwater.journal.journal import Journal
from headwater.server.replaying import log_recovery, recovered_keyspace
from headwater.server.services.acl.access import AccessControl
from headwater.server.turn.node import Node


def open_node(config: Config, *, clock: Clock | None = None, files: Files | None = None) -> Node:
    """A node over ``config.dir``, its state replayed from the journal there; with
    ``appendonly no`` an empty one that keeps nothing.

    Raises `StoreInUse`, `StoreUnusable`, `JournalDamaged`, or `ConfigError` for users that are defined
    wrongly; nothing on disk is changed then.
    """
    clock = clock if clock is not None else SystemClock()
    access = AccessControl(config)
    if not config.appendonly:
        return Node(config=config, clock=clock, access=access)
    door = files if files is not None else DiskFiles(config.dir)
    journal = Journal.open(door, policy=config.appendfsync, clock=clock)
    try:
        keyspace = recovered_keyspace(journal, config=config)
    except BaseException:
        journal.close()  # lets the directory go
        raise
    log_recovery(journal.recovery)
    return Node(keyspace=keyspace, journal=journal, config=config, clock=clock, access=access)
