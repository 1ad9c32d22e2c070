"""DEBUG RELOAD: the journal replayed into an empty keyspace, which takes the place of the old one.

Everything must be as it was; that is what it is for. Clients stay connected. As in Redis, where the
dataset is emptied and loaded, every watched key counts as modified and every blocked command is
run again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headwater.engine.keyspace import Keyspace
from headwater.journal.recovery import Recovery

if TYPE_CHECKING:
    from headwater.server.turn.node import Node


log = logging.getLogger("headwater.server")


def reload_from_journal(node: Node) -> None:
    """Replay; called right after a commit. Raises `JournalDamaged`, also when less is there than was
    committed, and `StoreUnusable`."""
    # opening.py imports the node
    from headwater.server.opening import log_recovery, replayed_keyspace

    journal = node.journal
    assert journal is not None, "the command asks first"
    old = node.keyspace
    recovery = journal.recovery.again()
    try:
        new = replayed_keyspace(recovery, recovery.replay(), config=node.config)
        _refuse_loss(recovery, journal.statistics().current_bytes)
    except Exception as error:
        log.critical("DEBUG RELOAD: %s", error)
        raise
    log_recovery(recovery)
    journal.recovery = recovery
    new.notified, new.dirty, new.expired_count = old.notified, old.dirty, old.expired_count
    new.opened_ms, new.hits, new.misses = old.opened_ms, old.hits, old.misses
    # Streams and their databases refer to each other: what is taken apart needs no cyclic collector.
    new.garbage += [*old.garbage, *(database.values for database in old.databases)]
    node.keyspace = new
    node.records.facts = new.facts
    node.adopt_limits()
    for session in node.sessions.values():
        index = session.db_index
        session.call.keyspace = new
        session.call.db = new.databases[index]
    node.watches.move(new)
    _move_waiters(node, new)


def _refuse_loss(recovery: Recovery, written: int) -> None:
    """Raises `JournalDamaged` unless all of the ``written`` bytes of records were read."""
    if recovery.bytes != written:
        found = f"the end of the records, although {written} bytes were written and {recovery.bytes} are there"
        raise recovery.damaged(recovery.current.name, recovery.end, found)


def _move_waiters(node: Node, new: Keyspace) -> None:
    """Whoever waits for a key waits for it in the new keyspace, and looks once."""
    for session in node.sessions.values():
        waiter = session.blocked
        if waiter is None:
            continue
        node.waiting.move(waiter, new.databases[waiter.db.index])
        for key in waiter.wait.keys:
            new.databases[waiter.db.index].signal(key)
