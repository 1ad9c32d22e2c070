"""The gate in front of the slots of a consumer with limits. Entries pass when the limits allow them to start.

    accept ──▶ gate ──places and tokens──▶ slots
                 ├──must wait, has a key──▶ parked in the store until its turn
                 └──must wait, no key─────▶ stays here, so the reader runs out of room and waits

Rule 1. The store is asked only for entries that a free slot would start now. While no entry has to wait, it is
        also asked for entries that the slots would start within `EARLY_SECONDS`, if their tokens come within this
        time. Such a token is used within this time or not at all.
Rule 2. An entry that waits uses neither an attempt nor a slot, because handing it back does not count.
Rule 3. An entry that waits for almost a second while every slot is busy is handed back, as in the pool. If it
        waits for a limit of the group, it is handed back only if every slot runs the same handler all the time.
Rule 4. A place is given back when the store has replied to the settlement of its entry, whatever the outcome.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Operation
from headwater.groups.protocol.store_errors import Step
from headwater.groups.reading.limits import (
    LAST_RESORT_MS,
    Asked,
    LimitPlace,
    Verdict,
    free_places,
    look_after,
    take_places,
    take_tokens,
)
from headwater.groups.reports.limited import note_limited
from headwater.groups.settling.settling import SettleOutcome
from headwater.worker.declare.limit import ConsumerLimits
from headwater.worker.declare.outcome import Raised
from headwater.worker.declare.owned import Owned, State
from headwater.worker.run.endings import Endings
from headwater.worker.run.expiry import Expiry
from headwater.worker.run.pool import CHECK_SECONDS, Pool
from headwater.worker.run.slow import SlowHandlers
from headwater.worker.settle.in_flight import InFlight
from headwater.worker.settle.scope import Scope
from headwater.worker.settle.settle import Queued
from headwater.worker.store.clocks import Timer, Timers, call_upkeep
from headwater.worker.store.retrying_client import RetryingClient
from headwater.worker.store.waiting import cancelled

SOON_US = 20_000
"""Maximum wait for a token, in microseconds, for which a process keeps an entry with a key. If longer, it is parked."""

LATE_US = 200_000
"""The same maximum as `SOON_US`, for an entry that was parked, and claimed a little late."""

AHEAD_US = 250_000
"""The same maximum as `SOON_US`, for an entry without a key."""

EARLY_SECONDS = 0.02
"""Maximum time before its start at which an entry may get its tokens, in seconds. A request for tokens is a round
trip. Without this time, a process with four slots would start only four entries per round trip."""

POLL_SECONDS = 0.005, 0.2
"""Shortest and longest interval, in seconds, at which a process asks for a place for an entry that it keeps. Between
these bounds, the interval is an eighth of the time for which the entry has waited."""

LOOK_SECONDS = 2.0
"""Interval in seconds at which a process looks for places of dead processes, and notes the entries that wait here."""

MOST_ASKED = 500
"""Maximum number of entries for which the store is asked in one go, which takes it a few milliseconds."""


class Gate:
    """The gate of one consumer."""

    def __init__(
        self,
        scope: Scope,
        *,
        in_flight: InFlight,
        pool: Pool,
        expiry: Expiry,
        slow: SlowHandlers,
        endings: Endings,
    ) -> None:
        self._scope = scope
        self._in_flight = in_flight
        self._pool = pool
        self._expiry = expiry
        self._slow = slow
        self._endings = endings
        self._waiting: deque[Owned] = deque()
        self._starting: dict[Owned, Timer] = {}
        """Entries that have their tokens and start very soon → their timers."""
        self._early: dict[Owned, float] = {}
        """Entries that got their tokens before a slot was free → time from which the tokens are valid."""
        self._since: dict[Owned, float] = {}
        """Entries that have not been settled → time of their arrival."""
        self._late = 0
        """Number of waiting entries, at the front, that a slot took too late for their tokens."""
        self._held_back = False
        """True if some of the entries for which the store was asked last wait here."""
        self._places = _Places()
        self._notes = _Notes()
        self._again_at = self._look_at = 0.0
        self._tokens_at = 0.0
        """Time before which the store has no tokens of a rate that all entries need."""
        self._timer: Timer | None = None
        self._busy_timer: Timer | None = None
        self._rates = self._client_for_rates()
        scope.hooks.starting.append(self._in_time)
        scope.hooks.settled.append(self._settled)

    @property
    def _clock(self) -> Timers:
        return self._scope.clock

    @property
    def _limits(self) -> ConsumerLimits:
        limits = self._scope.consumer.limits
        assert limits is not None, "only a consumer with limits has a gate"
        return limits

    def _client_for_rates(self) -> RetryingClient | None:
        """Return the client for the rates of a partition; None for a stream without partitions. The rates apply
        to the whole stream, and are in the hash slot of its name."""
        consumer = self._scope.consumer
        stream, home = consumer.stream.name, self._limits.home
        if home == stream:
            return None
        return RetryingClient(
            f"limits of {self._scope.name}",
            stream=home,
            clock=self._clock,
            connections=self._scope.connections,
        )

    def offer(self, entries: Sequence[Owned]) -> None:
        """Add entries that wait for a slot."""
        self._since.update(dict.fromkeys(entries, self._clock.monotonic()))
        self._waiting.extend(entries)
        self._ask_now()

    def ahead(self) -> int:
        """Return the number of entries for which the store is asked in addition to those for free slots."""
        usual, consumer = self._slow.usual(), self._scope.consumer
        if usual is None or self._held_back or self._pool.overfull:
            return 0
        if self._limits.have_places or consumer.batch is not None:
            return 0  # an early place would be taken from others, and a batch waits for its entries anyway
        most = max(0, consumer.prefetch - self._pool.capacity)
        every_s = max(one.every_us for one in self._limits.limits) / 1e6
        # The last of these entries should start after half of the time.
        starts = consumer.concurrency * EARLY_SECONDS / 2 / max(usual, 1e-6)
        return min(most, int(starts), int(EARLY_SECONDS / every_s))

    def _in_time(self, owned: Owned) -> bool:
        """Return whether an entry that a slot is about to start may start. If it got its tokens too long ago, it needs
        new ones, and waits here again."""
        valid_from = self._early.pop(owned, None)
        if valid_from is None or self._clock.monotonic() - valid_from <= EARLY_SECONDS:
            return True
        owned.enter(State.WAITING)
        self._waiting.insert(self._late, owned)
        self._late += 1
        self._ask_now()
        return False

    def _settled(self, queued: Queued, _outcome: SettleOutcome) -> None:
        """Give back the places of entries that this process no longer owns."""
        for owned in queued.entries:
            self._early.pop(owned, None)
            self._since.pop(owned, None)
            if owned.id in self._notes.noted and not owned.unbegun:
                self._notes.over(owned)  # the entry was handed back
            if owned in self._places.had and not self._in_flight.owns(owned):
                self._places.give_back(owned)
                self._again_at = self._tokens_at

    async def run(self) -> None:
        """Let entries pass, until cancelled."""
        self._tick()
        while not cancelled():
            await self._in_flight.changes.until(self._has_work)
            now = self._clock.monotonic()
            if freed := self._places.take_freed():
                self._called(await self._ask(partial(free_places, freed=freed)))
            if now >= self._look_at:
                self._look_at = now + LOOK_SECONDS
                await self._look()
            entries = await self._next()
            if entries:
                await self._let_pass(entries)

    def close(self) -> None:
        """Start no more entries."""
        self._waiting.clear()
        for timer in (self._timer, self._busy_timer, *self._starting.values()):
            if timer is not None:
                timer.cancel()

    def disconnect(self) -> None:
        """Stop using the connection to the store."""
        if self._rates is not None:
            self._rates.close()

    # --- pending work -----------------------------------------------------------------------------

    def _has_work(self) -> bool:
        now = self._clock.monotonic()
        asks = (
            bool(self._waiting) and self._free() + self.ahead() > 0 and now >= self._again_at - 1e-6
        )
        looks = now >= self._look_at and self._in_flight.member is not None
        return bool(self._places.freed) or asks or looks

    def _free(self) -> int:
        """Return the number of entries that could start now."""
        pool = self._pool
        return pool.capacity - len(pool.running) - pool.waiting - len(self._starting)

    def _tick(self) -> None:
        """Wake the gate at intervals, even while nothing else happens."""
        self._in_flight.changes.notify()
        self._timer = call_upkeep(self._clock, LOOK_SECONDS, self._tick)

    def _ask_now(self) -> None:
        """Ask the store as soon as it can have tokens."""
        self._again_at = self._tokens_at
        self._in_flight.changes.notify()
        self._watch()

    def _watch(self) -> None:
        """Watch for entries that wait for too long."""
        if self._busy_timer is None and self._pool.patience < math.inf:
            self._busy_timer = call_upkeep(self._clock, CHECK_SECONDS, self._look_busy)

    def _look_busy(self) -> None:
        """Hand back entries that have waited for too long (rule 3), and look again later while an entry waits."""
        self._busy_timer = None
        waiting = [o for o in chain(self._early, self._waiting) if self._still_here(o)]
        now, since = self._clock.monotonic(), self._slow.busy_since()
        longest = self._pool.patience - 1e-5  # the clock counts in microseconds
        left = dict.fromkeys(waiting, CHECK_SECONDS)
        if since is not None:
            for owned in waiting:
                left[owned] = (since if self._held_back else self._since[owned]) + longest - now
        late = [owned for owned, seconds in left.items() if seconds <= 0]
        if late:
            self._pool.hand_back(late)
        if len(late) < len(left):
            next_s = min(CHECK_SECONDS, *(seconds for seconds in left.values() if seconds > 0))
            self._busy_timer = call_upkeep(self._clock, next_s, self._look_busy)

    async def _look(self) -> None:
        if self._limits.have_places:
            cursor = self._places.cursor
            called, self._places.cursor = await self._ask(partial(look_after, cursor=cursor))
            self._called(called)
            for owned in [one for one in self._places.had if one.lost]:
                del self._places.had[owned]  # another process has the entry and its places
        for known in (self._early, self._since):
            for owned in [one for one in known if one.lost]:
                del known[owned]
        waits = [owned for owned in self._waiting if self._still_here(owned)]
        self._notes.stay(waits[:MOST_ASKED])
        await self._note()

    async def _note(self) -> None:
        """Note in the store the entries that wait, if they have changed."""
        if changed := self._notes.take():
            await self._ask(partial(note_limited, waiting=changed[0], over=changed[1]))

    def _called(self, count: int) -> None:
        """Make the reader read immediately if parked entries are due."""
        if count:
            self._scope.hooks.expect(self._clock.monotonic())

    def _still_here(self, owned: Owned) -> bool:
        return owned.unbegun and self._in_flight.owns(owned)

    async def _next(self) -> list[Owned]:
        """Take the next entries that a slot could start. Entries that have expired are settled."""
        entries: list[Owned] = []
        most = min(MOST_ASKED, self._free() + self.ahead())
        if self._clock.monotonic() < self._again_at - 1e-6:
            return entries
        self._late = 0
        while self._waiting and len(entries) < most:
            owned = self._waiting.popleft()
            if not self._still_here(owned):
                continue
            expired = await self._expiry.expired(owned)
            if self._still_here(owned):
                if expired is None:
                    entries.append(owned)
                else:
                    self._notes.over(owned)
                    self._endings.end(owned, expired)
        return entries

    # --- asking the store -------------------------------------------------------------------------

    async def _ask(self, make: Callable[[Member], Operation[Any]]) -> Any:
        return await self._in_flight.ask(make)

    async def _let_pass(self, entries: Sequence[Owned]) -> None:
        """Start the entries that may start, and park or keep the others."""
        asked = [(owned, one) for owned in entries if (one := self._needs(owned)) is not None]
        with_places = [pair for pair in asked if pair[1].places]
        denied: dict[Owned, int] = {}
        if with_places:
            found = await self._ask(partial(take_places, asked=[one for _, one in with_places]))
            for (owned, one), how in zip(with_places, found, strict=True):
                if how:
                    denied[owned] = how
                else:
                    self._places.had[owned] = one.places
        keep: list[Owned] = []
        self._tokens_at = 0.0
        needed = {owned: one.places for owned, one in with_places}
        for owned, how in denied.items():
            if how == 1 or owned.record.suspect:
                self._park(owned, LAST_RESORT_MS if how == 1 else 1000 * POLL_SECONDS[1])
                if self._in_flight.owns(owned):
                    self._places.had[owned] = needed[owned]
            else:
                keep.append(owned)
        again = self._places.poll_s(self._clock.monotonic(), denied=bool(keep))
        rest = [pair for pair in asked if pair[0] not in denied]
        for (owned, one), verdict in zip(rest, await self._tokens(rest), strict=True):
            if verdict.starts:
                self._start(owned, verdict.wait_us / 1e6)
            elif verdict.parked or owned.record.suspect:
                self._park(owned, verdict.wait_us / 1000)
            else:
                self._places.give_back(owned)
                keep.append(owned)
                again = max(again, (verdict.wait_us - one.horizon_us / 2) / 1e6)
                self._tokens_at = self._clock.monotonic() + again
        self._held_back = bool(keep)
        if keep:
            self._waiting.extendleft(reversed(keep))
            self._again_in(again)
            self._watch()
        await self._note()

    def _needs(self, owned: Owned) -> Asked | None:
        """Return what an entry needs to start; None if it needs nothing and has started, or if it was settled."""
        consumer, delivered, message = self._scope.consumer, owned.delivered, None
        if self._limits.have_keys:
            try:
                message = consumer.stream.codec.decode_flat(delivered.fields)
            except BaseException:
                self._start(owned, 0.0)  # the executor reports the decode error
                return None
        try:
            tokens, places = self._limits.needs(message, consumer.stream.name, consumer.group)
        except BaseException as error:  # any error is the message's, as that of ``order_by``
            self._notes.over(owned)
            self._endings.end(owned, Raised(error))
            return None
        if not tokens and not places:
            self._start(owned, 0.0)
            return None
        has_line = any(token.in_line for token in tokens)
        was_in_line = delivered.claimed and not delivered.from_silent
        horizon = AHEAD_US if not has_line else LATE_US if was_in_line else SOON_US
        return Asked(owned.id, horizon, was_in_line, tokens, places)

    async def _tokens(self, asked: Sequence[tuple[Owned, Asked]]) -> list[Verdict]:
        needs = [one for _owned, one in asked]
        if not any(one.tokens for one in needs):
            return [Verdict(starts=True, wait_us=0.0)] * len(needs)
        found: list[Verdict]
        if self._rates is None:
            found = await self._ask(lambda _member: take_tokens(needs))
        else:
            found = await self._rates.answered(lambda: take_tokens(needs), Step.READ)
        return found

    # --- after the reply --------------------------------------------------------------------------

    def _start(self, owned: Owned, seconds: float) -> None:
        """Give an entry to the slots after ``seconds``."""
        self._notes.over(owned)
        valid_from = self._clock.monotonic() + seconds

        def start() -> None:
            self._starting.pop(owned, None)
            if self._still_here(owned):
                pool = self._pool
                if pool.waiting + len(pool.running) >= pool.capacity:
                    self._early[owned] = valid_from
                pool.offer([owned])
            else:
                self._places.give_back(owned)
            self._in_flight.changes.notify()

        if seconds > 0:
            self._starting[owned] = self._clock.call_later(seconds, start)
        else:
            start()

    def _park(self, owned: Owned, wait_ms: float) -> None:
        self._places.give_back(owned)
        if self._still_here(owned):
            self._in_flight.counters.limited += 1
            self._notes.wait(owned)
            self._in_flight.hand_back([owned], delay_ms=max(1, round(wait_ms + 0.5)))

    def _again_in(self, seconds: float) -> None:
        """Ask again in ``seconds`` for the entries that stay here."""
        self._again_at = self._clock.monotonic() + seconds
        notify = self._in_flight.changes.notify
        if seconds == POLL_SECONDS[1]:
            call_upkeep(self._clock, seconds, notify)
        else:
            self._clock.call_later(seconds, notify)


class _Places:
    """The places of ``Limit(concurrent=…)`` that this process has or asks for."""

    def __init__(self) -> None:
        self.had: dict[Owned, Sequence[LimitPlace]] = {}
        """The places of entries that run or are about to run. For entries that are being parked, the places for
        which they wait, because one may have become free before such an entry could be made due."""
        self.freed: list[tuple[bytes, LimitPlace]] = []
        self.cursor = 0
        self._denied_at: float | None = None
        """Time since which there has been no place for the entries that wait at the gate; None if there is one."""
        self._had = 0
        """Number of entries with places that this process had at `_denied_at`."""

    def give_back(self, owned: Owned) -> None:
        """Mark the places of an entry as freed, because it has ended or does not start after all."""
        self.freed += [(owned.id, place) for place in self.had.pop(owned, ())]

    def take_freed(self) -> list[tuple[bytes, LimitPlace]]:
        """Return the places that were given back since the last call."""
        freed, self.freed = self.freed, []
        return freed

    def poll_s(self, now: float, *, denied: bool) -> float:
        """Return the seconds until places are asked for again."""
        if not denied:
            self._denied_at = None
            return 0.0
        if self._denied_at is None or len(self.had) != self._had:
            self._denied_at, self._had = now, len(self.had)
        return min(POLL_SECONDS[1], max(POLL_SECONDS[0], (now - self._denied_at) / 8))


class _Notes:
    """The entries that are noted in the store as waiting for a limit (`groups.reports.limited`)."""

    def __init__(self) -> None:
        self.noted: set[bytes] = set()
        """Ids of entries that are noted as waiting at the gate."""
        self._wait: list[bytes] = []
        self._over: list[bytes] = []

    def stay(self, entries: Sequence[Owned]) -> None:
        """Note entries that stay at the gate, unless they are already noted."""
        self._wait += [owned.id for owned in entries if owned.id not in self.noted]
        self.noted.update(self._wait)

    def wait(self, owned: Owned) -> None:
        """Note an entry that is parked."""
        self._wait.append(owned.id)

    def over(self, owned: Owned) -> None:
        """Note that an entry no longer waits, if it was parked or waited here for a long time."""
        if owned.id in self.noted or owned.delivered.claimed:
            self.noted.discard(owned.id)
            self._over.append(owned.id)

    def take(self) -> tuple[list[bytes], list[bytes]] | None:
        """Return the ids of entries that now wait, and of those that no longer wait; None without changes."""
        if not self._wait and not self._over:
            return None
        found, self._wait, self._over = (self._wait, self._over), [], []
        return found
