"""`Batch`, the messages that a batch handler gets, and the outcome of each of its entries.

    entries ──▶ Batch ──▶ handler ──▶ HandlerOutcome ──▶ one outcome for each entry
                  ▲                                            ▲
                  └─ fail, dead, again: the handler names an item and its outcome

Rule 1. An outcome that the handler sets for an item applies to this item. The handler's return or error applies
        to all other items.
Rule 2. With ``into``, the result belongs to the whole batch. If another worker has taken one of its entries, part
        of the result would be published twice. So the result is dropped, and the other entries are handled again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Generic, TypeVar

from headwater.worker.declare.delivery import Delivery
from headwater.worker.declare.outcome import (
    LOST,
    Again,
    Dead,
    Failed,
    HandlerOutcome,
    Parted,
    Raised,
    Returned,
    Stopped,
)
from headwater.worker.declare.owned import Owned, Stop

T = TypeVar("T")


class Batch(Generic[T]):
    """Messages that a handler of ``@app.batch`` gets together. Iterating yields the messages; ``len`` counts
    them.

    `Batch.fail`, `Batch.dead` and `Batch.again` set the outcome of one item; all others are acknowledged when the
    handler returns. Each method takes the item itself (not an equal object) or its index; an integer is always an
    index. The last call for an item counts. The methods raise ``ValueError`` for an object that is not an item of
    this batch, ``IndexError`` for an index out of range, and ``RuntimeError`` after the handler ended.

    >>> rows = Batch([{"id": 1}, {"id": 2}, {"id": 2}], deliveries=[])
    >>> rows.fail(rows.items[2], "constraint")
    >>> rows.dead(0, "unknown customer")
    >>> len(rows), list(rows)
    (3, [{'id': 1}, {'id': 2}, {'id': 2}])
    >>> rows.fail({"id": 2}, "constraint")
    Traceback (most recent call last):
    ValueError: {'id': 2} is not an item of this batch: pass the item itself, not a copy, or its index
    """

    __module__ = "headwater"
    __slots__ = ("_closed", "_deliveries", "_places", "_said", "items")

    def __init__(self, items: Sequence[T], deliveries: Iterable[Delivery]) -> None:
        self.items: tuple[T, ...] = tuple(items)
        """The messages, in the order in which the worker read them."""
        self._deliveries = deliveries
        self._said: dict[int, Raised] = {}
        self._places: dict[int, list[int]] | None = None
        self._closed = False

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """The `Delivery` of each item, at the same index."""
        if not isinstance(self._deliveries, tuple):
            self._deliveries = tuple(self._deliveries)  # made only if the handler reads them
        return self._deliveries

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __repr__(self) -> str:
        return f"<Batch of {len(self.items)}>"

    def fail(self, item: T | int, reason: str | BaseException = "") -> None:
        """Fail an item. It is delivered again after the wait of the consumer's ``retry``. At its last delivery it
        becomes a dead letter with ``reason``."""
        self._say(item, reason if isinstance(reason, BaseException) else Failed(reason))

    def dead(self, item: T | int, reason: str = "") -> None:
        """Make an item a dead letter with ``reason`` now, as raising `Dead` does."""
        self._say(item, Dead(reason))

    def again(
        self,
        item: T | int,
        after: str | timedelta | None = None,
        *,
        counted: bool = True,
        reason: str = "",
    ) -> None:
        """Deliver an item again after the time ``after``, as raising `Again` does.

        Raises `DeclarationError` if ``after`` is not a duration.
        """
        self._say(item, Again(after, counted=counted, reason=reason))

    def _say(self, item: object, error: BaseException) -> None:
        if self._closed:
            raise RuntimeError("the handler of this batch has ended, and its outcome is decided")
        self._said[self._index(item)] = Raised(error)

    def _index(self, item: object) -> int:
        if isinstance(item, int) and not isinstance(item, bool):
            if not 0 <= item < len(self.items):
                raise IndexError(f"index {item} of a batch of {len(self.items)} items")
            return item
        if self._places is None:
            self._places = {}
            for index, one in enumerate(self.items):
                self._places.setdefault(id(one), []).append(index)
        places = self._places.get(id(item), [])
        if not places:
            raise ValueError(
                f"{item!r:.200} is not an item of this batch: pass the item itself, not a copy, or "
                "its index"
            )
        if len(places) > 1:
            raise ValueError(
                f"{item!r:.200} is in this batch several times, at {places}: pass the index of one"
            )
        return places[0]

    def take(self, said: Mapping[int, BaseException]) -> None:
        """Set outcomes of items, by index, that the handler set in another process. Called by the worker."""
        self._said.update((index, Raised(error)) for index, error in said.items())

    def close(self) -> dict[int, Raised]:
        """Record that the handler has ended. Return the outcomes that it set, by index. Called by the worker."""
        self._closed = True
        return self._said


class BatchRun:
    """A batch while it is handled; see `owned.Work`. With ``whole``, its result is for all entries (rule 2)."""

    def __init__(self, entries: Sequence[Owned], items: Sequence[object], *, whole: bool) -> None:
        self.entries = entries
        self.rows = Batch(items, (owned.delivery for owned in entries))
        self.task: asyncio.Task[None] | None = None
        self.stopped: Stop | None = None
        self.in_thread = False
        self._whole = whole
        for owned in entries:
            owned.batch = self

    @property
    def delivery(self) -> Delivery:
        """The delivery of the first entry."""
        return self.entries[0].delivery

    @property
    def lost(self) -> bool:
        """True if the handler's work is dropped: all entries are lost or, with ``whole``, any of them is."""
        lost = (owned.lost for owned in self.entries)
        return any(lost) if self._whole else all(lost)

    def stop(self, why: Stop) -> None:
        """Cancel the handler, if it runs. A lost entry cancels the handler only if all its work is dropped."""
        if why is Stop.LOST and not self.lost:
            return
        if self.task is not None and self.stopped is None:
            self.stopped = why
            self.task.cancel()

    def endings(
        self, outcome: HandlerOutcome, owns: Callable[[Owned], bool]
    ) -> list[tuple[Owned, HandlerOutcome]]:
        """Return the outcome of each entry, given the outcome of the handler."""
        said = self.rows.close()
        lost = {owned for owned in self.entries if owned.lost or not owns(owned)}
        if self._whole and lost and not isinstance(outcome, Stopped | Returned):
            outcome = Parted()
        for owned in self.entries:
            owned.batch = None
        if not said and not lost:
            return [(owned, outcome) for owned in self.entries]
        found: list[tuple[Owned, HandlerOutcome]] = []
        for index, owned in enumerate(self.entries):
            if owned in lost and (index in said or not isinstance(outcome, Returned)):
                found.append((owned, LOST))
            elif isinstance(outcome, Stopped):
                found.append((owned, outcome))
            else:
                found.append((owned, said.get(index, outcome)))
        return found
