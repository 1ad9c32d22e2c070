"""What all parts of one consumer share while it runs in a process, and the hooks by which parts follow its entries.

A stage knows only the next one. A part that needs to know what happens to entries in another stage, such as the order
of keys, adds itself to a hook when it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headwater.groups.settling.settling import SettleOutcome
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.owned import Owned
from headwater.worker.settle.settle import Queued
from headwater.worker.store.clocks import Timers
from headwater.worker.store.shared_connection import SharedConnections
from headwater.worker.store.waiting import Changes


class EntryHooks:
    """Functions that are called about one consumer's entries, in the event loop's thread; ``unread`` also in the lease
    renewer's."""

    def __init__(self) -> None:
        self.starting: list[Callable[[Owned], bool]] = []
        """Asked in a slot before a handler begins. False: it does not start, because another part has it again."""
        self.settled: list[Callable[[Queued, SettleOutcome], None]] = []
        """The store has replied to a settlement. Entries with an error are settled in another way next."""
        self.dropped: list[Callable[[Owned], None]] = []
        """Another consumer owns the entry now."""
        self.due: list[Callable[[float], None]] = []
        """An entry can be claimed at this time, by the worker's monotonic clock in seconds."""
        self.unread: list[Callable[[], bool]] = []
        """Asked before a renewal: whether a large reply with further entries of this consumer is under way."""
        self.overtaken: list[Callable[[], None]] = []
        """Another process reads for this ordered consumer now."""

    def expect(self, due: float) -> None:
        """Tell all parts that an entry can be claimed at ``due``."""
        for called in self.due:
            called(due)

    def overtake(self) -> None:
        """Tell all parts that another process reads now."""
        for called in self.overtaken:
            called()


class Scope(NamedTuple):
    """What the parts of one consumer share."""

    consumer: Consumer
    consumer_name: str
    """The name of this process in the group."""
    clock: Timers
    changes: Changes
    connections: SharedConnections
    hooks: EntryHooks

    @property
    def name(self) -> str:
        """The stream and the group, for the log."""
        return f"{self.consumer.stream.name}/{self.consumer.group}"
