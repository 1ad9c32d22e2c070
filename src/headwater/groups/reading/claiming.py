"""Reads new entries and claims idle ones, in one loop.

A *silent* owner has not read, claimed or renewed anything for ``claim_after``.

Rule 1. A claim never takes an entry that was renewed less than ``claim_after`` ago. Only Headwater's XREADGROUP CLAIM
        may take an idle entry that the member itself owns.
Rule 2. A claimed entry comes with its delivery count, and with a flag that is true if the former owner was
        silent, and false if that owner released or delayed the entry. Only a silent owner may have died.
Rule 3. A blocking read returns, at the latest, when the next claim is due.
Rule 4. On a server that does not claim while it reads, a claim looks only at due entries and at silent
        consumers, so its cost does not depend on the number of delayed entries. Once a minute, one member
        sweeps the whole pending entries list, for entries of active consumers that never renew.
Rule 5. A pending entry that is gone from the stream is reported to ``gone`` when it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import Any, NamedTuple, TypeVar

from headwater.common.model import MAX_ID, StreamID
from headwater.groups.membership.member import Member
from headwater.groups.protocol.content import ContentPages
from headwater.groups.protocol.operation import Command, Operation, Refused, Word, accepted
from headwater.groups.protocol.scripts import CLAIM, SWEEP
from headwater.messages.keys import PARKED_CONSUMER

T = TypeVar("T")
Id = TypeVar("Id", str, bytes)

SCAN_ROWS = 1_000
"""Number of pending entries that one step of a sweep examines: half a millisecond of the server's time."""

BETWEEN_STEPS_MS = 5
"""Pause between the steps of a sweep over a long pending entries list, in milliseconds."""

MAX_BLOCK_MS = 5_000
"""Maximum time for which a read blocks, in milliseconds, so that a connection that died silently is noticed."""

RELEASED_IDLE_MS = 10**11
"""Minimum idle time in milliseconds of a released entry: its delivery time is 0, so its idle time is the Unix
time."""

HISTORY_ROWS = 1_000

SWEEP_SECONDS = 60.0
"""Interval at which the whole pending entries list is examined, in seconds."""

Gone = Callable[[Sequence[bytes]], None]
"""Function that is called with the ids of pending entries that were deleted or trimmed from the stream."""


class Delivered(NamedTuple):
    """An entry as it was delivered to a member."""

    id: bytes
    fields: list[bytes]
    """Field, value, field, value, in the entry's order."""
    delivery_count: int
    """The delivery count, this delivery included."""
    claimed: bool
    """True if the entry was pending before this read."""
    from_silent: bool
    """True if the entry was claimed from an owner that neither released nor delayed it."""


def _made(values: tuple[bytes, list[bytes], int, bool, bool]) -> Delivered:
    """Return a `Delivered` of these values. This is faster than the constructor, which is a Python function."""
    return tuple.__new__(Delivered, values)


class MemberReader:
    """Reads and claims for one member. Remembers the position of its sweep.

    ``now`` is the caller's monotonic time in seconds. With ``looks_for_gone``, on servers that claim while they
    read, the reader looks for pending entries that are gone from the stream. This examines every delayed entry.
    """

    def __init__(self, member: Member, *, gone: Gone, looks_for_gone: bool = True) -> None:
        self.member = member
        self._gone = gone
        self._looks_for_gone = looks_for_gone
        self._place = "-"
        """Id at which the sweep continues; "" if no sweep runs. A new reader begins with a sweep."""
        self._more = False
        self._pass_at = 0.0
        self._expected = inf
        """The earliest time given to `expect` since the last claim was sent."""
        self._waits_until = 0.0
        """Latest time at which the last read returns, if the server does not wake it for a claim."""
        self._sweep_at = 0.0
        self._looked_to = b"-"

    @property
    def late(self) -> bool:
        """True if the current read blocks beyond the time at which the next claim is due."""
        return self._pass_at < self._waits_until

    def expect(self, due: float) -> None:
        """Record that an entry can be claimed at ``due``, because this member has delayed it."""
        self._pass_at = min(self._pass_at, due)
        self._expected = min(self._expected, due)

    def looked(self, until: float) -> None:
        """Record that nothing is pending, so that no claim is due before ``until``, unless one is expected."""
        if self._expected == inf:
            self._pass_at = max(self._pass_at, until)

    def read(self, *, limit: int, now: float) -> Operation[list[Delivered]]:
        """Return up to ``limit`` entries. Waits at most `MAX_BLOCK_MS` for the first one.

        Raises `GroupVanished` if the group is gone.
        """
        if self.member.able.verbs:
            yield from self._drop_gone(now)
            return (yield from self._read_claiming(limit, block_ms=MAX_BLOCK_MS))
        return (yield from self._claim_then_read(limit, now))

    @property
    def passing(self) -> bool:
        """True if a claim in Lua is not complete: more can be claimed now, or its sweep has further steps."""
        return not self.member.able.verbs and (bool(self._place) or self._more)

    def poll(
        self, *, limit: int, now: float, claims: bool = True, new: bool = True
    ) -> Operation[list[Delivered]]:
        """Return up to ``limit`` entries that are available now, without waiting.

        Without ``claims``, these are only new entries. Without ``new``, they are only claimed ones, except that
        a server that claims while it reads returns new entries after the claimed ones.
        """
        if claims and self.member.able.verbs:
            yield from self._drop_gone(now)
            return (yield from self._read_claiming(limit, block_ms=0))
        found: list[Delivered] = []
        if claims and now >= self._pass_at:
            found = yield from self._claim(limit, now)
        if new and len(found) < limit:
            entries = yield from self._new(limit - len(found), block_ms=0, options=[])
            found += [_made((entry[0], entry[1], 1, False, False)) for entry in entries]
        return found

    # --- servers that claim while they read -------------------------------------------------------

    def _read_claiming(self, limit: int, *, block_ms: int) -> Operation[list[Delivered]]:
        entries = yield from self._new(
            limit, block_ms=block_ms, options=["CLAIM", self.member.claim_after_ms]
        )
        found = []
        for entry_id, fields, idle, count in entries:
            claimed = bool(count or idle)
            silent = claimed and idle < RELEASED_IDLE_MS
            found.append(_made((entry_id, fields, count + 1, claimed, silent)))
        return found

    def _drop_gone(self, now: float) -> Operation[None]:
        """Acknowledge claimable entries that are gone from the stream, a page at a time.

        CLAIM skips them, so they would stay pending for ever. A worker that still handles such an entry
        renews it, so it is not claimable. Delayed entries are examined when they are due, or immediately
        if their ids are below the stream's first id, because then they were trimmed.
        """
        if now < self._sweep_at or not self._looks_for_gone:
            return
        member = self.member
        rest: list[Word] = [self._looked_to, "+", HISTORY_ROWS]
        replies = yield [
            ["XPENDING", member.stream, member.group, "IDLE", member.claim_after_ms, *rest],
            ["XDELAYED", member.stream, member.group, *rest],
        ]
        ids: list[bytes] = [row[0] for row in accepted(replies[0])]
        more = len(ids) == HISTORY_ROWS
        self._looked_to = b"(" + ids[-1] if more else b"-"
        self._sweep_at = now + (claim_interval_ms(member) / 1000 if more else SWEEP_SECONDS)
        if not ids:
            return
        # The list is empty on a server without XDELAYED, or if an ACL rule forbids it.
        delayed = [] if isinstance(replies[1], Refused) else replies[1]
        waiting = {row[0] for row in delayed if row[1] > 0}
        first = MAX_ID
        replies = yield [["XRANGE", member.stream, "-", "+", "COUNT", 1]]
        for entry in accepted(replies[0]):
            first = StreamID.parse(entry[0])
        gone = [one for one in ids if StreamID.parse(one) < first]
        asked = [one for one in ids[len(gone) :] if one not in waiting]
        found = yield from gone_from(member.stream, asked)
        if found is None:
            found = yield from _gone_by_reading(member.stream, asked)
        gone += found
        yield from drop_gone(member, gone, self._gone)

    # --- other servers ----------------------------------------------------------------------------

    def _claim_then_read(self, limit: int, now: float) -> Operation[list[Delivered]]:
        found: list[Delivered] = []
        if now >= self._pass_at:
            found = yield from self._claim(limit, now)
        if len(found) < limit:
            # Block until the next claim is due; do not block if there are entries already.
            wait = 0 if found else max(1, min(MAX_BLOCK_MS, int((self._pass_at - now) * 1000)))
            self._waits_until = now + wait / 1000
            entries = yield from self._new(limit - len(found), block_ms=wait, options=[])
            found += [_made((entry[0], entry[1], 1, False, False)) for entry in entries]
        return found

    def _claim(self, limit: int, now: float) -> Operation[list[Delivered]]:
        """Claim due entries and those of silent consumers. Then take a step of the sweep, if one runs."""
        every = int(SWEEP_SECONDS * 1000)
        self._expected = inf
        found = yield from _unless_moving(
            CLAIM.call(self.member.claim_keys, [*self.member.who, limit, every])
        )
        if found is None:
            self._pass_at = now + claim_interval_ms(self.member) / 1000
            return []
        following, more, sweep, rows, gone = found
        self._report(gone)
        self._more = bool(more)
        if sweep and not self._place:
            self._place = "-"
        pause = claim_interval_ms(self.member)
        if following >= 0:
            pause = min(pause, following)
        if self._place:
            # This applies after the last step too, because it may have found due entries.
            pause = min(pause, BETWEEN_STEPS_MS)
            if len(rows) < limit:
                rows += yield from self._sweep(limit - len(rows))
        self._pass_at = min(self._expected, now + (0 if more else pause / 1000))
        parked = PARKED_CONSUMER.encode()
        return [
            Delivered(entry_id, fields, count + 1, True, owner not in (parked, b""))
            for entry_id, fields, owner, _idle, count in rows
        ]

    def _sweep(self, limit: int) -> Operation[list[Any]]:
        step: list[Word] = [*self.member.who, self._place, limit, SCAN_ROWS]
        swept = yield from _unless_moving(SWEEP.call(self.member.claim_keys, step))
        if swept is None:
            return []
        place, rows, gone = swept
        self._report(gone)
        self._place = place.decode()
        found: list[Any] = rows
        return found

    def _report(self, gone: Sequence[bytes]) -> None:
        if gone:
            self._gone(gone)

    # --- both -------------------------------------------------------------------------------------

    def _new(self, limit: int, *, block_ms: int, options: list[Word]) -> Operation[list[Any]]:
        member = self.member
        block: list[Word] = ["BLOCK", block_ms] if block_ms else []
        head: list[Word] = ["XREADGROUP", "GROUP", member.group, member.consumer, "COUNT", limit]
        replies = yield [[*head, *block, *options, "STREAMS", member.stream, ">"]]
        streams = accepted(replies[0])
        if not streams:
            return []
        entries: list[Any] = (
            next(iter(streams.values())) if isinstance(streams, dict) else streams[0][1]
        )
        return [entry for entry in entries if entry[1] is not None]


def _unless_moving(claim: Operation[T]) -> Operation[T | None]:
    """Return the result of a claim, or None while the slot of its keys migrates to another node. During
    the migration, commands that name a missing key fail with TRYAGAIN. Reading new entries works."""
    try:
        return (yield from claim)
    except Refused as error:
        if error.code != "TRYAGAIN":
            raise
        return None


def claim_interval_ms(member: Member) -> int:
    """Return the milliseconds between searches for claimable entries, if the server does not wake the member."""
    return max(20, min(500, member.claim_after_ms // 20))


def gone_from(stream: str, ids: Sequence[Id]) -> Operation[list[Id] | None]:
    """Return those of ``ids`` that a stream of Headwater does not have, without reading entries. Return None if an ACL
    rule forbids XSPLIT."""
    commands: list[Command] = [["XSPLIT", stream, one, one, 1] for one in ids]
    replies = (yield commands) if commands else []
    if any(isinstance(reply, Refused) for reply in replies):
        return None
    return [one for one, reply in zip(ids, replies, strict=True) if not reply[0]]


def _gone_by_reading(stream: str, ids: Sequence[bytes]) -> Operation[list[bytes]]:
    """Return those of ``ids`` that a stream does not have. Reads a few megabytes at a time."""
    gone: list[bytes] = []
    pages = ContentPages()
    for part in pages.of(ids):
        replies = yield [["XRANGE", stream, one, one] for one in part]
        gone += [one for one, reply in zip(part, replies, strict=True) if not accepted(reply)]
        pages.read([entry[1] for reply in replies for entry in reply])
    return gone


def drop_gone(member: Member, ids: Sequence[bytes], gone: Gone) -> Operation[None]:
    """Acknowledge pending entries that are gone from the stream. Each is reported by only one member."""
    if not ids:
        return
    replies = yield [["XACK", member.stream, member.group, one] for one in ids]
    dropped = [one for one, reply in zip(ids, replies, strict=True) if accepted(reply)]
    if dropped:
        gone(dropped)


def owned(
    member: Member, *, start: bytes = b"-", end: bytes = b"+", limit: int | None = None
) -> Operation[list[tuple[bytes, int]]]:
    """Return ids and delivery counts of entries that this member owns, from ``start`` to ``end``, at most
    ``limit``."""
    found: list[tuple[bytes, int]] = []
    while limit is None or len(found) < limit:
        rows = HISTORY_ROWS if limit is None else min(HISTORY_ROWS, limit - len(found))
        replies = yield [
            ["XPENDING", member.stream, member.group, start, end, rows, member.consumer]
        ]
        page = accepted(replies[0])
        found += [(row[0], row[3]) for row in page]
        if len(page) < rows:
            break
        start = b"(" + page[-1][0]
    return found


def recover(
    member: Member,
    known: Collection[bytes],
    *,
    start: bytes = b"-",
    limit: int | None = None,
) -> Operation[tuple[list[Delivered], list[bytes]]]:
    """Return the entries that this member owns and that are not in ``known``, such as those of a reply that was
    lost with a connection, and the ids of its entries that are gone from the stream, for `drop_gone`.

    The delivery counts do not change, because the lost reply was this delivery. The former owner of a claimed
    entry is unknown, so its death is not inferred. Examines at most ``limit`` pending entries, beginning at
    ``start``.
    """
    rows = yield from owned(member, start=start, limit=limit)
    unknown = [row for row in rows if row[0] not in known]
    found: list[Delivered] = []
    gone: list[bytes] = []
    for first in range(0, len(unknown), HISTORY_ROWS):
        part = unknown[first : first + HISTORY_ROWS]
        replies = yield [["XRANGE", member.stream, row[0], row[0]] for row in part]
        for (entry_id, count), reply in zip(part, replies, strict=True):
            entries = accepted(reply)
            if entries:
                found.append(
                    Delivered(entry_id, entries[0][1], count, count > 1, from_silent=False)
                )
            else:
                gone.append(entry_id)
    return found, gone
