"""Computes the times of ticks, and adds the ticks to their stream (`ticks`).

    Every, Cron ── times ──▶ Ticking, in every worker ── one entry a tick ──▶ stream of ticks ──▶ consumer

Rule 1. When a tick is due by the clock of the store, any worker adds it, once (`groups.settling.ticks`). Then the
        tick is handled like other messages.
Rule 2. A tick is *missed* if no worker added it within `ON_TIME_MS`. ``missed`` selects the missed ticks to add.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
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
        """Return a time about ``ticks`` ticks before ``ms``; ``ms`` if no tick precedes it."""
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
        self._fixed = not any(part.startswith("*") for part in self.expression.split()[-5:-3])
        """True for fixed times of day, of which each day has one, also when clocks change, as in Debian's cron."""
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

        # cronsim gets no zone: with one, it returns times before ``ms`` when clocks are set back.
        found: int | None = None
        try:
            for local in CronSim(self.expression, self._earliest_local(ms)):
                times = self._times(local)
                if found is not None and times and times[0] >= found:
                    break
                later = [one for one in times if one > ms]
                if later:
                    found = later[0] if found is None else min(found, later[0])
                    if later == times:
                        break  # the local times that follow are later
        except (ValueError, OverflowError, OSError):
            pass  # no datetime is that late, but an id that another client has chosen can be
        return found

    def back(self, ms: int, ticks: int) -> int:
        from cronsim import CronSim

        found, left = ms, ticks
        for local in CronSim(self.expression, self._local(ms // 1000), reverse=True):
            if left <= 0:
                break
            times = self._times(local)
            found = min([found, *times[:1]])
            left -= len(times)
        return found

    def _earliest_local(self, ms: int) -> datetime:
        """Return a local time that is not after the local time of any moment after ``ms``."""
        at = datetime.fromtimestamp(ms // 1000, self.zone)
        # In the first pass of a repeated hour, the second pass comes later and has earlier local times.
        repeated = _offset(at) - _offset(at.replace(fold=1)) if not at.fold else timedelta(0)
        return at.replace(tzinfo=None, fold=0) - max(repeated, timedelta(0))

    def _times(self, local: datetime) -> list[int]:
        """Return when the clocks of the zone show a time at which the expression has a tick, in Unix milliseconds: once,
        or twice when clocks are set back. If they skip it, return the time of the change for a fixed time of day."""
        first, second = (
            int(local.replace(tzinfo=self.zone, fold=fold).timestamp()) for fold in (0, 1)
        )
        if second < first:  # clocks were set forward between the two
            return [self._change(second, first) * 1000] if self._fixed else []
        return [first * 1000] if self._fixed or first == second else [first * 1000, second * 1000]

    def _change(self, before: int, after: int) -> int:
        """Return the first second with the offset from UTC of the second ``after``, which that of ``before`` is not."""
        span = range(before, after)
        new = _offset(datetime.fromtimestamp(after, self.zone))
        return before + bisect_left(
            span, True, key=lambda at: _offset(datetime.fromtimestamp(at, self.zone)) == new
        )

    def _local(self, seconds: int) -> datetime:
        return datetime.fromtimestamp(seconds, self.zone).replace(tzinfo=None, fold=0)


def _offset(at: datetime) -> timedelta:
    offset = at.utcoffset()
    assert offset is not None, "the time has a zone"
    return offset


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

    def after(self, ms: int) -> int | None:
        """Return the time of the first tick after ``ms``; None if no tick follows."""
        at = self.times.after(ms)
        # With a time that is not after ``ms``, workers would add ticks without end.
        return at if at is not None and at > ms else None

    def to_add(self, found: TicksState) -> list[int]:
        """Return the times of the ticks to add, in order.

        After a long pause, ticks from more than about `MOST_MISSED` ticks ago are not found.
        """
        ticks: deque[int] = deque(maxlen=MOST_MISSED)
        at = self.after(found.last_ms)
        looked = 0
        while at is not None and at <= found.now_ms:
            ticks.append(at)
            looked += 1
            if looked == MOST_MISSED:
                at = max(at, self.times.back(found.now_ms, MOST_MISSED))
            at = self.after(at)
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
        self._ended = False

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
        following = self._schedule.after(max(found.now_ms, found.last_ms))
        if following is None and not self._ended:
            log.error("%s: %r has no tick after %s", stream, times.text, found.now_ms)
        self._ended = following is None
        if due or following not in (None, found.next_ms):
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
