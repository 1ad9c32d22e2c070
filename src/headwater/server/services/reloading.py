"""DEBUG RELOAD: the journal replayed into an empty keyspace, which takes the place of the old one.

Everything must be as it was; that is what it is for. Clients stay connected. As in Redis, where the
dataset is emptied and loaded, every watched key counts as modified and every blocked command is
run again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headwater.journal.recovery import Recovery
from headwater.server.replaying import log_recovery, replayed_keyspace

if TYPE_CHECKING:
    from headwater.server.services.services import Services


log = logging.getLogger("headwater.server")


def reload_from_journal(services: Services) -> None:
    """Replay; called right after a commit. Raises `JournalDamaged`, also when less is there than was
    committed, and `StoreUnusable`."""
    journal = services.journal
    assert journal is not None, "the command asks first"
    old = services.keyspace
    recovery = journal.recovery.reread()
    try:
        new = replayed_keyspace(recovery, recovery.replay(), config=services.config)
        _refuse_loss(recovery, journal.statistics().current_bytes)
    except Exception as error:
        log.critical("DEBUG RELOAD: %s", error)
        raise
    log_recovery(recovery)
    journal.recovery = recovery
    new.dirty, new.expired_count = old.dirty, old.expired_count
    new.opened_ms, new.hits, new.misses = old.opened_ms, old.hits, old.misses
    # Streams and their databases refer to each other: what is taken apart needs no cyclic collector.
    new.garbage += [*old.garbage, *(database.values for database in old.databases)]
    services.replace_keyspace(new)


def _refuse_loss(recovery: Recovery, written: int) -> None:
    """Raises `JournalDamaged` unless all of the ``written`` bytes of records were read."""
    if recovery.bytes != written:
        found = f"the end of the records, although {written} bytes were written and {recovery.bytes} are there"
        raise recovery.damaged(recovery.current.name, recovery.end, found)
