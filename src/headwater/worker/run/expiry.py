"""Drops an entry that no worker has started in time, or makes it a dead letter.

    a slot takes an entry ──in time──▶ its handler runs
                          └─expired──▶ acknowledged, or a dead letter

Rule 1. An entry is checked when its handler is about to start, by the clock of the server, which also gave it
        its id. The time that this process computes is never ahead of that clock, so no entry expires too early.
Rule 2. The age of an entry counts from its id, or from the due time of a late scheduled message (``after=``).
Rule 3. An entry does not expire after an earlier delivery that counted, because its handler may have started then.
        Nor does an entry that an operator replays.
Rule 4. The age of an entry is known only if its id is a time. Other entries run, with a warning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from headwater.common.model import StreamID
from headwater.groups.protocol.operation import Refused, server_ms, single
from headwater.messages.keys import EXPIRES_FIELD, LATE_FIELD
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.outcome import Expired
from headwater.worker.declare.owned import Owned
from headwater.worker.store.clocks import Timers

log = logging.getLogger("headwater.worker")

ASK_SECONDS = 1.0
"""Maximum age of the server's time, in seconds. The server's clock may be set at any time."""

SAY_SECONDS = 60.0
"""Minimum interval at which the log says that entries expired, in seconds."""

FIRST_TIME_MS = 946_684_800_000
"""Unix milliseconds of the year 2000. An id below it was not made from a clock."""

DAY_MS = 86_400_000

LONGEST_DIGITS = 15


class ServerTime:
    """The clock of the server, which is asked at most once a second. ``ask`` sends an operation to the store."""

    def __init__(self, clock: Timers, ask: Callable[..., Any]) -> None:
        self._clock = clock
        self._ask = ask
        self._lock = asyncio.Lock()
        self._offset_ms = 0.0
        self._until = -1.0

    async def now_ms(self) -> int:
        """Return the server's time in Unix ms, or slightly less. Raises `Refused` if the user may not ask."""
        if self._clock.monotonic() >= self._until:
            async with self._lock:
                if self._clock.monotonic() >= self._until:
                    answered = server_ms(await self._ask(lambda _member: single("TIME")))
                    now = self._clock.monotonic()
                    self._offset_ms, self._until = answered - 1000 * now, now + ASK_SECONDS
        return int(self._offset_ms + 1000 * self._clock.monotonic() + 1e-3)


class Expiry:
    """Decides which entries of one consumer have expired, and logs this."""

    def __init__(self, consumer: Consumer, *, clock: Timers, ask: Callable[..., Any]) -> None:
        self._consumer = consumer
        self._clock = clock
        self._time = ServerTime(clock, ask)
        self._warned: set[str] = set()
        self._said_at = -SAY_SECONDS
        self._unsaid = 0
        self.dropped = self.dead = 0
        self.always = consumer.expires_ms is not None
        """True if every entry can expire, not only entries with their own ``expires=``."""

    async def expired(self, owned: Owned) -> Expired | None:
        """Return the outcome of an entry that has expired; None if its handler must run."""
        if owned.count > 1 or owned.record.replayed:
            return None
        lasts, late = self._lasts_ms(owned)
        if lasts is None:
            return None
        task, owned.task = owned.task, None  # `Owned.stop` has no handler to cancel yet
        try:
            now = await self._time.now_ms()
        except Refused as error:
            self._warn("no entry expires: %s", error)
            return None
        finally:
            owned.task = task
        age = self._age_ms(owned.id, now)
        if age is None or age + late <= lasts:
            return None
        return self._said(owned, age + late, lasts)

    def _lasts_ms(self, owned: Owned) -> tuple[int | None, int]:
        """Return the time that an entry may wait, None for ever, and its delay when published, in milliseconds."""
        lasts, late, fields = self._consumer.expires_ms, 0, owned.delivered.fields
        for place in range(0, len(fields) - 1, 2):
            name, value = fields[place], fields[place + 1]
            if name in (EXPIRES_FIELD, LATE_FIELD):
                if not (value.isdigit() and len(value) <= LONGEST_DIGITS):
                    self._warn(
                        "the field %s of %s is not a number of milliseconds, and is ignored",
                        name.decode(),
                        owned.id.decode(),
                    )
                elif name == LATE_FIELD:
                    late = int(value)
                else:
                    lasts = int(value) if lasts is None else min(lasts, int(value))
        return lasts, late

    def _age_ms(self, entry_id: bytes, now: int) -> int | None:
        """Return the age of an entry in milliseconds; None if its id is not a time."""
        added = StreamID.parse(entry_id).ms
        if FIRST_TIME_MS <= added <= now + DAY_MS:
            return now - added
        self._warn(
            "the id %s is not a time, in milliseconds since 1970, so the age of its entry is unknown: it does not "
            "expire, nor do others with such ids",
            entry_id.decode(),
        )
        return None

    def _said(self, owned: Owned, age: int, lasts: int) -> Expired:
        """Count an expired entry, log it at intervals, and return its outcome."""
        consumer = self._consumer
        dead = consumer.expired_dead and bool(consumer.dead)
        self.dead += dead
        self.dropped += not dead
        self._unsaid += 1
        words = f"not started within {lasts / 1000:g} s, but {age / 1000:.1f} s after it was added"
        now = self._clock.monotonic()
        if now - self._said_at >= SAY_SECONDS:
            log.warning(
                "%s of %s expired: %s, so it %s. %d expired since this was last logged, %d since the start.",
                owned.id.decode(),
                consumer.stream.name,
                words,
                "becomes a dead letter" if dead else "is dropped",
                self._unsaid,
                self.dead + self.dropped,
            )
            self._said_at, self._unsaid = now, 0
        return Expired(f"Expired: {words}", dead)

    def _warn(self, words: str, *values: object) -> None:
        """Warn once about each kind of problem."""
        if words not in self._warned:
            self._warned.add(words)
            name = f"{self._consumer.stream.name}/{self._consumer.group}"
            log.warning(f"%s: {words}", name, *values)  # the words are constants
