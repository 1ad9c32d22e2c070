"""One owned entry, from the read to the reply of its settlement.

    BUFFERED ──taken──▶ RUNNING ──returns, raises──▶ SETTLING ──reply──▶ (gone)
        │                  │
        └──── lost, handed back at a stop ────▶ SETTLING or (gone)

Rule 1. An entry is owned from the moment it is read until the server has said what became of its
        settlement. Only what is owned is renewed, and everything owned is.
Rule 2. An entry that is lost is no longer owned; what its handler returns is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from headwater.groups.claiming import Delivered
from headwater.groups.member import Member
from headwater.groups.poison import NO_RECORD, Record
from headwater.groups.settling import Addition
from headwater.worker.delivery import Delivery


class State(Enum):
    BUFFERED = "buffered"
    RUNNING = "running"
    SETTLING = "settling"


class Stop(Enum):
    """Why a running handler was cancelled by us."""

    LOST = "its entry belongs to another worker now"
    TIMEOUT = "it ran longer than its timeout"
    STOPPING = "the worker stops"


class Work(Protocol):
    """What a handler is called for, as its execution sees it: an entry, or a batch of them."""

    task: asyncio.Task[None] | None
    stopped: Stop | None

    @property
    def delivery(self) -> Delivery:
        """The delivery; the first one of a batch."""

    @property
    def lost(self) -> bool:
        """Whether what the handler does is dropped: it belongs to another worker now."""

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
        """Another worker owns it now, or it was handed back while its handler runs."""
        self._member = member
        self._delivery: Delivery | None = None
        self.record = NO_RECORD
        """What the group remembers of earlier owners that fell silent."""
        self.additions: Sequence[Addition] = ()
        """What its handler returned, to be published in one step with the acknowledgement."""
        self.state = State.BUFFERED
        self.arrived = 0.0
        """When it began to wait for a batch, by the worker's monotonic clock in seconds."""
        self.began = 0.0
        """When its handler began, by the worker's monotonic clock in seconds."""
        self.task: asyncio.Task[None] | None = None
        """The task that runs the handler, while it runs."""
        self.stopped: Stop | None = None
        self.batch: Work | None = None
        """The batch in which it runs, if its handler gets batches."""

    @property
    def delivery(self) -> Delivery:
        """What its handler may know of it; made when somebody asks."""
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

    def judged(self, record: Record) -> None:
        """Its record is known: deliveries that it excuses do not count."""
        self.record = record
        if self._delivery is not None:
            self._delivery.excuse(record.excused)

    def mark_lost(self) -> None:
        """What its handler does is dropped; the handler can ask."""
        self.lost = True
        if self._delivery is not None:
            self._delivery.mark_lost()

    @property
    def count(self) -> int:
        return self.delivered.delivery_count

    @property
    def attempts(self) -> int:
        """Deliveries that count against `max_deliveries`, this one included."""
        return self.delivery.attempts

    def stop(self, why: Stop) -> None:
        """Cancel the handler, if it runs; the first reason counts."""
        if self.batch is not None:
            self.batch.stop(why)
        elif self.task is not None and self.stopped is None:
            self.stopped = why
            self.task.cancel()
