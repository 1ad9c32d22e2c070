"""The scope that all parts of a running consumer share, and the hooks with which they follow its entries.

A stage knows only the next one. A part that must follow entries in another stage, such as the order of keys, adds
itself to a hook when it is made.
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
    """Lists of functions that are called about one consumer's entries, in the event loop's thread; ``unread`` also in
    the lease renewer's thread."""

    def __init__(self) -> None:
        self.starting: list[Callable[[Owned], bool]] = []
        """Called in a slot before a handler begins. If one returns False, it has taken the entry back."""
        self.settled: list[Callable[[Queued, SettleOutcome], None]] = []
        """Called when the store has replied to a settlement. After an error, another settlement follows."""
        self.dropped: list[Callable[[Owned], None]] = []
        """Called when another consumer owns the entry."""
        self.due: list[Callable[[float], None]] = []
        """Called with the time when an entry can be claimed, by the worker's monotonic clock in seconds."""
        self.unread: list[Callable[[], bool]] = []
        """Called before a renewal. Returns whether a large reply with further entries of the consumer is under way."""
        self.overtaken: list[Callable[[], None]] = []
        """Called when another process reads for this ordered consumer, or may read by now."""

    def expect(self, due: float) -> None:
        """Notify all parts that an entry can be claimed at ``due``."""
        for called in self.due:
            called(due)

    def overtake(self) -> None:
        """Notify all parts that another process reads now, or may do so."""
        for called in self.overtaken:
            called()


class Scope(NamedTuple):
    """The objects that the parts of one consumer share."""

    consumer: Consumer
    consumer_name: str
    """The consumer name of this process in the group."""
    clock: Timers
    changes: Changes
    connections: SharedConnections
    hooks: EntryHooks

    @property
    def name(self) -> str:
        """The stream and the group, for the log."""
        return f"{self.consumer.stream.name}/{self.consumer.group}"
