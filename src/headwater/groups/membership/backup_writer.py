"""Writes the backup of a group every two seconds, so that nothing is lost if another client destroys the group.

Rule 1. One worker of a group writes the backup: the one that finds the last backup two seconds old. Workers that
        start together may all write one. A worker that then sees a backup newer than its own leaves the writing to
        others, until a backup is overdue (`TAKEN_OVER_MS`). An idle group writes one field every two seconds.
Rule 2. The writer creates the consumer ``hw.sign`` if it is missing. If the consumer is missing later, another
        client has removed it, or has destroyed the group and created it again (`BackupWriter._is_new`).
Rule 3. While nothing is pending and XINFO reports the group unchanged, its entries are not read, and only the time is
        written. One script writes it for many such groups (`write_quiet`).
Rule 4. The time of the backup shows that a worker of the group runs, as `member.SEEN_FIELD` does. Each round compares
        the server's clock with this time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from headwater.common.model import StreamID
from headwater.groups.membership.group_backup import (
    FIELDS,
    MOST,
    PARKED,
    SIGNED,
    GroupBackup,
    Row,
    parse,
)
from headwater.groups.membership.member import BACKUP_VALID_MS, Member
from headwater.groups.protocol.operation import (
    Command,
    Operation,
    Refused,
    Script,
    Word,
    accepted,
    executed,
    group_row,
    server_ms,
    whole_number,
)
from headwater.messages.keys import SIGN_CONSUMER, group_backup_key

BACKUP_SECONDS: Final = 2.0

TAKEN_OVER_MS: Final = 2_400
"""Age of a backup, in milliseconds, at which its writer counts as gone, so that any worker writes the next one."""

SET_BACK_MS: Final = 1_000
"""Maximum milliseconds by which a server's clock may be behind the last backup. With more, it was set back."""


SAME_MS: Final = 100
"""Difference in milliseconds up to which a due time is the same as in the last backup: TIME and idle times are
read one after the other."""


class Round(NamedTuple):
    """The result of a round."""

    written: bool
    """True if this round has written the backup."""
    set_back_ms: int
    """Milliseconds by which the server's clock was set back since the last backup; 0 if it was not."""
    replaced: bool = False
    """True if another client has destroyed the group and created it again, without its pending entries. The
    backup was not overwritten then."""
    again_ms: int = 2_000
    """Milliseconds until the next round."""


class BackupWriter:
    """Writes the backups for one member, and remembers the last one."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._content: tuple[Any, ...] = ()
        self._wrote_at = 0
        self._just_wrote = False
        self._many = False
        self._quiet: dict[bytes, Any] | None = None
        """The group's row of XINFO GROUPS at the last backup; None if something was pending then."""
        self._ripe: dict[bytes, int] = {}

    def is_quiet(self, now: int) -> bool:
        """Return whether the next round, at the server's time ``now``, might write only the time."""
        since = now - self._wrote_at
        return self._quiet is not None and BACKUP_SECONDS * 900 <= since < BACKUP_VALID_MS

    def quiet_words(self) -> list[Word]:
        """Return the group's name, the time of its backup, and its row of XINFO GROUPS, for `write_quiet`."""
        assert self._quiet is not None, "only of a quiet group"
        said = [word for pair in self._quiet.items() for word in pair]
        return [self.member.group, self._wrote_at, b"\0".join(map(_as_lua, said))]

    def wrote(self, now: int) -> None:
        """Record that `write_quiet` has written the time of the backup. The next round has nothing to do."""
        self._wrote_at = now
        self._just_wrote = True

    def round(self, now: int | None = None) -> Operation[Round]:
        """Write the group's backup, unless another worker has just done so. ``now`` is the server's time, None
        to read it."""
        member = self.member
        key = group_backup_key(member.stream, member.group)
        if now is None:
            now = server_ms((yield [["TIME"]])[0])
        if self._just_wrote:
            self._just_wrote = False
            return Round(written=True, set_back_ms=0)
        replies = yield [["HMGET", key, "at", SIGNED], ["XINFO", "GROUPS", member.stream]]
        at, signed = accepted(replies[0])
        before = whole_number(at) or 0
        set_back = before - now if before - now > SET_BACK_MS else 0
        others = 0 < self._wrote_at < before
        if not set_back and now - before < (TAKEN_OVER_MS if others else BACKUP_SECONDS * 900):
            return Round(
                written=False, set_back_ms=0, again_ms=TAKEN_OVER_MS - max(0, now - before)
            )
        quiet = self._quiet is not None and before == self._wrote_at and signed == b"1"
        if quiet and group_row(replies[1], member.group) == self._quiet:
            accepted((yield [["HSET", key, "at", now]])[0])
            self._wrote_at = now
            return Round(written=True, set_back_ms=set_back)
        backup = yield from self._read(now)
        if backup is None:
            return Round(written=False, set_back_ms=set_back)
        made = yield from self._sign()
        known = made and signed == b"1" and now - before < BACKUP_VALID_MS
        if known and (yield from self._is_new(backup.last)):
            return Round(written=False, set_back_ms=set_back, replaced=True)
        is_signed = int(made is not None)
        content = (backup.last, backup.floor, backup.text(), is_signed)
        if content == self._content and before == self._wrote_at:
            replies = yield [["HSET", key, "at", now]]
        else:
            replies = yield [["HSET", key, *backup.words(), SIGNED, is_signed]]
        accepted(replies[0])
        self._content, self._wrote_at = content, now
        return Round(written=True, set_back_ms=set_back)

    def _sign(self) -> Operation[bool | None]:
        """Create the consumer that distinguishes this group from a later one of the same name. Return whether
        it was missing, or None if an ACL rule forbids creating it."""
        member = self.member
        words: Command = ["XGROUP", "CREATECONSUMER", member.stream, member.group, SIGN_CONSUMER]
        (reply,) = yield [words]
        return None if isinstance(reply, Refused) else bool(reply)

    def _is_new(self, last: StreamID) -> Operation[bool]:
        """Return whether the group is a new one: nothing up to the backup's last id is pending, although the
        backup has pending entries, or a greater last id than ``last``. Otherwise only the consumer was removed."""
        member = self.member
        (values,) = yield [["HMGET", group_backup_key(member.stream, member.group), *FIELDS]]
        backup = parse(accepted(values))
        if backup is None:
            return False
        (left,) = yield [["XPENDING", member.stream, member.group, "-", str(backup.last), 1]]
        were_pending = bool(backup.rows) or backup.floor is not None
        return not accepted(left) and (were_pending or last < backup.last)

    def _read(self, now: int) -> Operation[GroupBackup | None]:
        """Return the current state of the group, or None if the group is gone."""
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
        mine = group_row(accepted(groups), member.group)
        if mine is None:
            return None
        last = StreamID.parse(mine[b"last-delivered-id"])
        count = accepted(summary)[0]
        self._quiet = None if count else mine
        listed = accepted(pending)
        was_many, self._many = self._many, count > MOST
        if count > MOST:
            return GroupBackup(now, last, StreamID.parse(listed[0][0]), [])
        if was_many:
            return (yield from self._read(now))
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


_QUIET = Script(
    """
-- KEYS for each group its stream and its backup. ARGV the time, and for each group its name, the time of the backup, and
-- its row of XINFO GROUPS. Writes the time into the backups of unchanged groups. Returns the numbers of the others.
local others = {}
for n = 1, #KEYS / 2 do
  local backup, name, quiet = KEYS[2 * n], ARGV[3 * n - 1], false
  local last = redis.pcall('HMGET', backup, 'at', 'signed')
  local groups = redis.pcall('XINFO', 'GROUPS', KEYS[2 * n - 1])
  if not last.err and not groups.err and last[1] == ARGV[3 * n] and last[2] == '1' then
    for _, row in ipairs(groups) do
      local words = {}
      for i = 1, #row do words[i] = tostring(row[i]) end
      quiet = quiet or (words[2] == name and table.concat(words, '\\0') == ARGV[3 * n + 1])
    end
  end
  if quiet then redis.call('HSET', backup, 'at', ARGV[1]) else others[#others + 1] = n end
end
return others
"""
)


def write_quiet(writers: Sequence[BackupWriter], now: int) -> Operation[None]:
    """Write the time ``now`` into the backup of each of these groups that is still quiet. All groups are on one
    server. Raises `Refused` if the user may not run the script."""
    keys: list[Word] = []
    words: list[Word] = [now]
    for one in writers:
        keys += [one.member.stream, group_backup_key(one.member.stream, one.member.group)]
        words += one.quiet_words()
    others = set((yield from _QUIET.call(keys, words)))
    for number, one in enumerate(writers, 1):
        if number not in others:
            one.wrote(now)


def _as_lua(word: object) -> bytes:
    """Return a word of a reply in the form that Lua's tostring gives it."""
    if isinstance(word, bytes):
        return word
    return b"false" if word is None else str(word).encode()
