"""Members of a consumer group. They create the group, agree on its settings, and create it again if it vanishes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from headwater.common.model import MIN_ID, StreamID, id_before
from headwater.common.names import bytes_of
from headwater.errors import DeclarationError
from headwater.groups.membership.group_backup import FIELDS, PARKED, SIGNED, GroupBackup, Row, parse
from headwater.groups.protocol.capabilities import Capabilities
from headwater.groups.protocol.operation import (
    Command,
    Operation,
    Refused,
    Script,
    Word,
    accepted,
    executed,
    group_row,
    mapping,
    server_ms,
    whole_number,
)
from headwater.groups.protocol.scripts import RETIRE
from headwater.messages.keys import delays_key, group_backup_key, group_settings_key

CLAIM_AFTER_FIELD = "claim_after_ms"

SEEN_FIELD = "seen_at"
"""Field with the time when a worker of the group last started, in Unix milliseconds of the server. While workers run,
the time of the group's backup shows that they do, every two seconds (`backup_writer`)."""

MARK_FIELD = "made"
"""Field with the group's *mark*, a random word that changes whenever a worker creates the group again."""


SEEN_MS = 5_000
"""Milliseconds within which a running worker is seen, even on a busy machine. The idle times of consumers do
not show this: on Redis 7.0, a read that finds nothing neither creates a consumer nor counts as seen."""

BACKUP_VALID_MS = 600_000
"""Age in milliseconds at which a backup is ignored, because its workers stopped long ago."""

_REPLACE = Script(
    """
-- KEYS stream, settings, backup. ARGV group, expected claim_after, new claim_after, idle time in ms below which a
-- consumer may come back, time in ms within which a running worker was seen. Returns '' if the value was
-- replaced, else the reason.
local group, old, new, silence, young = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local seen = tonumber(redis.call('HGET', KEYS[2], 'seen_at') or '0') or 0
local since = now - math.max(seen, tonumber(redis.call('HGET', KEYS[3], 'at') or '0') or 0)
if redis.call('HGET', KEYS[2], 'claim_after_ms') ~= old then return 'the value has just changed' end
if since >= 0 and since < young then return 'a worker was seen ' .. since .. ' ms ago' end
for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], group)) do
  local name, idle = '', 0
  for i = 1, #info, 2 do
    if info[i] == 'name' then name = info[i + 1] end
    if info[i] == 'idle' then idle = info[i + 1] end
  end
  if string.sub(name, 1, 3) ~= 'hw.' and idle < silence then
    return 'consumer ' .. name .. ' was seen ' .. idle .. ' ms ago'
  end
end
redis.call('HSET', KEYS[2], 'claim_after_ms', new, 'seen_at', string.format('%.0f', now))
return ''
"""
)


@dataclass(frozen=True)
class Member:
    """One consumer of one group of one stream, on a server of known capabilities."""

    stream: str
    group: str
    consumer: str
    claim_after_ms: int
    able: Capabilities

    @cached_property
    def keys(self) -> list[str]:
        """Keys that the scripts of a group touch."""
        return [self.stream, delays_key(self.stream, self.group)]

    @cached_property
    def claim_keys(self) -> list[str]:
        """Keys that the claiming scripts of a group touch."""
        return [*self.keys, group_settings_key(self.stream, self.group)]

    @cached_property
    def who(self) -> list[str | int]:
        """The first arguments of a group's scripts."""
        return [self.group, self.consumer, self.claim_after_ms]


def join(member: Member, *, position: StreamID | str = MIN_ID) -> Operation[bytes | None]:
    """Create the stream and the group if they do not exist, and announce ``claim_after``. Return the group's
    mark (see `rejoin`).

    A new group begins after ``position``, by default with the first entry of the stream; ``$`` is the
    stream's last id. All workers of a group must use the same ``claim_after``. Otherwise a worker with a
    shorter value would claim entries that others still own. A different value in the group's settings is
    replaced if no consumer was seen for as long as it states; otherwise this raises `DeclarationError`.
    """
    key = _settings(member)
    replies = yield [
        ["XINFO", "GROUPS", member.stream],
        ["HMGET", key, CLAIM_AFTER_FIELD, MARK_FIELD],
        ["TIME"],
        ["HGET", group_backup_key(member.stream, member.group), "at"],
    ]
    announced, mark = accepted(replies[1])
    now = _now_ms(replies[2])
    # Only a worker that creates the group needs the permission to create groups.
    if group_row(replies[0], member.group) is None:
        if now is not None and 0 <= now - (whole_number(replies[3]) or 0) < SEEN_MS:
            # The group has just vanished under running workers: continue at their position.
            found = f"{member.consumer}:{now}"
            mark = (yield from rejoin(member, unsettled=(), seen=None, mark=found)).mark
        else:
            _created((yield [_create(member, position)])[0])
    agreed_ms = whole_number(announced)
    if agreed_ms is None:
        # A value that is not a number was not written by a worker.
        clear: list[Command] = [] if announced is None else [["HDEL", key, CLAIM_AFTER_FIELD]]
        agreed_ms = whole_number(accepted((yield [*clear, *_announce(member, now)])[-1]))
    if agreed_ms is not None and agreed_ms != member.claim_after_ms:
        yield from _replace(member, agreed_ms)
    agreed: bytes | None = mark
    return agreed


class Remade(NamedTuple):
    """The result of `rejoin`."""

    position: StreamID
    """The id after which the group continues."""
    kept: set[bytes]
    """Ids of unsettled entries that this member owns again."""
    mark: bytes | None
    made: bool = True
    """True if this member created the group; False if another worker had just done so."""
    replaced: bool = False
    """True if another client had destroyed the group and created it again."""
    restored: int = 0
    """Number of pending entries that were restored from the backup."""
    age_ms: int = 0
    """Age of the backup that was restored, in milliseconds; 0 without one."""


def rejoin(
    member: Member,
    *,
    unsettled: Sequence[tuple[bytes, int]],
    seen: bytes | None,
    mark: str,
    handed_back: Collection[bytes] = (),
    replaced: bool = False,
) -> Operation[Remade]:
    """Create a vanished group again and restore its pending entries. If another client has ``replaced`` the
    group, restore them in the new one.

    ``unsettled`` are ids with their delivery counts. ``seen`` is the greatest id that was ever delivered to
    this member. ``handed_back`` are ids that this member handed back recently; in the backup, this member may
    still own them. ``mark`` is a new random word, by which other workers notice that the group was created again.

    The group continues at the position of the last backup (`group_backup`), and the backup's entries are
    pending again: delayed entries, and those of other workers, including dead ones. Without a backup the group
    continues just below the smallest unsettled id, or after ``seen`` if nothing is unsettled. It starts
    from the beginning if the stream's last id is before that position: the stream was deleted and written again.
    """
    backup_key = group_backup_key(member.stream, member.group)
    replies = yield [
        ["XINFO", "STREAM", member.stream],
        ["XINFO", "GROUPS", member.stream],
        ["TIME"],
        ["HMGET", backup_key, *FIELDS],
        ["HGET", _settings(member), MARK_FIELD],
    ]
    there = group_row(replies[1], member.group)
    if there is not None and not replaced:
        kept = yield from _register(member, unsettled)
        return Remade(MIN_ID, kept, accepted(replies[4]), made=False)
    last = MIN_ID
    if not isinstance(replies[0], Refused):
        last = StreamID.parse(mapping(replies[0])[b"last-generated-id"])
    now = _now_ms(replies[2])
    backup = _valid(replies[3], now, last)
    position = _position(unsettled, seen) if backup is None else backup.position
    if position > last:
        position = MIN_ID
    rows: Sequence[Row] = () if backup is None else backup.rows
    if backup is None:
        rows = [Row(one, 1, b"", 0) for one in handed_back if StreamID.parse(one) <= position]
    again = _from_backup(member, rows, unsettled, now or 0, handed_back)
    make = _create(member, position)
    if there is not None:
        if backup is None or backup.floor is None:
            position = max(position, StreamID.parse(there[b"last-delivered-id"]))
        make = ["XGROUP", "SETID", member.stream, member.group, str(position)]
    # This is one step. If the worker dies here, it has created everything or nothing.
    replies = yield [
        ["MULTI"],
        ["HSET", _settings(member), MARK_FIELD, mark],
        ["HSET", backup_key, SIGNED, int(there is not None)],
        make,
        *_announce(member, now),
        *again,
        ["EXEC"],
    ]
    _created(executed(replies)[2])
    kept = yield from _register(member, unsettled)
    restored = sum(command[0] == "XCLAIM" for command in again)
    age = 0 if backup is None or now is None else now - backup.at_ms
    known = bytes_of(mark)
    return Remade(position, kept, known, restored=restored, age_ms=age, replaced=there is not None)


def _valid(reply: Any, now: int | None, last: StreamID) -> GroupBackup | None:
    """Return the backup in HMGET's reply. Return None if it cannot be used: it is missing, too old, or beyond
    the stream's ``last`` id."""
    backup = None if now is None or isinstance(reply, Refused) else parse(reply)
    if now is None or backup is None:
        return None
    too_old = now - backup.at_ms > BACKUP_VALID_MS
    return None if too_old or backup.position > last else backup


def _position(unsettled: Sequence[tuple[bytes, int]], seen: bytes | None) -> StreamID:
    """Return the id after which a group without a backup continues."""
    if unsettled:
        return StreamID(*id_before(*min(StreamID.parse(one[0]) for one in unsettled)))
    return MIN_ID if seen is None else StreamID.parse(seen)


def _from_backup(
    member: Member,
    rows: Sequence[Row],
    unsettled: Sequence[tuple[bytes, int]],
    now: int,
    handed_back: Collection[bytes],
) -> list[Command]:
    """Return the commands that restore pending entries for their former owners. Entries that this member
    owned are left out, because it knows their state; those that it handed back are restored without an owner."""
    mine = {one[0] for one in unsettled}
    me = bytes_of(member.consumer)
    commands: list[Command] = []
    released: dict[int, list[bytes]] = {}
    for row in rows:
        if row.id in mine or (row.owner == me and row.id not in handed_back):
            continue
        if row.owner == me:
            row = row._replace(owner=b"")
        owner, idle = row.owner, 0
        if row.owner == PARKED:
            idle = max(0, member.claim_after_ms - max(0, row.ripe_ms - now))
        elif not row.owner and member.able.verbs:
            owner = me
            released.setdefault(max(0, row.ripe_ms - now), []).append(row.id)
        elif not row.owner:
            owner, idle = PARKED, member.claim_after_ms
        head: list[Word] = ["XCLAIM", member.stream, member.group, owner, member.claim_after_ms]
        count: list[Word] = ["FORCE", "JUSTID", "RETRYCOUNT", row.deliveries]
        commands.append([*head, row.id, "IDLE", idle, *count])
    for delay_ms, ids in released.items():
        delay: list[Word] = ["DELAY", delay_ms] if delay_ms else []
        settle = ["XSETTLE", member.stream, member.group, member.consumer, "FAIL"]
        commands.append([*settle, *delay, "IDS", len(ids), *ids])
    return commands


def look_again(
    member: Member, *, unsettled: Sequence[tuple[bytes, int]], mark: bytes | None
) -> Operation[tuple[bytes | None, set[bytes]]]:
    """Check by the group's mark whether another member has created the group again. If so, make this member own
    its unsettled entries again, as `rejoin` does. Return the current mark and the ids of these entries."""
    replies = yield [["HGET", _settings(member), MARK_FIELD]]
    found: bytes | None = accepted(replies[0])
    if found == mark:
        return mark, set()
    return found, (yield from _register(member, unsettled))


def _register(member: Member, unsettled: Sequence[tuple[bytes, int]]) -> Operation[set[bytes]]:
    """Make this member own the entries ``unsettled``, with their delivery counts. Return the ids that it now owns.

    XCLAIM FORCE skips entries that are gone, and entries that another consumer owns and renews.
    """
    head: list[Word] = ["XCLAIM", member.stream, member.group, member.consumer]
    commands: list[Command] = [
        [*head, member.claim_after_ms, one[0], "FORCE", "JUSTID", "RETRYCOUNT", one[1]]
        for one in unsettled
    ]
    replies = (yield commands) if commands else []
    return {entry_id for reply in replies for entry_id in accepted(reply)}


def _create(member: Member, position: StreamID | str) -> Command:
    return ["XGROUP", "CREATE", member.stream, member.group, str(position), "MKSTREAM"]


def _created(reply: object) -> None:
    if not (isinstance(reply, Refused) and reply.code == "BUSYGROUP"):
        accepted(reply)


def _settings(member: Member) -> str:
    return group_settings_key(member.stream, member.group)


def _now_ms(reply: Any) -> int | None:
    """Return the server's time from TIME's reply; None if an ACL rule forbids TIME."""
    return None if isinstance(reply, Refused) else server_ms(reply)


def _announce(member: Member, now: int | None) -> list[Command]:
    """Return the commands that record that a worker runs, set ``claim_after`` if it is not set, and read it."""
    key = _settings(member)
    commands: list[Command] = [["HSETNX", key, CLAIM_AFTER_FIELD, member.claim_after_ms]]
    if now is not None:
        commands.append(["HSET", key, SEEN_FIELD, now])
    return [*commands, ["HGET", key, CLAIM_AFTER_FIELD]]


def _replace(member: Member, announced: int) -> Operation[None]:
    """Replace the announced ``claim_after`` by this member's, if no consumer uses it any more.

    Raises `DeclarationError` if a consumer still uses it.
    """
    silence = announced + SEEN_MS
    words: list[Word] = [member.group, announced, member.claim_after_ms, silence, SEEN_MS]
    keys = [member.stream, _settings(member), group_backup_key(member.stream, member.group)]
    found: bytes = yield from _REPLACE.call(keys, words)
    if not found:
        return
    raise DeclarationError(
        f"group {member.group!r} of stream {member.stream!r} claims after {announced} ms, but this "
        f"consumer declares {member.claim_after_ms} ms. All workers of a group must agree: use that "
        f"value, or stop all workers of the group. ({found.decode('utf-8', 'replace')}; a new value "
        f"is accepted once no consumer has been seen for {silence / 1000:g} s.)"
    )


def retire(member: Member) -> Operation[bool]:
    """Remove the consumer if it owns no entry, and return whether it was removed."""
    if member.able.verbs:
        replies = yield [["XRETIRE", member.stream, member.group, member.consumer]]
        return bool(accepted(replies[0]))
    done = yield from RETIRE.call([member.stream], [member.group, member.consumer])
    return bool(done)
