"""Replays a journal into a keyspace.

Rule 1. A record that cannot be applied is damage, reported with its file and offset, whatever
        exception it causes. MemoryError and OSError are not: they concern this machine, not the
        record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from headwater.collector import collector_off
from headwater.config.streams import StreamConfig
from headwater.engine.facts import FactBuffer
from headwater.engine.keyspace import Keyspace
from headwater.engine.replay import apply
from headwater.journal.journal import Journal
from headwater.journal.records import Group
from headwater.journal.recovery import Recovery

log = logging.getLogger("headwater.journal")

_SEALED_AT_ONCE = 64
_REASON_CHARACTERS = 200


def recovered_keyspace(journal: Journal, *, config: StreamConfig | None = None) -> Keyspace:
    """Return the state that results from the journal's groups."""
    return replayed_keyspace(journal.recovery, journal.replay(), config=config)


def log_recovery(recovery: Recovery) -> None:
    """Log each cut and each oddity of the recovery as a warning."""
    for cut in recovery.cuts:
        log.warning(
            "the journal's tail was torn by a crash; %s: cut %d bytes at offset %d: %s",
            recovery.path(cut.file),
            cut.length,
            cut.offset,
            cut.found,
        )
    for note in recovery.notes:
        log.warning("journal: %s", note)


def replayed_keyspace(
    recovery: Recovery, groups: Iterable[Group], *, config: StreamConfig | None = None
) -> Keyspace:
    """Return the state that results from ``groups``, which ``recovery`` reads. Replayed facts are
    not written again. Blocks are sealed as ``config`` says, at the pace of turns, because a store
    may be larger than memory if it is not sealed. Python's garbage collector is off during the
    replay: it would repeatedly traverse a store that only grows and has no cycles.

    Raises `JournalDamaged`, with the cause, for a group that cannot be applied.
    """
    keyspace = Keyspace(FactBuffer(muted=True))
    sealing = keyspace.sealing
    if config is not None:
        sealing.configure(config.stream_hot_bytes, config.stream_compression)
    with collector_off():
        for group in groups:
            _apply(recovery, keyspace, group)
            if sealing.due():
                sealing.help(_SEALED_AT_ONCE)
    keyspace.signalled.clear()
    keyspace.unseen.clear()
    keyspace.facts.muted = False
    return keyspace


def _apply(recovery: Recovery, keyspace: Keyspace, group: Group) -> None:
    """Apply a group's facts; see rule 1."""
    try:
        apply(keyspace, group.facts, group.now_ms)
    except (MemoryError, OSError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
        found = f"a whole record that cannot be applied ({reason})"
        raise recovery.damaged(recovery.current.name, group.offset, found) from error
