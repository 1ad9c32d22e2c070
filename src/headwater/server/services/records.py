"""The record groups of the turn under way, between the engine that fills them and the journal.

    mark = records.begin()
    …mutators write facts…
    records.seal(mark, now_ms)          # one command, one group; no facts, no group
    …
    records.commit()                    # the turn's groups, durable as the policy says

Without a journal the engine's facts are muted and every step costs next to nothing.
"""

from __future__ import annotations

import logging

from headwater.commands.call import Admission, always_admitted
from headwater.engine.facts import FactBuffer
from headwater.journal.journal import Journal
from headwater.journal.records import GROUP_HEADER_BYTES, begin_group, seal_group
from headwater.limits import MAX_RECORD_GROUP_BYTES

log = logging.getLogger("headwater.server")


class TurnRecords:
    """What a turn has written and not committed; one for each node."""

    def __init__(self, facts: FactBuffer, journal: Journal | None) -> None:
        self.facts = facts
        self.facts.muted = journal is None
        self.journal = journal
        self.turn = 0 if journal is None else journal.recovery.last_turn
        self.admission: Admission = always_admitted if journal is None else self.admit
        self._seed = 0 if journal is None else journal.seed
        self._allowance = -1
        self._awaited = False
        """Somebody's reply waits for what was sealed."""
        self._refusing = False
        """Writes are refused with MISCONF, and the log says so."""

    def begin(self) -> int:
        """Open a group; the mark that `seal` takes."""
        return 0 if self.facts.muted else begin_group(self.facts.data)

    def seal(self, mark: int, now_ms: int) -> None:
        """Close the group begun at ``mark``, or drop it if nothing was written."""
        if not self.facts.muted and seal_group(
            self.facts.data, mark, self.turn, now_ms, self._seed
        ):
            self._awaited = True

    def seal_unawaited(self, mark: int, now_ms: int) -> None:
        """The same for what causes no fsync of its own."""
        if not self.facts.muted:
            seal_group(self.facts.data, mark, self.turn, now_ms, self._seed)

    def admit(self, size: int) -> str | None:
        """None when the journal takes ``size`` bytes of facts, all of the turn so far included, else the
        reason why not: asked of it only for more than it has allowed."""
        if size <= self._allowance:
            return None
        assert self.journal is not None
        reason = self.journal.admits(size)
        self._allowance = self.journal.allowance
        if (reason is not None) != self._refusing and size <= MAX_RECORD_GROUP_BYTES:
            self._log_change(reason)
        return reason

    def _log_change(self, reason: str | None) -> None:
        """Log where MISCONF begins and where it ends, not each command that it refuses."""
        self._refusing = reason is not None
        if reason is not None:
            log.error("writes are refused with MISCONF from now on: %s", reason)
        else:
            log.warning("writes are accepted again: the journal has room")

    def holds_facts(self) -> bool:
        """Whether this turn has written anything so far, in groups that are sealed or open."""
        return len(self.facts.data) > GROUP_HEADER_BYTES

    def admits(self, size: int) -> bool:
        """Whether the journal has room for one more group of ``size`` bytes of facts."""
        return self.admission(len(self.facts.data) + GROUP_HEADER_BYTES + size) is None

    def commit(self) -> None:
        """Write the turn's groups. Raises `NodePoisoned`; then nothing may be answered."""
        if self.journal is None or not self.facts.data:
            self.drop()
            return
        self.journal.commit(self.facts.data, sync=self._awaited)
        self._allowance = self.journal.allowance
        self._awaited = False

    def drop(self) -> None:
        """Forget what the turn wrote: there is no journal, or it is poisoned."""
        if self.facts.data:
            self.facts.data.clear()
        self._awaited = False
