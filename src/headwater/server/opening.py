"""Opens a data directory as a node that is ready for turns.

Recovery is never silent: every cut and every note is logged. ``Journal.recovery`` retains them for
INFO and ``client.recovery``.
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
    """Return a node whose state is replayed from the journal in ``config.dir``. With ``appendonly no``
    the node is empty and writes nothing to disk.

    Raises `StoreInUse`, `StoreUnusable`, `JournalDamaged`, or `ConfigError` for invalid definitions of
    users; nothing on disk has changed then.
    """
    clock = clock if clock is not None else SystemClock()
    access = AccessControl(config)
    if not config.appendonly:
        return Node(config=config, clock=clock, access=access)
    directory = files if files is not None else DiskFiles(config.dir)
    journal = Journal.open(directory, policy=config.appendfsync, clock=clock)
    try:
        keyspace = recovered_keyspace(journal, config=config)
    except BaseException:
        journal.close()  # releases the directory
        raise
    log_recovery(journal.recovery)
    return Node(keyspace=keyspace, journal=journal, config=config, clock=clock, access=access)
