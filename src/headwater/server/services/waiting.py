"""Blocked clients: who waits for which key, until when, and in which order.

Rule 1. Waiters of a key are served first come, first served; a waiter that is run again and still
        has nothing keeps its place and its deadline.
Rule 2. Deadlines are monotonic times: setting the clock moves none of them. A recheck (XREADGROUP
        CLAIM) waits for a delivery to reach an age, so it is a steady time.
Rule 3. Those who wait alike (readers of one group) stand in a line of their own.
Rule 4. A waiter that has left (served, timed out, gone) may still stand in the heaps; it is known by
        ``active`` and passed over.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING

from headwater.commands.call import Wait
from headwater.engine.database import Database
from headwater.engine.keyspace_state import Place

if TYPE_CHECKING:
    from headwater.server.session.session import Session


class Waiter:
    """One blocked command of one session."""

    def __init__(self, session: Session, db: Database, wait: Wait, deadline: float) -> None:
        self.session = session
        self.db = db
        self.wait = wait
        self.deadline = deadline
        """Monotonic seconds; infinity waits for ever."""
        self.arrival = 0
        """Who came first has the smaller number; 0 before it stands in a line."""
        self.active = True
        self.due = False
        """Its recheck has come and it was not run again since."""


Lines = dict[bytes | tuple[int, bytes] | None, dict[Waiter, None]]
"""Who waits for a key, by what they wait for alike (`Wait.alike`); None: each for itself."""


def by_arrival(lines: Lines) -> list[Waiter]:
    """Everybody in these lines, first come first."""
    everybody = [waiter for line in lines.values() for waiter in line]
    everybody.sort(key=attrgetter("arrival"))
    return everybody


class Waiters:
    """All waiters of a node."""

    def __init__(self) -> None:
        self._by_key: dict[Place, Lines] = {}
        self._deadlines: list[tuple[float, int, Waiter]] = []
        self._rechecks: list[tuple[int, int, Waiter]] = []
        self._ticket = 0
        self.count = 0

    def add(self, waiter: Waiter) -> None:
        """``waiter`` goes to the end of the line of each of its keys."""
        self.count += 1
        self._ticket += 1
        waiter.arrival = self._ticket
        for key in waiter.wait.keys:
            lines = self._by_key.setdefault((waiter.db.index, key), {})
            line = lines.setdefault(waiter.wait.alike, {})
            if waiter not in line:
                line[waiter] = None
                waiter.db.awaited[key] = None
        if waiter.deadline != inf:
            self._ticket += 1
            heappush(self._deadlines, (waiter.deadline, self._ticket, waiter))
        self._note_recheck(waiter)

    def recheck(self, waiter: Waiter, at_ms: int | None) -> None:
        """``waiter`` was run again and waits on, to be looked at again at ``at_ms``."""
        if at_ms != waiter.wait.recheck_at_ms or waiter.due:
            waiter.wait.recheck_at_ms = at_ms
            self._note_recheck(waiter)

    def _note_recheck(self, waiter: Waiter) -> None:
        waiter.due = False
        if waiter.wait.recheck_at_ms is not None:
            self._ticket += 1
            heappush(self._rechecks, (waiter.wait.recheck_at_ms, self._ticket, waiter))

    def remove(self, waiter: Waiter) -> None:
        """``waiter`` waits no longer."""
        assert waiter.active
        waiter.active = False
        self.count -= 1
        keys = waiter.wait.keys
        for key in keys if len(keys) == 1 else dict.fromkeys(keys):
            lines = self._by_key[waiter.db.index, key]
            line = lines[waiter.wait.alike]
            del line[waiter]
            if not line:
                del lines[waiter.wait.alike]
            if not lines:
                del self._by_key[waiter.db.index, key]
                del waiter.db.awaited[key]

    @staticmethod
    def move(waiter: Waiter, db: Database) -> None:
        """``waiter`` waits for the same keys of a database that takes the place of its own."""
        waiter.db = db
        for key in waiter.wait.keys:
            db.awaited[key] = None

    def lines_at(self, place: Place) -> Lines | None:
        """Who waits for a key; empty lines are none."""
        return self._by_key.get(place)

    def next_deadline(self) -> float:
        """The earliest deadline, monotonic; infinity when there is none."""
        heap = self._deadlines
        while heap and not heap[0][2].active:
            heappop(heap)
        return heap[0][0] if heap else inf

    def next_recheck(self) -> int | None:
        """The earliest recheck, steady ms."""
        heap = self._rechecks
        while heap and self._stale(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def timed_out(self, monotonic: float) -> list[Waiter]:
        """Waiters whose deadline has passed; they are still to be removed."""
        found: list[Waiter] = []
        while self.next_deadline() <= monotonic:
            found.append(heappop(self._deadlines)[2])
        return found

    def to_recheck(self, now_ms: int) -> list[Waiter]:
        """Waiters whose recheck has come, first come first; `recheck` says when the next is."""
        found: list[Waiter] = []
        while (at := self.next_recheck()) is not None and at <= now_ms:
            waiter = heappop(self._rechecks)[2]
            if not waiter.due:  # A time that was left and come back to stands here twice.
                waiter.due = True
                found.append(waiter)
        found.sort(key=lambda waiter: waiter.arrival)
        return found

    @staticmethod
    def _stale(note: tuple[int, int, Waiter]) -> bool:
        return not note[2].active or note[2].wait.recheck_at_ms != note[0]
