"""The record groups of the current turn, between the engine that writes them and the journal.

    mark = records.begin()
    …mutators write facts…
    records.seal(mark, now_ms)          # one group per command that wrote facts
    …
    records.commit()                    # writes the turn's groups, durable according to the policy

Without a journal the engine's facts are muted, and each call costs next to nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headwater.commands.call import Admission, always_admitted
from headwater.common.limits import MAX_RECORD_GROUP_BYTES
from headwater.engine.facts.facts import FactBuffer
from headwater.journal.format.records import GROUP_HEADER_BYTES, begin_group, seal_group
from headwater.journal.log.journal import Journal
from headwater.server.services.state import DISK_IS_FULL

log = logging.getLogger("headwater.server")

MISCONF = (
    "MISCONF Headwater cannot write its journal: {reason}. The command was not executed; reads go "
    "on. Free space on the disk of the data directory and send it again."
)


PassOn = Callable[[bytearray], Callable[[], None] | None]


class TurnRecords:
    """The facts that a turn has written and not committed. A node has one."""

    def __init__(self, facts: FactBuffer) -> None:
        self.facts = facts
        self.facts.muted = True
        self.journal: Journal | None = None
        self.turn = 0
        self.is_open = False
        """True if a group was begun and is not sealed: a change may be in progress."""
        self.admission: Admission = always_admitted
        self.grown_bytes = 0
        """Number of bytes of records that follow the last image."""
        self.pass_on: PassOn | None = None
        """Function that copies a turn's groups for replicas, and returns the function that sends them; None if no
        replica is to get them."""
        self._seed = 0
        self._allowance = -1
        self._awaited = False
        """True if a reply waits for the sealed groups."""
        self._refusing = False
        """True if writes are refused with MISCONF, which is logged."""
        self._wants_room = False
        """True if a checkpoint is to make room, regardless of the journal's growth. `grown_bytes` is set
        accordingly at the end of each turn, because a checkpoint may fail."""

    def use(self, facts: FactBuffer, journal: Journal) -> None:
        """Write ``facts`` to ``journal`` from the next turn on. The journal must have been replayed."""
        self.facts = facts
        self.facts.muted = False
        self.journal = journal
        self.turn = journal.recovery.last_turn
        self.admission = self.admit
        self._seed = journal.seed
        self.count_again()

    def stop_using(self) -> None:
        """Store nothing until `use`: the journal is closed."""
        self.drop()
        self.journal, self.admission = None, always_admitted

    def count_again(self) -> None:
        """Read from the journal the size of the records after its image, and the size that it accepts. Call this
        when the journal has begun another file, or has another image."""
        assert self.journal is not None
        self.grown_bytes = self.journal.grown_bytes
        self._allowance = self.journal.allowance

    def image_written(self) -> None:
        """Record that an image has replaced the journal that was written so far."""
        self._wants_room = False
        self.count_again()

    def begin(self) -> int:
        """Open a group. Return the mark for `seal`."""
        self.is_open = True
        return 0 if self.facts.muted else begin_group(self.facts.data)

    def seal(self, mark: int, now_ms: int) -> None:
        """Close the group that began at ``mark``. A group without facts is dropped."""
        self.is_open = False
        if not self.facts.muted and seal_group(
            self.facts.data, mark, self.turn, now_ms, self._seed
        ):
            self._awaited = True

    def seal_unawaited(self, mark: int, now_ms: int) -> None:
        """Seal a group as `seal` does, for facts that no reply waits for."""
        self.is_open = False
        if not self.facts.muted:
            seal_group(self.facts.data, mark, self.turn, now_ms, self._seed)

    def admit(self, size: int) -> str | None:
        """Return None if the journal accepts ``size`` bytes of facts in this turn, otherwise the
        error. The journal is asked only for more bytes than it has allowed before."""
        if size <= self._allowance:
            return None
        assert self.journal is not None
        reason = self.journal.admits(size)
        self._allowance = self.journal.allowance
        if (reason is not None) != self._refusing and size <= MAX_RECORD_GROUP_BYTES:
            self._log_change(reason)
        return None if reason is None else MISCONF.format(reason=reason)

    def _log_change(self, reason: str | None) -> None:
        """Log the beginning and the end of MISCONF, not each refused command."""
        self._refusing = self._wants_room = reason is not None
        if reason is not None:
            log.error("writes are refused with MISCONF from now on: %s", reason)
        else:
            self.count_again()
            log.warning("writes are accepted again: the journal has room")

    def holds_facts(self) -> bool:
        """Return whether this turn has written anything so far, in open or sealed groups."""
        return len(self.facts.data) > GROUP_HEADER_BYTES

    def admits(self, size: int) -> bool:
        """Return whether the journal has room for one more group of ``size`` bytes of facts."""
        return self.admission(len(self.facts.data) + GROUP_HEADER_BYTES + size) is None

    def commit(self) -> None:
        """Write the turn's groups. Raises `NodePoisoned`; no reply may be sent then."""
        if self.journal is None:
            self.drop()
            return
        if self.facts.data:
            send = None if self.pass_on is None else self.pass_on(self.facts.data)
            self.grown_bytes = self.journal.commit(self.facts.data, sync=self._awaited)
            self._allowance = self.journal.allowance
            if send is not None:
                send()
        self._awaited = False
        if self._wants_room:
            self.grown_bytes = DISK_IS_FULL

    def drop(self) -> None:
        """Discard the turn's facts, because the node has no journal or the journal is poisoned."""
        if self.facts.data:
            self.facts.data.clear()
        self._awaited = self.is_open = False
