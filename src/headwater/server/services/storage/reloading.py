"""DEBUG RELOAD: replays the journal into an empty keyspace, which replaces the current one.

The new state must equal the old one; the command exists to check that. Clients stay connected. As
in Redis, which empties and loads the dataset, every watched key counts as modified and every
blocked command is run again.
"""

from __future__ import annotations

import logging

from headwater.common.steps import do_all
from headwater.journal.log.recovery import Recovery
from headwater.persistence.replaying import log_recovery, reread_steps
from headwater.server.services.services import Services

log = logging.getLogger("headwater.server")


def reload_from_journal(services: Services) -> None:
    """Replay the journal; call it right after a commit. Raises `StoreUnusable`, or `JournalDamaged`, for example if
    the journal has fewer bytes than were committed."""
    journal = services.storage.journal
    assert journal is not None, "the command checks that there is a journal"
    old = services.keyspace
    recovery, source = journal.recovery.reread(), old.sealing.bodies.source
    assert source is not None
    try:
        new = do_all(reread_steps(journal, recovery, source, services.config))
        _refuse_loss(recovery, journal.record_bytes)
    except Exception as error:
        log.critical("DEBUG RELOAD: %s", error)
        raise
    log_recovery(recovery, new)
    journal.recovery = recovery
    new.dirty, new.expired_count = old.dirty, old.expired_count
    new.opened_ms, new.hits, new.misses = old.opened_ms, old.hits, old.misses
    new.freed_lazily = old.freed_lazily
    # Streams and their databases refer to each other; garbage that is dismantled needs no collector.
    new.garbage += [*old.garbage, *(database.values for database in old.databases)]
    services.replace_keyspace(new)


def _refuse_loss(recovery: Recovery, written: int) -> None:
    """Raise `JournalDamaged` unless all ``written`` bytes of records were read."""
    if recovery.bytes != written:
        found = f"the end of the records after {recovery.bytes} of {written} written bytes"
        raise recovery.damaged(recovery.current.name, recovery.end, found)
