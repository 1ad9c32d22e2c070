"""A member of a consumer group, and how a group comes to be: created, agreed upon, created again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from headwater.errors import DeclarationError
from headwater.groups import group_backup
from headwater.groups.capabilities import Capabilities
from headwater.groups.operation import (
    Command,
    Operation,
    Refused,
    Script,
    Word,
    accepted,
    executed,
    mapping,
)
from headwater.groups.scripts import RETIRE
from headwater.messages import delays_key, due_key, group_backup_key, group_settings_key
from headwater.model import MIN_ID, StreamID, id_before

CLAIM_AFTER_FIELD = "claim_after_ms"

SEEN_FIELD = "seen_at"
"""When a worker of the group was last seen, in Unix milliseconds of the server: at its start, and
every two seconds (`noting`)."""

MARK_FIELD = "made"
"""Changes whenever a worker makes the group again."""


SEEN_MS = 5_000
"""A worker that lives is seen so often, on a busy machine too. The consumers' own idle times do not
say so: on Redis 7.0 a read that finds nothing neither creates a consumer nor counts as seen."""

BACKUP_VALID_MS = 600_000
"""An older note is of workers that stopped long ago."""

_REPLACE = Script(
    """
-- KEYS stream, settings. ARGV group, claim_after expected, new claim_after, a consumer idle for less
-- ms may come back, a worker seen within so many ms lives. Returns '' when it was replaced, else why not.
local group, old, new, silence, young = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local since = now - (tonumber(redis.call('HGET', KEYS[2], 'seen_at') or '0') or 0)
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
    """Who acts: one consumer of one group of one stream, on a server of known capabilities."""

    stream: str
    group: str
    consumer: str
    claim_after_ms: int
    able: Capabilities

    @cached_property
    def keys(self) -> list[str]:
        """The keys that the scripts of a group touch."""
        return [self.stream, delays_key(self.stream, self.group)]

    @cached_property
    def claim_keys(self) -> list[str]:
        """The keys that the claiming scripts of a group touch."""
        former = due_key(self.stream, self.group)
        return [*self.keys, former, group_settings_key(self.stream, self.group)]

    @cached_property
    def who(self) -> list[str | int]:
        """How the scripts of a group begin their arguments."""
        return [self.group, self.consumer, self.claim_after_ms]


def join(member: Member, *, position: StreamID | str = MIN_ID) -> Operation[bytes | None]:
    """Create the stream and the group where they are missing, and announce ``claim_after``.

    A new group begins behind ``position``: with the first entry that the stream holds, if nothing
    else is asked for; ``$`` is the last id there is. All workers of a group must claim
    after the same time, or one takes what another still holds by its own rule. Another value is
    replaced when no consumer was seen for that time; `DeclarationError` while one was. Returns the
    group's mark: see `rejoin`.
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
    # Rights to create are needed only by who creates.
    if not _has_group(replies[0], member.group):
        if now is not None and 0 <= now - _number(replies[3]) < SEEN_MS:
            # It vanished a moment ago, under workers that live: it begins where they were.
            found = f"{member.consumer}:{now}"
            mark = (yield from rejoin(member, unsettled=(), seen=None, mark=found)).mark
        else:
            _created((yield [_create(member, position)])[0])
    if announced is None:
        announced = accepted((yield _announce(member, now))[-1])
    if int(announced) != member.claim_after_ms:
        yield from _replace(member, int(announced))
    agreed: bytes | None = mark
    return agreed


class Remade(NamedTuple):
    """What `rejoin` has done."""

    position: StreamID
    """Behind which the group goes on."""
    kept: set[bytes]
    """What this member had not settled and owns again."""
    mark: bytes | None
    made: bool = True
    """It was this member that created the group, and no other just before."""
    replaced: bool = False
    """It was another client that destroyed the group and created it again."""
    restored: int = 0
    """Entries registered again from the last note."""
    age_ms: int = 0
    """How old that note was."""


def rejoin(
    member: Member,
    *,
    unsettled: Sequence[tuple[bytes, int]],
    seen: bytes | None,
    mark: str,
    handed_back: Collection[bytes] = (),
    replaced: bool = False,
) -> Operation[Remade]:
    """Create a vanished group again and register in it what this member has not settled; or, if another
    client has ``replaced`` it, register that in the new one.

    ``unsettled`` are ids with their counts, ``seen`` the greatest id this member was ever given.
    ``handed_back`` are ids that this member gave back lately, to be delivered again: the note may still
    call them its own. The group goes on where the last note says (`noting`), and what that lists as pending is pending
    again: waiting retries, and what other workers own, the dead ones included. Without a note it
    begins just below the smallest unsettled id; with none, behind what was seen; and at the
    beginning, when the stream holds nothing so late (it was deleted and written again). The others
    learn of it by ``mark``, a new word of the caller's.
    """
    replies = yield [
        ["XINFO", "STREAM", member.stream],
        ["XINFO", "GROUPS", member.stream],
        ["TIME"],
        ["HMGET", group_backup_key(member.stream, member.group), *group_backup.FIELDS],
        ["HGET", _settings(member), MARK_FIELD],
    ]
    there = _group(replies[1], member.group)
    if there is not None and not replaced:
        kept = yield from _register(member, unsettled)
        return Remade(MIN_ID, kept, accepted(replies[4]), made=False)
    last = MIN_ID
    if not isinstance(replies[0], Refused):
        last = StreamID.parse(mapping(replies[0])[b"last-generated-id"])
    now = _now_ms(replies[2])
    note = (
        None if now is None or isinstance(replies[3], Refused) else group_backup.parse(replies[3])
    )
    if now is None or note is None or now - note.at_ms > BACKUP_VALID_MS or note.position > last:
        note = None
    position = _position(unsettled, seen) if note is None else note.position
    if position > last:
        position = MIN_ID
    rows: Sequence[group_backup.Row] = () if note is None else note.rows
    if note is None:
        rows = [
            group_backup.Row(one, 1, b"", 0)
            for one in handed_back
            if StreamID.parse(one) <= position
        ]
    again = _from_note(member, rows, unsettled, now or 0, handed_back)
    make = _create(member, position)
    if there is not None:
        if note is None or note.floor is None:
            position = max(position, StreamID.parse(there[b"last-delivered-id"]))
        make = ["XGROUP", "SETID", member.stream, member.group, str(position)]
    # One step: a worker that dies here has created nothing, or everything.
    replies = yield [
        ["MULTI"],
        ["HSET", _settings(member), MARK_FIELD, mark],
        [
            "HSET",
            group_backup_key(member.stream, member.group),
            group_backup.SIGNED,
            int(there is not None),
        ],
        make,
        *_announce(member, now),
        *again,
        ["EXEC"],
    ]
    _created(executed(replies)[2])
    kept = yield from _register(member, unsettled)
    restored = sum(command[0] == "XCLAIM" for command in again)
    age = 0 if note is None or now is None else now - note.at_ms
    known = mark.encode()
    return Remade(position, kept, known, restored=restored, age_ms=age, replaced=there is not None)


def _position(unsettled: Sequence[tuple[bytes, int]], seen: bytes | None) -> StreamID:
    """Where a group goes on of which nothing is noted."""
    if unsettled:
        return StreamID(*id_before(*min(StreamID.parse(one[0]) for one in unsettled)))
    return MIN_ID if seen is None else StreamID.parse(seen)


def _from_note(
    member: Member,
    rows: Sequence[group_backup.Row],
    unsettled: Sequence[tuple[bytes, int]],
    now: int,
    handed_back: Collection[bytes],
) -> list[Command]:
    """Register what is noted, for its former owners; what this member had of it, it knows better."""
    mine = {one[0] for one in unsettled}
    me = member.consumer.encode()
    commands: list[Command] = []
    released: dict[int, list[bytes]] = {}
    for row in rows:
        if row.id in mine or (row.owner == me and row.id not in handed_back):
            continue
        if row.owner == me:
            row = row._replace(owner=b"")
        owner, idle = row.owner, 0
        if row.owner == group_backup.PARKED:
            idle = max(0, member.claim_after_ms - max(0, row.ripe_ms - now))
        elif not row.owner and member.able.verbs:
            owner = me
            released.setdefault(max(0, row.ripe_ms - now), []).append(row.id)
        elif not row.owner:
            owner, idle = group_backup.PARKED, member.claim_after_ms
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
    """Whether another member made the group again, seen by a mark other than ``mark``; then what
    this member has not settled is registered as in `rejoin`. The mark now, and those ids."""
    replies = yield [["HGET", _settings(member), MARK_FIELD]]
    found: bytes | None = accepted(replies[0])
    if found == mark:
        return mark, set()
    return found, (yield from _register(member, unsettled))


def _register(member: Member, unsettled: Sequence[tuple[bytes, int]]) -> Operation[set[bytes]]:
    """Own these ids with these counts where nobody else does; the ids that succeeded.

    XCLAIM FORCE passes over an entry that is gone, and over one that another owns and keeps alive.
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


def _has_group(reply: Any, group: str) -> bool:
    """Whether XINFO GROUPS lists it; no stream, or no right to ask, lists none."""
    return _group(reply, group) is not None


def _group(reply: Any, name: str) -> dict[bytes, Any] | None:
    """The group of this name in the reply to XINFO GROUPS."""
    if isinstance(reply, Refused):
        return None
    return next((one for one in map(mapping, reply) if one[b"name"] == name.encode()), None)


def _now_ms(reply: Any) -> int | None:
    """The server's clock as TIME says it; None to a user who may not ask."""
    if isinstance(reply, Refused):
        return None
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


def _number(reply: Any) -> int:
    return 0 if reply is None or isinstance(reply, Refused) else int(reply)


def _announce(member: Member, now: int | None) -> list[Command]:
    """Announce ``claim_after`` unless a value is there, and ask which one is."""
    key = _settings(member)
    commands: list[Command] = [["HSETNX", key, CLAIM_AFTER_FIELD, member.claim_after_ms]]
    if now is not None:
        commands.append(["HSET", key, SEEN_FIELD, now])
    return [*commands, ["HGET", key, CLAIM_AFTER_FIELD]]


def _replace(member: Member, announced: int) -> Operation[None]:
    """Put this member's ``claim_after`` in the place of another's that no consumer uses any more.

    Raises `DeclarationError` while one does.
    """
    silence = announced + SEEN_MS
    words: list[Word] = [member.group, announced, member.claim_after_ms, silence, SEEN_MS]
    found: bytes = yield from _REPLACE.call([member.stream, _settings(member)], words)
    if not found:
        return
    raise DeclarationError(
        f"group {member.group!r} of stream {member.stream!r} claims after {announced} ms, this "
        f"consumer declares {member.claim_after_ms} ms. All workers of a group must agree: use that "
        f"value, or stop all workers of the group. ({found.decode('utf-8', 'replace')}; a new value "
        f"is accepted when no consumer was seen for {silence / 1000:g} s.)"
    )


def retire(member: Member) -> Operation[bool]:
    """Remove the consumer if it owns nothing. False when it still does."""
    if member.able.verbs:
        replies = yield [["XRETIRE", member.stream, member.group, member.consumer]]
        return bool(accepted(replies[0]))
    done = yield from RETIRE.call([member.stream], [member.group, member.consumer])
    return bool(done)
