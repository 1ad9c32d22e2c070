"""Statistics of a worker process: its counts since its start, and the progress of its parts.

Counters are integers that the worker increments; readers get copies. Metrics, `App.statistics` and
``headwater work --health`` use the same values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headwater.worker.declare.outcome import Ending
from headwater.worker.store.connections import deadline_s

SLACK_SECONDS = 10.0
"""Time that one round of a part may take in addition to its deadlines, in seconds: a read blocks for 5 s."""


@dataclass(slots=True)
class Counters:
    """Counts of one consumer in one process, since the start of the process."""

    received: int = 0
    """Entries read, new and claimed."""
    claimed: int = 0
    """Received entries that another consumer had owned, or that were delayed."""
    duplicates: int = 0
    """Claimed entries whose owner was silent, so that they may be handled twice."""
    handled: int = 0
    """Deliveries that were acknowledged after their handler returned."""
    failed: int = 0
    """Deliveries that failed: the handler raised an error other than `Again`, ran longer than its timeout or
    ended its pool process, or its result could not be published."""
    retried: int = 0
    """Deliveries after which the entry is delivered again."""
    dead: int = 0
    """Deliveries that ended as dead letters."""
    expired: int = 0
    """Entries that no worker started within their ``expires``: dropped, or also counted as ``dead``."""
    limited: int = 0
    """Deliveries given back uncounted, because the entry has to wait for a `Limit`."""
    handed_back: int = 0
    """Deliveries given back uncounted: at a stop, for the quarantine process, or because they had to wait."""
    lost: int = 0
    """Deliveries whose entry another worker owned before they were settled."""
    overtaken: int = 0
    """Handlers that returned after another worker had settled the entry. Their results were dropped."""
    published: int = 0
    """Results of handlers that were added to their stream."""
    gone_pending: int = 0
    """Entries deleted or trimmed from the stream while they were pending."""
    gone_unread: int = 0
    """Entries deleted or trimmed before the group read them; a lower bound."""

    def settled(self, ending: Ending, deliveries: int, *, published: int) -> None:
        """Count deliveries that the store has settled, and the results published with them."""
        if ending is Ending.ACKNOWLEDGED:
            self.handled += deliveries
            self.published += published
        elif ending is Ending.RETRIED:
            self.retried += deliveries
        elif ending is Ending.DEAD:
            self.dead += deliveries
        elif ending is Ending.HANDED_BACK:
            self.handed_back += deliveries


class ConsumerProgress(NamedTuple):
    """The times since the parts of one consumer last made progress.

    Ages are in seconds, and 0 for a part that has nothing to do, such as a reader without room for more entries.
    """

    reader_age: float
    """Seconds since the last read that the store answered."""
    settler_age: float
    """Seconds for which settlements have been waiting for the store."""
    renewer_age: float
    """Seconds since the last renewal of all leases."""
    oldest_handler_age: float
    """Seconds for which the oldest running handler has been running."""
    running: int
    """Number of handlers that run."""
    owned: int
    """Number of entries that it owns: running, waiting for a handler, or being settled."""
    joined: bool = True
    """True if the consumer has joined its group; False until the store has answered for the first time."""
    hung: str = ""
    """Reason why all handlers of the consumer hang: no slot is free, and no handler has ended for the ``timeout``,
    or for ten times the usual duration and at least a minute. Empty while handlers end."""

    def late(self, lease_ms: int) -> list[str]:
        """Return the names of overdue parts, given the consumer's ``lease`` in milliseconds: ``"reader"``,
        ``"settler"``, ``"lease renewer"``. Handlers may take any time."""
        limit = SLACK_SECONDS + 2 * deadline_s(lease_ms)
        ages = {
            "reader": (self.reader_age, limit),
            "settler": (self.settler_age, limit),
            "lease renewer": (self.renewer_age, max(limit, lease_ms / 1000)),
        }
        return [name for name, (age, longest) in ages.items() if age > longest]


class ConsumerStatistics(NamedTuple):
    """The counts of one consumer in this process, and its progress while it runs."""

    name: str
    """The name of the handler."""
    stream: str
    """The name of the stream, or of the partition."""
    group: str
    """The name of the consumer group."""
    counters: Counters
    """A copy of the consumer's counters."""
    progress: ConsumerProgress | None
    """The progress of the consumer's parts; None while the consumer does not run."""
    late: Sequence[str]
    """Names of overdue parts: ``"reader"``, ``"settler"``, ``"lease renewer"``."""


class Statistics(NamedTuple):
    """The counts of a process for its app since the process started. `App.statistics` returns them.

    >>> import asyncio
    >>> from headwater import App, Stream
    >>> app, orders = App(), Stream("orders", dict[str, int], codec="json")
    >>> @app.consumer(orders, group="billing")
    ... async def bill(order) -> None: ...
    >>> async def main() -> None:
    ...     async with app.test() as t:
    ...         await t.send(orders, {"id": 17}, {"id": 18})
    ...         found = app.statistics()
    ...         print(found.published, found.consumers[0].counters.handled, found.consumers[0].late)
    >>> asyncio.run(main())
    2 2 []
    """

    published: int
    """Number of messages that this process sent through the app, without the results of handlers."""
    consumers: Sequence[ConsumerStatistics]
    """One item for each consumer, or for each partition of its stream, in the order of declaration."""
    loop_delay: float = 0.0
    """Seconds that a call that was ready recently waited for the event loop, or has waited so far. The delay is
    long while a handler blocks the loop."""
