"""What a consumer group looks like at one moment: all that `causes` decides from.

Rule 1. Nothing is changed. The content of three entries is transferred at most: of the first and the last one
        of the stream, and of the oldest unread one.
Rule 2. Of a long pending entries list, the oldest entries and those that have been idle for longest are
        examined, `MOST` of each; the counts are those of the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headwater.groups.claiming import gone_from
from headwater.groups.consumers import ConsumerInfo, ConsumerState, consumers
from headwater.groups.early_claims import early_claims
from headwater.groups.held import HeldKey, read_held
from headwater.groups.member import SEEN_FIELD
from headwater.groups.operation import Operation, Refused, accepted, mapping
from headwater.groups.pending import (
    GroupInfo,
    GroupPending,
    PendingDelivery,
    PendingFilter,
    deliveries,
    report,
)
from headwater.groups.poison import Record
from headwater.groups.trimmed import never_read
from headwater.messages import group_settings_key, poison_key
from headwater.model import StreamID
from headwater.operations.refusals import ServerRefusal

MOST = 1_000
"""How many of the oldest entries, and of those that have been idle for longest, are examined."""

SILENT_MS = 300_000
"""``claim_after`` of a group whose workers have announced none."""


class Observation(NamedTuple):
    """What a group looked like at ``at_ms``, in Unix milliseconds of the server."""

    stream: str
    at_ms: int
    group: GroupPending
    """The counts of the group, and its oldest pending entries."""
    consumers: Sequence[ConsumerInfo]
    """Its consumers, without those that Headwater uses itself."""
    idle: Sequence[PendingDelivery]
    """Pending entries that were idle for at least `silent_ms`, or that nobody owns, the oldest first."""
    seen_ms: int | None
    """Milliseconds since a worker or consumer of the group was last seen; None if none ever was."""
    missing: Sequence[str] | None
    """Examined entries that are gone from the stream; None if the server does not tell."""
    never_read: int | None
    """At least how many entries were trimmed or deleted before the group read them; None if unknown."""
    poison: Mapping[str, Record]
    """The suspected poison messages among the examined entries."""
    early: Mapping[str, int]
    """How often entries were claimed from a worker that still ran them, in the last hour."""
    held: Sequence[HeldKey]
    """The keys of an ordered group of which entries wait for an earlier one."""
    refusals: Sequence[ServerRefusal]
    """Why the server refuses what workers send."""

    @property
    def silent_ms(self) -> int:
        """The idle time from which an owner counts as silent: ``claim_after``, if the workers announced it."""
        return SILENT_MS if self.group.claim_after_ms is None else self.group.claim_after_ms


def observe(
    of: GroupInfo, refused: Sequence[ServerRefusal], *, only: str | None = None
) -> Operation[Observation]:
    """Observe a group, or only the pending entry ``only`` of it. ``refused``: why the server refuses commands."""
    span = PendingFilter(MOST) if only is None else PendingFilter(1, only, only)
    found = yield from report(of, span)
    silent = SILENT_MS if found.claim_after_ms is None else found.claim_after_ms
    idle = yield from deliveries(
        of, span._replace(idle_ms=max(1, silent)), claim_after_ms=found.claim_after_ms
    )
    everyone = yield from consumers(of.stream, of.name)
    others = [one for one in everyone if one.state != ConsumerState.INTERNAL]
    examined = {one.id: one for one in (*found.entries, *idle)}
    replies = yield [
        ["HGET", group_settings_key(of.stream, of.name), SEEN_FIELD],
        ["HGETALL", poison_key(of.stream, of.name)],
    ]
    return Observation(
        stream=of.stream,
        at_ms=of.now_ms,
        group=found,
        consumers=others,
        idle=[one for one in idle if one.due_ms is None],
        seen_ms=_last_seen(replies[0], others, of.now_ms),
        missing=(yield from _missing(of, list(examined))),
        never_read=(yield from never_read(of.stream, of.name)),
        poison=_suspects(replies[1], examined),
        held=(yield from read_held(of.stream, of.name)),
        early=(yield from early_claims(of.stream, of.name)),
        refusals=refused,
    )


def _last_seen(reply: Any, others: Sequence[ConsumerInfo], now_ms: int) -> int | None:
    """Return the milliseconds since anyone of the group was seen: by the server, or by a worker's own word."""
    seen = [one.idle_ms for one in others]
    if not isinstance(reply, Refused) and reply is not None:
        seen.append(max(0, now_ms - int(reply)))
    return min(seen, default=None)


def _suspects(reply: Any, examined: Mapping[str, PendingDelivery]) -> dict[str, Record]:
    if isinstance(reply, Refused):
        return {}
    records = {one.decode(): Record.parse(value) for one, value in mapping(reply).items()}
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
    """Return those ids that are gone from the stream, without transferring the entries of others."""
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
