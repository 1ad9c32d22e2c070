"""Decides which entries of an ordered consumer may run: for each key, the one with the smallest id.

    arrived, listed ──▶ line of its key, in id order ──▶ the first, if it is here ──▶ pool
                                                    └──▶ the first, if it is away ──▶ claimed when due

An entry is *here* if this process owns it, and *away* if it is pending elsewhere: it is delayed, or was handed
back, or a former reader owns it and may still handle it.

Rule 1. An entry of a key starts only after the store has replied to the settlement of the entry before it.
Rule 2. An entry that is away keeps its place in the line, so no later entry of its key runs before it.
Rule 3. An entry that was settled, or is gone from the stream, is removed from its line.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import insort
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from headwater.common.model import StreamID
from headwater.groups.reading.ordered import Claimed
from headwater.groups.reports.held import MOST_KEYS, MOST_WAITING, HeldKey
from headwater.groups.settling.settling import FINAL, SettleOutcome
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.owned import Owned, State
from headwater.worker.settle.settle import Queued
from headwater.worker.store.clocks import Timers

MOST_KEY_CHARACTERS = 200
"""Maximum number of characters of a key that reports show."""


class _Entry:
    """One unsettled entry. ``owned`` is set while it is here. Otherwise it is claimed at ``due``."""

    __slots__ = ("due", "given", "id", "key", "owned", "place", "wakes")

    def __init__(self, id: bytes, key: Hashable) -> None:
        self.id = id
        self.key = key
        self.place = StreamID.parse(id)
        self.owned: Owned | None = None
        self.given = False
        """True if it was given to the pool, because its turn has come."""
        self.due = 0.0
        self.wakes: float | None = None
        """The entry's time in the heap of entries to claim; None if it is not in the heap."""


def _shown(key: Hashable) -> str:
    """Return a key for reports. Any class may define ``__str__``."""
    try:
        return str(key)[:MOST_KEY_CHARACTERS]
    except Exception as error:
        return f"({type(key).__name__}, whose __str__ raised {type(error).__name__})"


class _NoKey:
    """The key of an entry that cannot be decoded, or for which ``order_by`` raised an error."""


class Ordering:
    """The lines of one consumer's keys. ``offer`` gives entries to the slots. ``expect`` is called with the time at
    which the next entry that is away must be claimed. Times are monotonic seconds."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        clock: Timers,
        offer: Callable[[Sequence[Owned]], None],
        expect: Callable[[float], None],
    ) -> None:
        assert consumer.order_by is not None, "an ordered consumer has a key function"
        self._consumer = consumer
        self._order_by = consumer.order_by
        self._clock = clock
        self._offer = offer
        self._expect = expect
        self._number = itertools.count()
        self.clear()

    def clear(self) -> None:
        """Forget all entries, because another process is the reader now."""
        self.entries: dict[bytes, _Entry] = {}
        self._lines: dict[Hashable, list[tuple[StreamID, _Entry]]] = {}
        self._wakes: list[tuple[float, int, _Entry]] = []

    # --- changes of entries -----------------------------------------------------------------------

    def arrived(self, owned: Owned) -> BaseException | None:
        """Add an entry that is here. Return the error that ``order_by`` raised, if any; then the entry has no key
        and does not wait for others."""
        entry = self.entries.get(owned.id)
        error = None
        if entry is None or isinstance(entry.key, _NoKey):
            key, error = self._key(owned.delivered.fields)
            entry = entry or self._add(owned.id, key)
        entry.owned, entry.given = owned, False
        return error

    def runs(self, owned: Owned) -> None:
        """Add an entry whose handler has begun, and to whose settlement the store has not replied yet."""
        self.arrived(owned)
        self.entries[owned.id].given = True

    def listed(self, id: bytes, fields: list[bytes]) -> None:
        """Add an entry that is pending and away. It is claimed when its turn comes."""
        if id not in self.entries:
            key, _error = self._key(fields)
            self._add(id, key)

    def given(self, owned: Owned) -> bool:
        """Return whether the turn of this entry has come."""
        entry = self.entries.get(owned.id)
        return entry is None or entry.given

    def advance(self, ids: Sequence[bytes]) -> None:
        """Start the first entries in the lines of these entries, if they have not been started."""
        for key in {entry.key for one in ids if (entry := self.entries.get(one)) is not None}:
            self._advance(key)

    def settled(self, queued: Queued, outcome: SettleOutcome) -> None:
        """Process the reply to a settlement."""
        if outcome.error is not None:
            return  # another settlement follows
        over = outcome.done and queued.settlement.how in FINAL
        for owned in queued.entries:
            if over or outcome.gone:
                self.remove([owned.id])
            else:
                self.away(owned, delay_ms=queued.settlement.delay_ms if outcome.done else 0)

    def away(self, owned: Owned, *, delay_ms: int = 0) -> None:
        """Record that an entry is now away and, as far as this process knows, not settled."""
        entry = self.entries.get(owned.id)
        if entry is None or entry.owned is not owned:
            return
        entry.owned = None
        entry.due = self._clock.monotonic() + delay_ms / 1000
        self._advance(entry.key)

    def remove(self, ids: Sequence[bytes]) -> None:
        """Remove entries that are settled, or gone from the stream."""
        for one in ids:
            entry = self.entries.pop(one, None)
            if entry is None:
                continue
            line = self._lines[entry.key]
            line.remove((entry.place, entry))
            if line:
                self._advance(entry.key)
            else:
                del self._lines[entry.key]

    def held(self) -> list[HeldKey]:
        """Return the keys whose entries wait for an earlier one, oldest first."""
        lines = heapq.nsmallest(
            MOST_KEYS,
            (
                (line[0][0], number, line)
                for number, line in enumerate(self._lines.values())
                if line[1:]
            ),
        )
        return [
            HeldKey(
                _shown(line[0][1].key),
                str(first),
                [str(place) for place, _entry in line[1 : MOST_WAITING + 1]],
                len(line) - 1,
            )
            for first, _number, line in lines
        ]

    # --- which entries to claim -------------------------------------------------------------------

    def due(self, limit: int) -> list[bytes]:
        """Return the ids of entries that are away, first of their key, and due, in id order. An id is returned
        only once until `claimed` is called with the result."""
        now = self._clock.monotonic()
        found: list[_Entry] = []
        while self._wakes and self._wakes[0][0] <= now and len(found) < limit:
            entry = self._pop()
            if self._waits(entry) and entry.due <= now and entry not in found:
                found.append(entry)
        return [entry.id for entry in sorted(found, key=lambda one: one.place)]

    @property
    def next_due(self) -> float | None:
        """Time at which the next entry that is away must be claimed; None if no entry is away."""
        while self._wakes and not self._waits(self._wakes[0][2]):
            self._pop()
        return self._wakes[0][0] if self._wakes else None

    def wake(self) -> None:
        """Schedule a claim of each first entry that is away and not scheduled, so that none is forgotten."""
        for line in self._lines.values():
            entry = line[0][1]
            if entry.owned is None and entry.wakes is None:
                self._advance(entry.key)

    def _pop(self) -> _Entry:
        _due, _number, entry = heapq.heappop(self._wakes)
        entry.wakes = None
        return entry

    def claimed(self, asked: Sequence[bytes], answer: Claimed) -> None:
        """Process the result of claiming due entries. The claimed entries must be passed to `arrived`."""
        self.remove(answer.settled)
        now = self._clock.monotonic()
        found = {one.id for one in answer.found}
        for one in asked:
            entry = self.entries.get(one)
            if entry is not None and one not in found:
                entry.due = now + answer.waiting.get(one, 0) / 1000
                self._advance(entry.key)

    def _waits(self, entry: _Entry) -> bool:
        """Return whether the entry is away and the first of its key."""
        line = self._lines.get(entry.key)
        return entry.owned is None and line is not None and line[0][1] is entry

    def _advance(self, key: Hashable) -> None:
        line = self._lines.get(key)
        if not line:
            return
        entry = line[0][1]
        owned = entry.owned
        if owned is None:
            if entry.wakes is None or entry.due < entry.wakes:
                entry.wakes = entry.due
                heapq.heappush(self._wakes, (entry.due, next(self._number), entry))
                self._expect(entry.due)
        elif not entry.given and owned.state is State.WAITING:
            entry.given = True
            self._offer([owned])

    def _add(self, id: bytes, key: Hashable) -> _Entry:
        entry = self.entries[id] = _Entry(id, key)
        insort(self._lines.setdefault(key, []), (entry.place, entry))
        return entry

    def _key(self, fields: list[bytes]) -> tuple[Hashable, BaseException | None]:
        try:
            message: Any = self._consumer.stream.codec.decode_flat(fields)
        except BaseException:
            return _NoKey(), None  # the executor reports the decode error
        try:
            key = self._order_by(message)
            _ = key in self._lines  # raises for a key that cannot be hashed or compared
        except BaseException as error:
            return _NoKey(), error
        return key, None
