"""Claiming: new entries and those whose owner has gone silent, in one loop.

Rule 1. A claim never takes an owned entry younger than ``claim_after``, nor the member's own.
Rule 2. What is claimed comes with its count and with whether its former owner gave it up (released,
        parked, delayed) or fell silent: only the latter makes it a suspect.
Rule 3. A blocking read is never longer than the next claim is due.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from headwater.groups.member import Member
from headwater.groups.operation import Operation, Word, accepted
from headwater.groups.scripts import CLAIM, RIPEN
from headwater.messages import PARKED_CONSUMER

SCAN_ROWS = 1_000
"""Pending rows that one claiming step looks at: half a millisecond of the server's time."""

BETWEEN_STEPS_MS = 5
"""Pause between the steps of one pass over a long pending list."""

MAX_BLOCK_MS = 5_000
"""A read returns at least so often, so that a connection that died without a word is noticed."""

RELEASED_IDLE_MS = 10**11
"""A released entry's delivery time is 0, so its idle time is the Unix time: decades."""

HISTORY_ROWS = 1_000

SWEEP_SECONDS = 60.0
"""How often a server that claims while it reads is asked for what it can never deliver."""


class Delivered(NamedTuple):
    """An entry as a member receives it."""

    id: bytes
    fields: list[bytes]
    """Field, value, field, value, as the entry has them."""
    delivery_count: int
    """This delivery included."""
    claimed: bool
    """It was pending before this read."""
    from_silent: bool
    """It was claimed from an owner that neither released nor parked it."""


class Reader:
    """Reads for one member; keeps where its pass over the pending list stands.

    ``now`` is monotonic time in seconds, the caller's.
    """

    def __init__(self, member: Member) -> None:
        self.member = member
        self._place = "-"
        self._cursor = "0"
        self._pass_at = 0.0
        self._sweep_at = 0.0

    @property
    def claim_interval_ms(self) -> int:
        """How late a claim may be where the server does not wake a reader for it."""
        return max(20, min(1_000, self.member.claim_after_ms // 20))

    def expect(self, due: float) -> None:
        """Something can be claimed at ``due``: a retry that this member parked itself."""
        self._pass_at = min(self._pass_at, due)

    def read(self, *, limit: int, now: float) -> Operation[list[Delivered]]:
        """Up to ``limit`` entries; waits for the first one, at most `MAX_BLOCK_MS`.

        Raises `GroupVanished` when the group is gone.
        """
        if self.member.able.claim:
            if now >= self._sweep_at:
                self._sweep_at = now + SWEEP_SECONDS
                yield from self._drop_gone()
            return (yield from self._read_claiming(limit, block_ms=MAX_BLOCK_MS))
        return (yield from self._claim_then_read(limit, now))

    @property
    def passing(self) -> bool:
        """Whether a pass over the pending list, which takes steps in Lua, is under way."""
        return self._place != "-"

    def poll(
        self, *, limit: int, now: float, claims: bool = True, new: bool = True
    ) -> Operation[list[Delivered]]:
        """Up to ``limit`` entries that are there now; waits for nothing.

        Without ``claims`` new ones only. Without ``new`` claimed ones only, except where a server
        claims while it reads: it gives those first, and then new ones.
        """
        member = self.member
        if claims and member.able.claim:
            if now >= self._sweep_at:
                self._sweep_at = now + SWEEP_SECONDS
                yield from self._drop_gone()
            return (yield from self._read_claiming(limit, block_ms=0))
        found: list[Delivered] = []
        if claims and now >= self._pass_at:
            found = yield from self._claim(limit, now)
        if new and len(found) < limit:
            entries = yield from self._new(limit - len(found), block_ms=0, options=[])
            found += [Delivered(entry[0], entry[1], 1, False, False) for entry in entries]
        return found

    # --- servers that claim while they read -------------------------------------------------------

    def _read_claiming(self, limit: int, *, block_ms: int) -> Operation[list[Delivered]]:
        member = self.member
        entries = yield from self._new(
            limit, block_ms=block_ms, options=["CLAIM", member.claim_after_ms]
        )
        found = []
        for entry_id, fields, idle, count in entries:
            claimed = bool(count or idle)
            silent = claimed and idle < RELEASED_IDLE_MS
            found.append(Delivered(entry_id, fields, count + 1, claimed, silent))
        if not member.able.verbs:
            found = yield from self._ripe(found)
        return found

    def _ripe(self, found: list[Delivered]) -> Operation[list[Delivered]]:
        """What was parked with XCLAIM looks like any owned entry to CLAIM: ask the due hash."""
        doubtful = [one for one in found if one.from_silent]
        if not doubtful:
            return found
        words: list[Word] = []
        for one in doubtful:
            words += [one.id, one.delivery_count - 1]
        outcomes = yield from RIPEN.call(self.member.keys, [*self.member.who, *words])
        state = dict(zip((one.id for one in doubtful), outcomes, strict=True))
        return [
            one._replace(from_silent=False) if state.get(one.id) == 1 else one
            for one in found
            if state.get(one.id) != 2
        ]

    def _drop_gone(self) -> Operation[None]:
        """Acknowledge what is ripe and whose entry is gone from the stream.

        CLAIM passes over it, so it would stay in the pending list for ever. A worker that still
        handles such an entry renews its lease, so it is not ripe.
        """
        member = self.member
        ripe: list[Word] = ["IDLE", member.claim_after_ms, "-", "+", HISTORY_ROWS]
        replies = yield [["XPENDING", member.stream, member.group, *ripe]]
        ids: list[bytes] = [row[0] for row in accepted(replies[0])]
        if not ids:
            return
        replies = yield [["XRANGE", member.stream, one, one] for one in ids]
        gone = [one for one, reply in zip(ids, replies, strict=True) if accepted(reply) == []]
        if gone:
            replies = yield [["XACK", member.stream, member.group, *gone]]
            accepted(replies[0])

    # --- servers that do not ----------------------------------------------------------------------

    def _claim_then_read(self, limit: int, now: float) -> Operation[list[Delivered]]:
        found: list[Delivered] = []
        if now >= self._pass_at:
            found = yield from self._claim(limit, now)
        if len(found) < limit:
            # Until the next claim is due; not at all when there is something to do already.
            wait = 0 if found else max(1, min(MAX_BLOCK_MS, int((self._pass_at - now) * 1000)))
            entries = yield from self._new(limit - len(found), block_ms=wait, options=[])
            found += [Delivered(entry[0], entry[1], 1, False, False) for entry in entries]
        return found

    def _claim(self, limit: int, now: float) -> Operation[list[Delivered]]:
        sweep = self._cursor if self._place == "-" else ""
        place, cursor, rows = yield from CLAIM.call(
            self.member.keys, [*self.member.who, self._place, limit, SCAN_ROWS, sweep]
        )
        if sweep:
            self._cursor = cursor.decode()
        self._place = place.decode() or "-"
        pause = BETWEEN_STEPS_MS if place else self.claim_interval_ms
        self._pass_at = now + pause / 1000
        parked = PARKED_CONSUMER.encode()
        return [
            Delivered(entry_id, fields, count + 1, True, owner != parked)
            for entry_id, fields, owner, _idle, count in rows
        ]

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


def owned(
    member: Member, *, start: bytes = b"-", end: bytes = b"+", limit: int | None = None
) -> Operation[list[tuple[bytes, int]]]:
    """Ids that this member owns from ``start`` to ``end``, with their counts; ``limit`` at most."""
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
    """What this member owns and does not know: entries of a reply that was lost with a connection.

    They come with the count they have: that delivery was counted, and it is the one that now
    arrives. Where it was claimed, from whom is forgotten: silence is assumed. Second: ids whose
    entry is gone from the stream; there is nothing left to handle. At most ``limit`` pending rows
    are looked at, from ``start`` on.
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
                found.append(Delivered(entry_id, entries[0][1], count, count > 1, count > 1))
            else:
                gone.append(entry_id)
    return found, gone
