"""One owned entry, and its states from the read to the reply to its settlement (`TRANSITIONS`).

Rule 1. An entry is owned from the time it is read until the server has replied to its settlement. All owned
        entries are renewed.
Rule 2. A lost entry is no longer owned, and its ``async`` handler is cancelled. A handler in a thread continues.
        If it returns while the entry is unsettled, its success settles the entry, regardless of the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from headwater.groups.membership.member import Member
from headwater.groups.reading.claiming import Delivered
from headwater.groups.reading.poison import NO_RECORD, Record
from headwater.groups.settling.settling import Addition
from headwater.worker.declare.delivery import Delivery


class State(Enum):
    """The state of an owned entry."""

    READ = "read"
    WAITING = "waiting"
    RUNNING = "running"
    SETTLING = "settling"
    ENDED = "ended"

    after: tuple[State, ...]
    """The states that can follow."""


READ, WAITING, RUNNING, SETTLING, ENDED = State
"""The members by name: access to an attribute of an Enum takes 70 ns, and a message would need a dozen."""


class Transition(NamedTuple):
    """A change of state, and its cause."""

    before: State
    after: State
    cause: str


TRANSITIONS = (
    Transition(State.READ, State.WAITING, "it may be handled"),
    Transition(State.READ, State.SETTLING, "it is a dead letter, or handed back at once"),
    Transition(State.WAITING, State.RUNNING, "a slot takes it"),
    Transition(State.WAITING, State.SETTLING, "it expires, or is handed back: for a limit, a stop"),
    Transition(State.RUNNING, State.SETTLING, "its handler ends, or a stop does not wait for it"),
    Transition(State.RUNNING, State.WAITING, "its tokens of a limit are too old"),
    Transition(State.SETTLING, State.SETTLING, "its result is refused, so it is settled otherwise"),
    Transition(State.SETTLING, State.ENDED, "the store has replied"),
    Transition(State.READ, State.ENDED, "another worker owns it"),
    Transition(State.WAITING, State.ENDED, "another worker owns it"),
    Transition(State.RUNNING, State.ENDED, "another worker owns it, or its slot was ended"),
    Transition(State.ENDED, State.SETTLING, "its handler returns late: the first finisher settles"),
)
"""All changes of state. The guide's diagram is made from them."""

for _state in State:
    _state.after = tuple(one.after for one in TRANSITIONS if one.before is _state)


class Stop(Enum):
    """Reasons for which the worker cancels a running handler."""

    LOST = "its entry belongs to another worker now"
    TIMEOUT = "it ran longer than its timeout"
    STOPPING = "the worker stops"


class Work(Protocol):
    """The work of one handler call, for the executor: an entry, or a batch of entries."""

    task: asyncio.Task[None] | None
    stopped: Stop | None
    in_thread: bool
    """True if its handler runs in a thread, which cannot be cancelled."""

    @property
    def delivery(self) -> Delivery:
        """The delivery of the entry, or of the first one of a batch."""

    @property
    def lost(self) -> bool:
        """True if another worker owns the entry now, so that only a success still counts."""

    def stop(self, why: Stop) -> None:
        """Cancel the handler, if it runs."""


class Owned:
    """One owned entry."""

    __slots__ = (
        "_delivery",
        "_member",
        "additions",
        "arrived",
        "batch",
        "began",
        "delivered",
        "id",
        "in_thread",
        "lost",
        "record",
        "state",
        "stopped",
        "task",
    )

    def __init__(self, delivered: Delivered, member: Member) -> None:
        self.id = delivered.id
        self.delivered = delivered
        self.lost = False
        """True if another worker owns the entry now, or if it was handed back while its handler ran."""
        self._member = member
        self._delivery: Delivery | None = None
        self.record = NO_RECORD
        """The poison record of the entry, about earlier owners that were silent."""
        self.additions: Sequence[Addition] = ()
        """The handler's results, to be published in one step with the acknowledgement."""
        self.state = READ
        """The current state, changed only by `enter`."""
        self.arrived = 0.0
        """Time when it began to wait for a slot, by the worker's monotonic clock in seconds."""
        self.began = 0.0
        """Time when its handler began, by the worker's monotonic clock in seconds."""
        self.task: asyncio.Task[None] | None = None
        """The task that runs the handler; None while it does not run."""
        self.stopped: Stop | None = None
        self.in_thread = False
        self.batch: Work | None = None
        """The batch in which it runs, if its handler gets batches; otherwise None."""

    @property
    def delivery(self) -> Delivery:
        """The `Delivery` that its handler gets. It is made when it is first used."""
        if self._delivery is None:
            member = self._member
            self._delivery = Delivery(
                self.id.decode(),
                stream=member.stream,
                group=member.group,
                consumer=member.consumer,
                count=self.count,
                flat=self.delivered.fields,
            )
            self._delivery.excuse(self.record.excused)
            if self.lost:
                self._delivery.mark_lost()
        return self._delivery

    def enter(self, state: State) -> None:
        """Change the state, as `TRANSITIONS` permits."""
        assert state in self.state.after, f"{self.id!r} cannot be {state} after {self.state}"
        self.state = state

    def handled(self) -> None:
        """Record that the handler has ended. If the entry is still `RUNNING`, it is lost or its slot was ended."""
        if self.state is RUNNING:
            self.enter(ENDED)

    @property
    def unbegun(self) -> bool:
        """True if its handler has not begun, and it is not being settled."""
        return self.state is WAITING or self.state is READ

    def judged(self, record: Record) -> None:
        """Set its poison record. Deliveries that the record excuses do not count."""
        self.record = record
        if self._delivery is not None:
            self._delivery.excuse(record.excused)

    def mark_lost(self) -> None:
        """Record that this process no longer owns the entry. The handler can check this by `Delivery.lost`."""
        self.lost = True
        if self._delivery is not None:
            self._delivery.mark_lost()

    @property
    def count(self) -> int:
        return self.delivered.delivery_count

    @property
    def attempts(self) -> int:
        """Number of deliveries that count towards ``max_deliveries``, this one included."""
        return self.delivery.attempts

    def stop(self, why: Stop) -> None:
        """Cancel the handler, if it runs. The first reason counts."""
        if self.batch is not None:
            self.batch.stop(why)
        elif self.task is not None and self.stopped is None:
            self.stopped = why
            self.task.cancel()
