"""Observes a consumer group at one moment; `causes` decides from such observations alone.

Rule 1. Nothing is changed. The content of at most three entries is transferred: the first and the last of the
        stream, and the oldest unread one.
Rule 2. In a long pending entries list, the oldest entries and those that have been idle for longest are
        examined, `MOST` of each. The counts are the server's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headwater.common.model import StreamID
from headwater.common.names import text_of
from headwater.groups.membership.consumers import ConsumerInfo, ConsumerState, consumers
from headwater.groups.protocol.operation import Operation, Refused, accepted, mapping
from headwater.groups.reading.claiming import gone_from
from headwater.groups.reading.poison import Record
from headwater.groups.reports.early_claims import early_claims
from headwater.groups.reports.expired import ExpiredEntries, read_expired
from headwater.groups.reports.held import HeldKey, read_held
from headwater.groups.reports.hung import read_said
from headwater.groups.reports.limited import Limited, read_limited
from headwater.groups.reports.pending import (
    GroupInfo,
    GroupPending,
    PendingDelivery,
    PendingFilter,
    deliveries,
    report,
    silent_after,
)
from headwater.groups.reports.trimmed import never_read
from headwater.groups.settling.ticks import TicksState, state_if_told
from headwater.messages.keys import poison_key
from headwater.operations.refusals import Refusals

MOST = 1_000
"""Maximum number of entries examined: of the oldest ones, and of those that have been idle for longest."""


class Observation(NamedTuple):
    """The state of a group at ``at_ms``, in Unix milliseconds of the server."""

    stream: str
    at_ms: int
    group: GroupPending
    """The counts of the group, and its oldest pending entries."""
    consumers: Sequence[ConsumerInfo]
    """The consumers of the group, without those that Headwater uses itself."""
    idle: Sequence[PendingDelivery]
    """Pending entries that were idle for at least `silent_ms`, or that have no owner, oldest first."""
    missing: Sequence[str] | None
    """Ids of examined entries that are gone from the stream; None if the server does not report it."""
    never_read: int | None
    """Minimum number of entries that were trimmed or deleted before the group read them; None if unknown."""
    poison: Mapping[str, Record]
    """The suspected poison messages among the examined entries."""
    early: Mapping[str, int]
    """Entry id → number of claims from a worker that still ran it. An hour without such claims empties it."""
    held: Sequence[HeldKey]
    """The keys of an ordered group whose entries wait for an earlier one."""
    server: Refusals
    """Reasons why the server refuses commands of workers, and what is wrong with its replication."""
    unknown: Sequence[str]
    """The facts that the server does not report to this user."""
    ticks: TicksState | None
    """The schedule by which ticks are added to the stream, for the group that handles them; otherwise None."""
    hung: Mapping[str, str]
    """Consumer → its report that all its handlers hang."""
    transfers: Mapping[str, str]
    """Consumer → its report of a large transfer."""
    expired: ExpiredEntries
    """Numbers of entries that recently expired before a worker started them."""
    limited: Limited
    """The entries that wait for a limit of their consumer."""

    @property
    def seen_ms(self) -> int | None:
        """Milliseconds since a worker or consumer of the group was last seen; None if never."""
        return self.group.last_seen_ms

    @property
    def silent_ms(self) -> int:
        """Idle time in milliseconds from which an owner is silent: ``claim_after``, by default five minutes."""
        return silent_after(self.group.claim_after_ms)


def observe(
    of: GroupInfo,
    server: Refusals,
    *,
    only: str | None = None,
) -> Operation[Observation]:
    """Observe a group, or only its pending entry ``only``, on a ``server`` that has been asked what it refuses."""
    span = PendingFilter(MOST) if only is None else PendingFilter(1, only, only)
    found = yield from report(of, span)
    silent = silent_after(found.claim_after_ms)
    idle = yield from deliveries(
        of, span._replace(idle_ms=max(1, silent)), claim_after_ms=found.claim_after_ms
    )
    everyone = yield from consumers(of.stream, of.name)
    others = [one for one in everyone if one.state != ConsumerState.INTERNAL]
    examined = {one.id: one for one in (*found.entries, *idle)}
    replies = yield [["HGETALL", poison_key(of.stream, of.name)]]
    missing = yield from _missing(of, list(examined))
    untold = [] if missing is not None else ["whether pending entries were deleted (EVAL_RO)"]
    if isinstance(replies[0], Refused):
        untold.append("which messages are suspected poison (HGETALL)")
    hung, transfers = yield from read_said(of.stream, of.name)
    return Observation(
        stream=of.stream,
        at_ms=of.now_ms,
        group=found,
        consumers=others,
        idle=[one for one in idle if one.due_ms is None],
        missing=missing,
        never_read=(yield from never_read(of.stream, of.name)),
        poison=_suspects(replies[0], examined),
        held=(yield from read_held(of.stream, of.name)),
        hung=hung,
        transfers=transfers,
        limited=(yield from read_limited(of.stream, of.name, list(examined))),
        expired=(yield from read_expired(of.stream, of.name)),
        early=(yield from early_claims(of.stream, of.name)),
        ticks=(yield from state_if_told(of.stream, of.name)),
        server=server,
        unknown=[*server.unknown, *untold],
    )


def _suspects(reply: Any, examined: Mapping[str, PendingDelivery]) -> dict[str, Record]:
    if isinstance(reply, Refused):
        return {}
    records = {text_of(one): Record.parse(value) for one, value in mapping(reply).items()}
    return {one: record for one, record in records.items() if record.suspect and one in examined}


_GONE = """
-- KEYS stream. ARGV ids. Returns those that are gone from the stream, and how many ids were examined: not more
-- than have 4 MB of content, which take some milliseconds.
local gone, bytes = {}, 0
for i, id in ipairs(ARGV) do
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  if not entry then
    gone[#gone + 1] = id
  else
    for _, word in ipairs(entry[2]) do bytes = bytes + #word end
    if bytes > 4194304 then return {gone, i} end
  end
end
return {gone, #ARGV}
"""


def _missing(of: GroupInfo, ids: Sequence[str]) -> Operation[list[str] | None]:
    """Return those of ``ids`` that are gone from the stream, without transferring the other entries."""
    if not ids:
        return []
    if of.able.verbs:
        return (yield from gone_from(of.stream, ids))
    ordered = sorted(ids, key=StreamID.parse)
    gone: list[str] = []
    while ordered:
        try:
            # A read-only script also runs while clients are paused for writes.
            replies = yield [["EVAL_RO", _GONE, 1, of.stream, *ordered]]
            found, examined = accepted(replies[0])
        except Refused:  # a user without the right to run scripts
            return None
        gone += [one.decode() for one in found]
        ordered = ordered[int(examined) :]
    return gone
