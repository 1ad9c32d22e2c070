"""Notes every two seconds how far a group is, so that nothing is lost when somebody destroys it.

Rule 1. One worker of a group notes: the one that finds the last note two seconds old.
Rule 2. A group that was destroyed and created again under its workers has lost the consumer ``hw.sign``,
        which the worker that notes creates where it is missing.
Rule 3. The same round shows the others that a worker of the group lives (`member.SEEN_FIELD`), and
        compares the server's clock with that of the last note.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headwater.groups.group_backup import FIELDS, MOST, PARKED, SIGNED, GroupBackup, Row, parse
from headwater.groups.member import BACKUP_VALID_MS, SEEN_FIELD, Member
from headwater.groups.operation import Command, Operation, Refused, accepted, executed, mapping
from headwater.messages import SIGN_CONSUMER, group_backup_key, group_settings_key
from headwater.model import StreamID

BACKUP_SECONDS: Final = 2.0

SET_BACK_MS: Final = 1_000
"""A clock that is so much behind the last note was set back."""


SAME_MS: Final = 100
"""Due times that are so near to what was noted are the same: TIME and idle times are read one after the
other."""


class Round(NamedTuple):
    """What a round has done."""

    written: bool
    set_back_ms: int
    """How far the server's clock was set back since the last note; 0 if it was not."""
    replaced: bool = False
    """The group is another than the one that was noted: nothing is pending in it yet. The note stays as
    it was."""


class BackupWriter:
    """Notes for one member; remembers what it noted last."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._noted: tuple[Any, ...] = ()
        self._wrote_at = 0
        self._many = False
        self._ripe: dict[bytes, int] = {}

    def round(self) -> Operation[Round]:
        """Note the group, unless another worker has just done so."""
        member = self.member
        key = group_backup_key(member.stream, member.group)
        replies = yield [["TIME"], ["HMGET", key, "at", SIGNED]]
        seconds, micros = accepted(replies[0])
        now = int(seconds) * 1000 + int(micros) // 1000
        at, signed = accepted(replies[1])
        before = int(at or 0)
        set_back = before - now if before - now > SET_BACK_MS else 0
        if not set_back and now - before < BACKUP_SECONDS * 900:
            return Round(written=False, set_back_ms=0)
        note = yield from self._look(now)
        if note is None:
            return Round(written=False, set_back_ms=set_back)
        made = yield from self._sign()
        known = made and signed == b"1" and now - before < BACKUP_VALID_MS
        if known and (yield from self._is_new(note.last)):
            return Round(written=False, set_back_ms=set_back, replaced=True)
        settings = group_settings_key(member.stream, member.group)
        commands: list[Command] = [["HSET", settings, SEEN_FIELD, now]]
        is_signed = int(made is not None)
        content = (note.last, note.floor, note.text(), is_signed)
        if content == self._noted and before == self._wrote_at:
            commands.append(["HSET", key, "at", now])
        else:
            commands.append(["HSET", key, *note.words(), SIGNED, is_signed])
        for reply in (yield commands):
            accepted(reply)
        self._noted, self._wrote_at = content, now
        return Round(written=True, set_back_ms=set_back)

    def _sign(self) -> Operation[bool | None]:
        """Create the consumer that tells this group from a later one; whether it was missing. None to a
        user who may not create it."""
        member = self.member
        words: Command = ["XGROUP", "CREATECONSUMER", member.stream, member.group, SIGN_CONSUMER]
        (reply,) = yield [words]
        return None if isinstance(reply, Refused) else bool(reply)

    def _is_new(self, last: StreamID) -> Operation[bool]:
        """Whether something that was noted is not so any more: nothing is pending of what was, or the
        group, which is at ``last``, went back. Else somebody removed the consumer only."""
        member = self.member
        (values,) = yield [["HMGET", group_backup_key(member.stream, member.group), *FIELDS]]
        note = parse(accepted(values))
        if note is None:
            return False
        (left,) = yield [["XPENDING", member.stream, member.group, "-", str(note.last), 1]]
        were_pending = bool(note.rows) or note.floor is not None
        return not accepted(left) and (were_pending or last < note.last)

    def _look(self, now: int) -> Operation[GroupBackup | None]:
        """The group as it is; None when it is gone."""
        member = self.member
        rows = 1 if self._many else MOST + 1
        delays: list[Command] = []
        if member.able.verbs:
            delays = [["XDELAYED", member.stream, member.group, "-", "+", rows]]
        replies = yield [
            ["MULTI"],
            ["XINFO", "GROUPS", member.stream],
            ["XPENDING", member.stream, member.group],
            ["XPENDING", member.stream, member.group, "-", "+", rows],
            *delays,
            ["EXEC"],
        ]
        groups, summary, pending, *delayed = executed(replies)
        found = [mapping(one) for one in accepted(groups)]
        mine = [one for one in found if one[b"name"] == member.group.encode()]
        if not mine:
            return None
        last = StreamID.parse(mine[0][b"last-delivered-id"])
        count = accepted(summary)[0]
        listed = accepted(pending)
        was_many, self._many = self._many, count > MOST
        if count > MOST:
            return GroupBackup(now, last, StreamID.parse(listed[0][0]), [])
        if was_many:
            return (yield from self._look(now))
        due = {row[0]: now + row[1] for reply in delayed for row in accepted(reply)}
        found_rows = [self._row(one, now, due) for one in listed]
        self._ripe = {row.id: row.ripe_ms for row in found_rows if row.ripe_ms}
        return GroupBackup(now, last, None, found_rows)

    def _row(self, reply: Any, now: int, due: dict[bytes, int]) -> Row:
        entry_id, owner, idle, count = reply
        ripe = due.get(entry_id, 0)
        if owner == PARKED:
            ripe = now + self.member.claim_after_ms - idle
        before = self._ripe.get(entry_id, 0)
        if abs(ripe - before) < SAME_MS:
            ripe = before
        return Row(entry_id, count, owner, ripe)
