"""Computes the times of ticks, and adds the ticks to their stream (`ticks`).

    Every, Cron ── times ──▶ Ticking, in every worker ── one entry a tick ──▶ stream of ticks ──▶ consumer

Rule 1. When a tick is due by the clock of the store, any worker adds it, once (`groups.settling.ticks`). Then the
        tick is handled like other messages.
Rule 2. A tick is *missed* if no worker added it within `ON_TIME_MS`. ``missed`` selects the missed ticks to add.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal, NamedTuple, Protocol

from headwater.common.durations import milliseconds
from headwater.errors import DeclarationError, HeadwaterError
from headwater.groups.protocol.operation import Operation
from headwater.groups.protocol.store_errors import Step
from headwater.groups.settling.ticks import TicksState, add_ticks, declare_rule, state
from headwater.worker.store.clocks import Timers, call_upkeep
from headwater.worker.store.connections import Pause
from headwater.worker.store.retrying_client import RetryingClient
from headwater.worker.store.waiting import cancelled

log = logging.getLogger("headwater.worker")

ON_TIME_MS = 60_000
"""Maximum delay of a tick that does not count as missed, in milliseconds."""

MOST_MISSED = 1_000
"""Maximum number of missed ticks that are added with ``missed="all"``: the newest ones."""

MOST_TICKS = 10_000
"""Approximate number of ticks that their stream keeps."""

LOOK_SECONDS = 60.0
"""Interval at which the store's clock and the declared rule are read again between two ticks, in seconds."""

SHORTEST_MS = 100
"""The shortest interval of ``every``, in milliseconds."""

Missed = Literal["skip", "last", "all"]


class Times(Protocol):
    """The times of ticks, in Unix milliseconds."""

    text: str
    """The rule as text, for logs and for comparison with the rule in the store."""
    zone: tzinfo

    def after(self, ms: int) -> int | None:
        """Return the time of the first tick after ``ms``; None if no tick follows."""
        ...

    def back(self, ms: int, ticks: int) -> int:
        """Return a time about ``ticks`` ticks before ``ms``."""
        ...


_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms"))


class Every:
    """Ticks at the multiples of an interval since 1970. All workers agree on these times.

    >>> Every("300s").text, Every("5m").after(1_700_000_000_000)
    ('every 5m', 1700000100000)
    """

    zone: tzinfo = UTC

    def __init__(self, interval: str | timedelta) -> None:
        self.interval_ms = milliseconds(interval, what="every", least_ms=SHORTEST_MS)
        size, unit = next(pair for pair in _UNITS if self.interval_ms % pair[0] == 0)
        self.text = f"every {self.interval_ms // size}{unit}"

    def after(self, ms: int) -> int | None:
        return (ms // self.interval_ms + 1) * self.interval_ms

    def back(self, ms: int, ticks: int) -> int:
        return ms - ticks * self.interval_ms


class Cron:
    """Ticks by a cron expression in a time zone.

    >>> times = Cron("30 2 * * *", "Europe/Berlin")  # no such time on 29 March 2026: it is at 3:00 then
    >>> [datetime.fromtimestamp(times.after(at) / 1000, times.zone).isoformat() for at in (
    ...     1_774_700_000_000, 1_774_746_000_000)]
    ['2026-03-29T03:00:00+02:00', '2026-03-30T02:30:00+02:00']
    """

    def __init__(self, expression: str, timezone: str) -> None:
        from cronsim import CronSimError

        if not isinstance(expression, str):
            raise DeclarationError(
                f"cron={expression!r} must be an expression of five fields, as in '0 3 * * *'"
            )
        self.expression = " ".join(expression.split())
        self.zone = _zone(timezone)
        self.text = f"cron {self.expression} {timezone}"
        try:
            never = self.after(0) is None
        except CronSimError as error:
            raise DeclarationError(
                f"cron={expression!r} is not a cron expression: {str(error).lower()}. Write minute, hour, day of the "
                "month, month and day of the week, as in '0 3 * * MON-FRI'"
            ) from error
        if never:
            raise DeclarationError(f"cron={expression!r} matches no time")

    def after(self, ms: int) -> int | None:
        from cronsim import CronSim

        return _ms(next(CronSim(self.expression, self._at(ms)), None))

    def back(self, ms: int, ticks: int) -> int:
        from cronsim import CronSim

        found, times = ms, CronSim(self.expression, self._at(ms), reverse=True)
        for _ in range(ticks):
            found = _ms(next(times, None)) or found
        return found

    def _at(self, ms: int) -> datetime:
        return datetime.fromtimestamp(ms // 1000, self.zone)


def _ms(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp()) * 1000


def _zone(name: object) -> tzinfo:
    from zoneinfo import ZoneInfo

    if name == "UTC":
        return UTC
    try:
        if isinstance(name, str) and name:
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        pass
    raise DeclarationError(
        f"timezone={name!r} is not a time zone that this machine knows: write a name such as 'Europe/Berlin' or 'UTC'. "
        "If it is one, install the package tzdata"
    )


class Schedule(NamedTuple):
    """The times of the ticks of a stream, and the choice of missed ticks to add."""

    stream: str
    times: Times
    missed: Missed

    def to_add(self, found: TicksState) -> list[int]:
        """Return the times of the ticks to add, in order.

        After a long pause, ticks from more than about `MOST_MISSED` ticks ago are not found.
        """
        ticks: deque[int] = deque(maxlen=MOST_MISSED)
        at = self.times.after(found.last_ms)
        looked = 0
        while at is not None and at <= found.now_ms:
            ticks.append(at)
            looked += 1
            if looked == MOST_MISSED:
                at = max(at, self.times.back(found.now_ms, MOST_MISSED))
            at = self.times.after(at)
        if self.missed == "all":
            return list(ticks)
        newest = list(ticks)[-1:]
        if self.missed == "skip":
            return [one for one in newest if found.now_ms - one <= ON_TIME_MS]
        return newest


class Ticking:
    """Adds the ticks of one stream when they are due."""

    def __init__(self, schedule: Schedule, client: RetryingClient, clock: Timers) -> None:
        self._schedule = schedule
        self._client = client
        self._clock = clock
        self._declared = False
        self._replaced = ""

    async def run(self) -> None:
        """Add ticks until cancelled."""
        pause = Pause()
        try:
            while not cancelled():
                try:
                    seconds = await self._client.answered(self._turn, Step.READ)
                except HeadwaterError as error:
                    await self._client.wait(error, pause)
                    continue
                pause.reset()
                if not await self._next(seconds):
                    # With an open connection, a changed target of the address would never be noticed.
                    self._client.client.renew()
        finally:
            self._client.close()

    def _turn(self) -> Operation[float]:
        """Add the ticks that are due. Return the seconds until the next tick."""
        stream, times, _missed = self._schedule
        if not self._declared:
            yield from declare_rule(stream, times.text)
            self._declared = True
        found = yield from state(stream, times.text)
        assert found is not None, "the rule is declared if it is missing"
        if found.rule != times.text:
            if found.rule != self._replaced:
                self._replaced = found.rule
                log.warning(
                    "%s: another worker has declared %r since; this one, with %r, adds no ticks",
                    *(stream, found.rule, times.text),
                )
            return LOOK_SECONDS
        due = self._schedule.to_add(found)
        following = times.after(max(found.now_ms, found.last_ms))
        if due or following != found.next_ms:
            entries = [(ms, [(b"time", self._text(ms))]) for ms in due]
            added = yield from add_ticks(stream, entries, maxlen=MOST_TICKS, next_ms=following)
            late = sum(found.now_ms - ms > ON_TIME_MS for ms in due)
            if added and late:
                log.warning(
                    "%s: %d ticks are late, because no worker ran or the store was unreachable",
                    stream,
                    late,
                )
        return LOOK_SECONDS if following is None else max(0, following - found.now_ms) / 1000

    def _text(self, ms: int) -> bytes:
        return datetime.fromtimestamp(ms / 1000, self._schedule.times.zone).isoformat().encode()

    async def _next(self, seconds: float) -> bool:
        """Wait for ``seconds``, but at most `LOOK_SECONDS`. Return False if `LOOK_SECONDS` ended the wait."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def finish(due: bool) -> None:
            if not done.done():
                done.set_result(due)

        timers = [
            self._clock.call_later(seconds, lambda: finish(True)),
            call_upkeep(self._clock, LOOK_SECONDS, lambda: finish(False)),
        ]
        try:
            return await done
        finally:
            for timer in timers:
                timer.cancel()
