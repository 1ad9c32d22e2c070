"""Internal errors: exceptions caused by a bug in Headwater or by a lack of memory, not by a client.

Rule 1. An exception that is raised before the first change becomes the reply ``-ERR internal error ID …`` of the
        command that raised it. Nothing else is affected.
Rule 2. An exception that is raised after the first change may leave a change incomplete: the node is poisoned,
        and the exception is passed on to the driver (design rule 4).
Rule 3. The log has the traceback for each id. The id stands for the place in the code, so it is the same after a
        restart, and a client that repeats its command cannot fill the log.
Rule 4. The node's own work (timers, freeing, sealing) that fails without a change is tried again after a second.
Rule 5. Code that only observes commands (slow log, latency events, MONITOR, keyspace events) catches its errors: a
        failure is logged, and the observed command is answered as usual.

Decision: docs/adr/0060-internal-errors.md.
"""

from __future__ import annotations

import logging
import traceback
import zlib

from headwater.common.log_limit import LimitedLog
from headwater.errors import CommandError, NodePoisoned
from headwater.server.services.records import TurnRecords
from headwater.server.services.state import NodeState
from headwater.server.services.turn_clock import TurnClock

log = logging.getLogger("headwater.server")

REST_S = 1.0
"""Time for which the node's own work rests after an internal error, in seconds."""


NOTHING = "has changed nothing"
WHOLE = "left no change incomplete"
"""Statements about changes in the message of an internal error."""


class Faults:
    """The internal errors of a node. ``count`` is their number since the start."""

    def __init__(
        self, state: NodeState, records: TurnRecords, times: TurnClock, limited: LimitedLog
    ) -> None:
        self.count = 0
        self._state = state
        self._records = records
        self._times = times
        self._log = limited

    def refuse(
        self, error: Exception, title: str, *, changed: bool, outcome: str = NOTHING
    ) -> CommandError:
        """Return the reply to a command that ``error`` ended; ``outcome`` states its changes. If the command may have
        ``changed`` something incompletely, poison the node and raise ``error``."""
        if changed or self._state.poisoned is not None:
            self.poison(error)
            raise error
        number = self.record(error, title, outcome)
        return CommandError(
            f"ERR internal error {number}: {title} could not be executed, and {outcome}. The log has the reason; "
            "please report it"
        )

    def rest(self, error: Exception, work: str) -> None:
        """Let the node's own work rest after ``error`` ended it. If the error came in the middle of a change,
        poison the node and raise ``error``."""
        if self._records.is_open or self._state.poisoned is not None:
            self.poison(error)
            raise error
        self.record(error, work)
        self._state.rests_until = self._times.monotonic() + REST_S

    def record(self, error: BaseException, work: str, outcome: str = WHOLE) -> str:
        """Count and log an internal error. Return its id."""
        self.count += 1
        number = fault_id(error)
        self._log.error(f"internal error {number}: %s failed, and %s", work, outcome, error=error)
        return number

    def poison(self, error: BaseException) -> None:
        """Poison the node: ``error`` came in the middle of a change, which may be incomplete in memory."""
        if self._state.poisoned is None:
            self._state.poisoned = NodePoisoned(
                f"a turn was aborted by {error!r}, and its change in memory may be incomplete. "
                "Open the store again: its journal has everything that was answered"
            )


def fault_id(error: BaseException) -> str:
    """Return eight hexadecimal digits that stand for the kind of ``error`` and the place that raised it.

    >>> len(fault_id(IndexError("beyond the offsets")))
    8
    """
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        place = f"{frame.filename.rpartition('headwater/')[2]}:{frame.name}"
    return f"{zlib.crc32(f'{type(error).__name__} {place}'.encode()):08x}"
