"""The queues of blocked clients, with their keys, deadlines and order.

Rule 1. Waiters of a key are served in order of arrival. A waiter that is run again and still finds
        nothing retains its place and its deadline.
Rule 2. Deadlines are monotonic times: setting the clock does not move them. A recheck (XREADGROUP
        CLAIM) waits until a delivery has reached an age, so its time is a steady time.
Rule 3. Waiters that wait for the same thing (readers of one group) share a queue.
Rule 4. A waiter whose wait has ended (served, timed out, closed) may still be in the heaps. Such a waiter is not
        ``active`` and is skipped. A heap with more such waiters than active ones is cleaned.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from operator import attrgetter

from headwater.commands.call import Wait
from headwater.engine.accounts.memory_account import table_bytes, text_bytes
from headwater.engine.keyspace.database import Database, Value
from headwater.engine.shared.keyspace_state import Place
from headwater.engine.streams.stream import StoredStream
from headwater.server.session.output import ClientMemory
from headwater.server.session.session import Session

_WAITER_BYTES, _ARGUMENT_BYTES, _WAITED_BYTES = 900, 16, 60
"""Bytes per blocked client, per argument of its request, and per key that it waits for, without their texts."""

_KEY_BYTES, _QUEUE_BYTES = 360, 180
"""Bytes per key that clients wait for, and per queue of waiters."""

_STALE_NOTES = 64


class Waiter:
    """A blocked command of a session."""

    def __init__(self, session: Session, db: Database, wait: Wait, deadline: float) -> None:
        self.session = session
        self.db = db
        self.wait = wait
        self.deadline = deadline
        """End of the timeout in monotonic seconds; infinity means no timeout."""
        self.arrival = 0
        """Number in the order of arrival; 0 before it is queued."""
        self.active = True
        self.due = False
        """True if the recheck is due and the command has not run again since."""
        self.held_bytes = 0
        """Memory of the waiter without its queues, in bytes; 0 before it is queued."""


Alike = bytes | tuple[int, bytes] | None
"""Identity of readers that wait for the same thing (`Wait.alike`); None for other waiters."""

Queues = dict[Alike, dict[Waiter, int]]
"""The waiters of a key by `Alike`; under None, waiters with nothing in common. Each waiter has the
`version_of_group` from its last run."""


def version_of_group(value: Value | None, alike: Alike) -> int:
    """Return a number that changes when the group of these readers is replaced or loses a consumer; 0 without a
    group. ``value`` is the value of their key."""
    if alike is None or not isinstance(value, StoredStream):
        return 0
    group = value.groups.get(alike if isinstance(alike, bytes) else alike[1])
    return 0 if group is None else (group.gid << 40) + group.next_cid - len(group.consumers)


def by_arrival(queues: Queues) -> list[Waiter]:
    """Return all waiters of these queues, in order of arrival."""
    waiters = [waiter for queue in queues.values() for waiter in queue]
    waiters.sort(key=attrgetter("arrival"))
    return waiters


class Waiters:
    """All waiters of a node."""

    def __init__(self, memory: ClientMemory) -> None:
        self._memory = memory
        self._queue_count = 0
        self._by_key: dict[Place, Queues] = {}
        self._deadlines: list[tuple[float, int, Waiter]] = []
        self._rechecks: list[tuple[int, int, Waiter]] = []
        self._ticket = 0
        self.count = 0

    def add(self, waiter: Waiter) -> None:
        """Append ``waiter`` to the queue of each of its keys."""
        self.count += 1
        self._ticket += 1
        waiter.arrival = self._ticket
        arguments = waiter.wait.arguments
        held = _WAITER_BYTES + len(arguments.buffer) + _ARGUMENT_BYTES * arguments.count
        for key in waiter.wait.keys:
            held += _WAITED_BYTES + text_bytes(key)
            queues = self._by_key.setdefault((waiter.db.index, key), {})
            queue = queues.get(waiter.wait.alike)
            if queue is None:
                queue = queues[waiter.wait.alike] = {}
                self._queue_count += 1
            if waiter not in queue:
                queue[waiter] = version_of_group(waiter.db.values.get(key), waiter.wait.alike)
                waiter.db.awaited[key] = None
        waiter.held_bytes = held
        self._memory.held_bytes += held
        if waiter.deadline != inf:
            self._ticket += 1
            heappush(self._deadlines, (waiter.deadline, self._ticket, waiter))
            if len(self._deadlines) > 2 * self.count + _STALE_NOTES:
                self._deadlines = [note for note in self._deadlines if note[2].active]
                heapify(self._deadlines)
        self._note_recheck(waiter)

    def recheck(self, waiter: Waiter, at_ms: int | None) -> None:
        """Recheck ``waiter``, which has run again and keeps waiting, at ``at_ms``; None means never."""
        if at_ms != waiter.wait.recheck_at_ms or waiter.due:
            waiter.wait.recheck_at_ms = at_ms
            self._note_recheck(waiter)

    def _note_recheck(self, waiter: Waiter) -> None:
        waiter.due = False
        if waiter.wait.recheck_at_ms is not None:
            self._ticket += 1
            heappush(self._rechecks, (waiter.wait.recheck_at_ms, self._ticket, waiter))
            if len(self._rechecks) > 2 * self.count + _STALE_NOTES:
                self._rechecks = [note for note in self._rechecks if not self._stale(note)]
                heapify(self._rechecks)

    def remove(self, waiter: Waiter) -> None:
        """Remove ``waiter``, whose wait has ended."""
        assert waiter.active
        waiter.active = False
        self.count -= 1
        self._memory.held_bytes -= waiter.held_bytes
        keys = waiter.wait.keys
        for key in keys if len(keys) == 1 else dict.fromkeys(keys):
            queues = self._by_key[waiter.db.index, key]
            queue = queues[waiter.wait.alike]
            del queue[waiter]
            if not queue:
                del queues[waiter.wait.alike]
                self._queue_count -= 1
            if not queues:
                del self._by_key[waiter.db.index, key]
                del waiter.db.awaited[key]

    @staticmethod
    def move(waiter: Waiter, db: Database) -> None:
        """Let ``waiter`` wait for the same keys of ``db``, which replaces its database."""
        waiter.db = db
        for key in waiter.wait.keys:
            db.awaited[key] = None

    def tables_bytes(self) -> int:
        """Return the memory of the queues, without the waiters in them."""
        size = table_bytes(self._by_key) + _KEY_BYTES * len(self._by_key)
        return size + _QUEUE_BYTES * self._queue_count

    @staticmethod
    def take_lost(queues: Queues, value: Value | None) -> bool:
        """Return whether readers in ``queues`` have lost their consumer or their group since they ran. The caller
        must run them next."""
        lost = False
        for alike, queue in queues.items():
            version = version_of_group(value, alike)
            if next(iter(queue.values())) != version:  # The first waiter has the oldest version.
                queue.update(dict.fromkeys(queue, version))
                lost = True
        return lost

    def queues_at(self, place: Place) -> Queues | None:
        """Return the queues of a key, or None if nothing waits for it."""
        return self._by_key.get(place)

    def next_deadline(self) -> float:
        """Return the earliest deadline, monotonic; infinity if no waiter has one."""
        heap = self._deadlines
        while heap and not heap[0][2].active:
            heappop(heap)
        return heap[0][0] if heap else inf

    def next_recheck(self) -> int | None:
        """Return the earliest recheck, in steady ms; None if no waiter has one."""
        heap = self._rechecks
        while heap and self._stale(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def timed_out(self, monotonic: float) -> list[Waiter]:
        """Return the waiters whose deadline has passed. The caller must remove them."""
        found: list[Waiter] = []
        while self.next_deadline() <= monotonic:
            found.append(heappop(self._deadlines)[2])
        return found

    def to_recheck(self, now_ms: int) -> list[Waiter]:
        """Return the waiters whose recheck is due, in order of arrival. The caller must call `recheck`."""
        found: list[Waiter] = []
        while (at := self.next_recheck()) is not None and at <= now_ms:
            waiter = heappop(self._rechecks)[2]
            if not waiter.due:  # A time that was changed and changed back is in the heap twice.
                waiter.due = True
                found.append(waiter)
        found.sort(key=lambda waiter: waiter.arrival)
        return found

    @staticmethod
    def _stale(note: tuple[int, int, Waiter]) -> bool:
        return not note[2].active or note[2].wait.recheck_at_ms != note[0]
