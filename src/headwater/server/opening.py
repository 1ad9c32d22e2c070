"""Opens a data directory as a node: newest state from the journal, then ready for turns."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.clock import Clock, SystemClock
from headwater.collector import collector_off
from headwater.engine.facts import FactBuffer
from headwater.engine.keyspace import Keyspace
from headwater.engine.replay import apply
from headwater.journal.files import DiskFiles, Files
from headwater.journal.journal import Journal
from headwater.journal.records import Group
from headwater.server.acl.access import AccessControl
from headwater.server.config import Config
from headwater.server.node import Node

_SEALED_AT_ONCE = 64


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
    return Node(keyspace=keyspace, journal=journal, config=config, clock=clock, access=access)


def recovered_keyspace(journal: Journal, *, config: Config | None = None) -> Keyspace:
    """The state that the journal's groups lead to."""
    return replayed_keyspace(journal.replay(), config=config)


def replayed_keyspace(groups: Iterable[Group], *, config: Config | None = None) -> Keyspace:
    """The state that these groups lead to. Facts are not written again meanwhile. What `Config`
    wants sealed is, as far as turns would have helped with it: a store may be larger than memory
    would be without. Python's collector is off meanwhile: it would look again and again at a store
    that only grows and holds no cycles."""
    keyspace = Keyspace(FactBuffer(muted=True))
    sealing = keyspace.sealing
    if config is not None:
        sealing.configure(config.stream_hot_bytes, config.stream_compression)
    with collector_off():
        for group in groups:
            apply(keyspace, group.facts)
            if sealing.due():
                sealing.help(_SEALED_AT_ONCE)
    keyspace.signalled.clear()
    keyspace.unseen.clear()
    keyspace.facts.muted = False
    return keyspace
