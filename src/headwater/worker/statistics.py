"""What a worker process has done since its start, and when its parts last made progress.

Counters are plain integers that the worker's own code increments; what is read here is a copy.
Metrics, `App.statistics` and ``headwater work --health`` read the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headwater.worker.connections import deadline_s
from headwater.worker.outcome import Ending

SLACK_SECONDS = 10.0
"""How much longer than its deadlines a part may take for one round: a read waits for 5 s."""


@dataclass(slots=True)
class Counters:
    """Of one consumer in one process, since the start of the process."""

    received: int = 0
    """Entries read, new and claimed."""
    claimed: int = 0
    """Of these, entries that another consumer had owned or that waited for a retry."""
    duplicates: int = 0
    """Of these, entries whose owner fell silent: what it did with them may be done twice."""
    handled: int = 0
    """Deliveries that were acknowledged after their handler returned."""
    failed: int = 0
    """Handlers that raised, or ran longer than their timeout. `Again` does not count as a failure."""
    retried: int = 0
    """Deliveries that ended in another one later."""
    dead: int = 0
    """Deliveries that ended as dead letters."""
    handed_back: int = 0
    """Deliveries given back unharmed, at a stop or for the quarantine process."""
    lost: int = 0
    """Deliveries whose entry another worker owned before they were settled."""
    published: int = 0
    """Results of handlers that were added to their stream."""
    gone_pending: int = 0
    """Entries deleted or trimmed from the stream while they were pending."""
    gone_unread: int = 0
    """Entries deleted or trimmed before the group read them; at least so many."""

    def settled(self, ending: Ending, deliveries: int, *, published: int) -> None:
        """The store has settled deliveries, and added so many results with them."""
        if ending is Ending.ACKNOWLEDGED:
            self.handled += deliveries
            self.published += published
        elif ending is Ending.RETRIED:
            self.retried += deliveries
        elif ending is Ending.DEAD:
            self.dead += deliveries
        else:
            self.handed_back += deliveries


class ConsumerProgress(NamedTuple):
    """When the parts of one consumer last did a round. Ages in seconds; 0 for a part that has nothing
    to do, such as a reader that owns all it may."""

    reader_age: float
    """Since the last read that the store answered."""
    settler_age: float
    """How long settlements have been waiting for the store."""
    renewer_age: float
    """Since all leases were renewed."""
    oldest_handler_age: float
    """How long the oldest running handler has been running."""
    running: int
    """Handlers that run."""
    owned: int
    """Entries owned: running, waiting for a handler, or being settled."""
    joined: bool = True
    """Whether it is a member of its group; False until the store has answered for the first time."""

    def late(self, lease_ms: int) -> list[str]:
        """The parts that are overdue. Handlers may take as long as they want."""
        limit = SLACK_SECONDS + 2 * deadline_s(lease_ms)
        ages = {
            "reader": (self.reader_age, limit),
            "settler": (self.settler_age, limit),
            "lease renewer": (self.renewer_age, max(limit, lease_ms / 1000)),
        }
        return [name for name, (age, longest) in ages.items() if age > longest]


class ConsumerStatistics(NamedTuple):
    """What one consumer has done in this process, and its progress while it works."""

    name: str
    """The handler's."""
    stream: str
    group: str
    counters: Counters
    """A copy."""
    progress: ConsumerProgress | None
    """None while it does not work."""
    late: Sequence[str]
    """Parts of the worker that are overdue: the reader, the settler, the lease renewer."""


class Statistics(NamedTuple):
    """What `App.statistics` returns."""

    published: int
    """Messages that this process sent through the app; results of handlers are counted by their
    consumers."""
    consumers: Sequence[ConsumerStatistics]
