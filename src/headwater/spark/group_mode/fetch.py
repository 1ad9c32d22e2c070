"""Collects the next batch: the query's own pending entries, then claimed ones, then new ones.

Rule 1. An entry is in a batch once, however it was fetched.
Rule 2. A fetched entry is pending under this query's name until a batch that names it is committed. If
        fetching fails before the batch is named, the next attempt begins with the query's own pending
        entries (`own`), so nothing is lost.
Rule 3. The driver keeps ids and sizes from the replies, and drops the bodies page by page.
Rule 4. An available-now run passes once over each pending list, and reads the new entries that existed when
        the run began (and the rest of the page that contains the last of them). Then the run ends.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from headwater.common.model import StreamID
from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Operation
from headwater.groups.reading.claiming import BETWEEN_STEPS_MS, Delivered, recover
from headwater.groups.settling.dead_letters import bury
from headwater.groups.settling.settling import How, Settlement, settle
from headwater.spark.core.completeness import Finding, report
from headwater.spark.group_mode.lease_renewer import LeaseRenewer
from headwater.spark.group_mode.membership import Membership, nothing
from headwater.spark.group_mode.offsets import EntryRun, Portion

_log = logging.getLogger("headwater.spark")

MOST_SINGLES: Final = 10_000
"""Maximum number of entries that a batch names singly. They take some 300 KB of the offset."""

MOST_RUNS: Final = 10_000
"""Maximum number of runs in a batch. Replies of large entries make many short runs."""

MOST_ENTRIES: Final = 1_000_000
"""Maximum number of entries in a batch. The driver holds their ids, 100 MB, and renews their leases."""

FEW_STREAMS: Final = 10
GLANCED_TOGETHER: Final = 100
GLANCED_ENTRIES: Final = 2
"""A query of more than `FEW_STREAMS` streams first requests `GLANCED_ENTRIES` entries of each, for
`GLANCED_TOGETHER` streams in one request: as many as in a `FIRST_PAGE`, because their sizes are unknown."""

FIRST_PAGE: Final = 200
MOST_A_PAGE: Final = 2_000
PAGE_BYTES: Final = 8 * 1024 * 1024
"""The target size of one reply in bytes. A page of large entries has fewer entries."""

BURIED_AGAIN_MS: Final = 60_000
"""Delay of an entry that the dead-letter stream did not accept, before burying it is tried again, in ms."""


@dataclass
class AvailableNow:
    """An available-now run: the id up to which it reads each stream, and its progress."""

    upto: Mapping[str, StreamID]
    claimed: set[str] = field(default_factory=set)
    """Streams whose pending list the run has passed over completely."""
    reached: set[str] = field(default_factory=set)
    """Streams whose new entries the run has read completely."""


@dataclass
class Limits:
    """Limits of a batch: numbers of entries and bytes (None: unlimited). ``run`` is an available-now run."""

    entries: int
    bytes: int | None = None
    run: AvailableNow | None = None


@dataclass
class _Fetched:
    """The entries fetched from one stream: delivery counts by id, and the same entries as runs and singles."""

    counts: dict[bytes, int] = field(default_factory=dict)
    runs: list[EntryRun] = field(default_factory=list)
    singles: dict[StreamID, int] = field(default_factory=dict)
    weight: int = 0
    seen_entries: int = 0

    def page(self, most_bytes: int) -> int:
        """Return the number of entries to request, so that the reply has at most about ``most_bytes``."""
        if not self.seen_entries:
            return FIRST_PAGE
        mean = max(1, self.weight // self.seen_entries)
        return max(1, min(MOST_A_PAGE, most_bytes // mean))


class BatchFetch:
    """Fetches one batch."""

    def __init__(self, membership: Membership, renewer: LeaseRenewer, limits: Limits) -> None:
        self._membership = membership
        self._renewer = renewer
        self._limits = limits
        self._options = membership.options
        self._taken: dict[str, _Fetched] = {}

    def portions(self, streams: Iterable[str]) -> dict[str, Portion]:
        """Return the portion of the batch that was fetched from each stream."""
        made = {}
        for stream in streams:
            taken = self._taken.get(stream, _Fetched())
            made[stream] = Portion(tuple(taken.runs), taken.singles, self._membership.seen(stream))
        return made

    def ids(self) -> dict[str, list[bytes]]:
        """Return the ids that were fetched from each stream."""
        return {stream: list(taken.counts) for stream, taken in self._taken.items()}

    # --- own entries ------------------------------------------------------------------------------

    def own(self, stream: str) -> bool:
        """Fetch this consumer's own pending entries; return whether all of them were fetched."""
        start = b"-"
        while room := self._room(stream):
            found, gone = self._membership.do(
                stream,
                lambda member: recover(member, (), start=start, limit=room),  # noqa: B023 - run now
                unsettled=lambda: self._unsettled(stream),
            )
            self._gone(stream, gone)
            seen = [one.id for one in found] + gone
            found = self._renewed(stream, found)
            self._weigh(stream, found)
            for one in found:
                self._single(stream, one)
            self._bury(stream, found)
            self._hold(stream, found)
            if len(seen) < room:
                return True
            start = b"(" + max(seen, key=StreamID.parse)
        return False

    def _renewed(self, stream: str, found: list[Delivered]) -> list[Delivered]:
        """Renew ``found``; return the entries that this consumer still owns: others may have claimed some."""
        ids = [one.id for one in found]
        kept = set(self._membership.renew(stream, ids, unsettled=lambda: self._unsettled(stream)))
        return [one for one in found if one.id in kept]

    def _gone(self, stream: str, gone: list[bytes]) -> None:
        if not gone:
            return
        report(
            Finding(
                stream,
                certain=True,
                text=f"stream {stream!r}: entries that were delivered to {self._membership.consumer!r} of "
                f"group {self._membership.group!r} were deleted or trimmed before they were read "
                f"({len(gone)} in total, the first is {gone[0].decode()})",
            ),
            self._options,
        )
        self._membership.settle(stream, gone)

    # --- claimed and new ones ---------------------------------------------------------------------

    def others(self, streams: Iterable[str]) -> None:
        """Fetch claimed and new entries, page by page, from each stream in turn."""
        unfinished = [stream for stream in streams if not self._finished(stream)]
        waiting = deque(unfinished if len(unfinished) <= FEW_STREAMS else self._glance(unfinished))
        while waiting:
            stream = waiting.popleft()
            room = self._room(stream)
            if not room:
                continue
            # Rooms are equal, and room that one stream does not need goes to the others.
            if self._page(stream, min(room, max(1, self._left() // (len(waiting) + 1)))):
                waiting.append(stream)

    def _glance(self, streams: list[str]) -> list[str]:
        """Fetch a few entries of each stream, many streams in one request; return those that may have more.

        Of a thousand streams, most do not have new entries.
        """
        more: list[str] = []
        while streams:
            group = streams[: max(1, min(GLANCED_TOGETHER, self._left()))]
            room = self._room(group[0])
            if not room:
                break
            streams = streams[len(group) :]
            count = max(1, min(GLANCED_ENTRIES, room, self._left() // len(group)))
            pages = self._membership.do_together(
                group,
                partial(self._poll, count=count),
                unsettled=lambda stream: lambda: self._unsettled(stream),
            )
            for stream, found in zip(group, pages, strict=True):
                if self._polled(stream, found, count):
                    more.append(stream)
        return more + streams

    def _page(self, stream: str, count: int) -> bool:
        """Fetch one page of ``stream``; return whether there may be more entries."""
        claims = self._claims(stream)
        found = self._membership.do(
            stream, self._poll(stream, count), unsettled=lambda: self._unsettled(stream)
        )
        more = self._polled(stream, found, count)
        if self._limits.run is not None and claims and self._membership.reader(stream).passing:
            time.sleep(BETWEEN_STEPS_MS / 1000)
        return more

    def _claims(self, stream: str) -> bool:
        now_only = self._limits.run
        return now_only is None or stream not in now_only.claimed

    def _poll(self, stream: str, count: int) -> Callable[[Member], Operation[list[Delivered]]]:
        """Return the operation that fetches one page."""
        reader, claims = self._membership.reader(stream), self._claims(stream)
        return lambda _member: reader.poll(
            limit=count,
            now=time.monotonic(),
            claims=claims,
            new=self._limits.run is None or not claims,
        )

    def _polled(self, stream: str, found: list[Delivered], count: int) -> bool:
        """Add one page to the batch; return whether there may be more entries."""
        now_only, claims = self._limits.run, self._claims(stream)
        new = [one for one in found if not one.claimed]
        self._take(stream, found, new)
        if now_only is None:
            return len(found) == count
        passing = self._membership.reader(stream).passing
        if claims and not passing and (new or len(found) < count):
            now_only.claimed.add(stream)
        last = StreamID.parse(new[-1].id) if new else None
        if (last is not None and last >= now_only.upto[stream]) or not (claims or new):
            now_only.reached.add(stream)
        return not self._finished(stream)

    def _finished(self, stream: str) -> bool:
        """Return whether an available-now run has finished ``stream``."""
        now_only = self._limits.run
        return now_only is not None and stream in now_only.claimed & now_only.reached

    def _take(self, stream: str, found: list[Delivered], new: list[Delivered]) -> None:
        self._weigh(stream, found)
        taken = self._of(stream)
        known = taken.counts
        claimed = [one for one in found if one.claimed and one.id not in known]
        for one in claimed:
            self._single(stream, one)
        if new:
            self._membership.note_seen(stream, StreamID.parse(new[-1].id))
        if any(one.id in known for one in new):
            # The group was recreated, so this reply has entries that the batch already contains: the
            # others are no longer a complete run of neighbours.
            for one in new:
                if one.id not in known:
                    self._single(stream, one)
        elif new:
            first, last = StreamID.parse(new[0].id), StreamID.parse(new[-1].id)
            taken.runs.append(EntryRun(first, last, len(new)))
            known.update((one.id, one.delivery_count) for one in new)
        self._bury(stream, claimed)
        self._hold(stream, found)

    # --- bookkeeping ------------------------------------------------------------------------------

    def _of(self, stream: str) -> _Fetched:
        return self._taken.setdefault(stream, _Fetched())

    def _single(self, stream: str, one: Delivered) -> None:
        taken = self._of(stream)
        taken.counts[one.id] = one.delivery_count
        taken.singles[StreamID.parse(one.id)] = one.delivery_count

    def _weigh(self, stream: str, found: list[Delivered]) -> None:
        taken = self._of(stream)
        taken.seen_entries += len(found)
        taken.weight += sum(len(word) for one in found for word in one.fields)

    def _hold(self, stream: str, found: list[Delivered]) -> None:
        """Renew the leases of those of ``found`` that are in the batch."""
        counts = self._of(stream).counts
        ids = [one.id for one in found if one.id in counts]
        self._renewer.hold(self._membership.member(stream), ids)

    def _unsettled(self, stream: str) -> list[tuple[bytes, int]]:
        return list(self._of(stream).counts.items())

    def _left(self) -> int:
        return self._limits.entries - sum(len(taken.counts) for taken in self._taken.values())

    def _room(self, stream: str) -> int:
        """Return the number of entries of ``stream`` that may be requested now."""
        taken = self._taken.values()
        most_bytes = PAGE_BYTES
        if self._limits.bytes is not None:
            most_bytes = min(PAGE_BYTES, self._limits.bytes - sum(one.weight for one in taken))
        if most_bytes <= 0 or sum(len(one.runs) for one in taken) >= MOST_RUNS:
            return 0
        singles = MOST_SINGLES - sum(len(one.singles) for one in taken)
        return max(0, min(self._left(), singles, self._of(stream).page(most_bytes)))

    # --- dead letters -----------------------------------------------------------------------------

    def _bury(self, stream: str, found: Iterable[Delivered]) -> None:
        """Bury entries that were delivered too often, which are then not part of the batch."""
        most = self._membership.max_deliveries
        dead = [one for one in found if most is not None and one.delivery_count > most]
        if not dead:
            return
        taken, destination = self._of(stream), self._membership.dead_letters(stream)
        settlements = [
            bury(
                self._membership.member(stream),
                destination,
                id=one.id,
                fields=one.fields,
                deliveries=one.delivery_count - 1,
                error=f"MaxDeliveries: delivered {one.delivery_count - 1} times without being "
                f"settled, maxDeliveries is {most}",
                at_ms=int(time.time() * 1000),
            )
            for one in dead
        ]
        outcomes = self._membership.do(
            stream,
            lambda member: settle(member, settlements),
            unsettled=lambda: self._unsettled(stream),
        )
        again = []
        for one, outcome in zip(dead, outcomes, strict=True):
            del taken.counts[one.id], taken.singles[StreamID.parse(one.id)]
            if outcome.error is not None:
                _log.error("%s did not accept the dead letter: %s", destination, outcome.error)
                again.append(Settlement(one.id, How.FAIL, delay_ms=BURIED_AGAIN_MS))
            elif outcome.done:
                _log.warning(
                    "entry %s of stream %r was moved to %s: it was delivered %d times",
                    one.id.decode(),
                    stream,
                    destination,
                    one.delivery_count - 1,
                )
        if again:
            self._membership.do(stream, lambda member: settle(member, again), unsettled=nothing)
