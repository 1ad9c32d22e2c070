"""Reads only suspected poison messages, for the quarantine process.

Rule 1. The reader does not read new entries. It claims suspects by their ids in the hash of poison records,
        one at a time.
Rule 2. A suspect that another reader handed back for this one is claimed before it is due. Otherwise the other
        reader would claim it first, and hand it back again. Other suspects are claimed as by `MemberReader`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.common.names import bytes_of
from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Operation, Refused, Word, accepted
from headwater.groups.protocol.scripts import CLAIM_SUSPECT
from headwater.groups.reading.claiming import Delivered, Gone, claim_interval_ms
from headwater.groups.reading.poison import Record, forget, records
from headwater.messages.keys import PARKED_CONSUMER, related_key


class SuspectReader:
    """Reads suspects for one member."""

    late = False
    """A read never needs to return early, because it blocks for one claim interval at most."""

    def __init__(self, member: Member, *, gone: Gone) -> None:
        self.member = member
        self._gone = gone

    def expect(self, due: float) -> None:
        """Do nothing, because a read looks for suspects every claim interval."""

    def read(self, *, limit: int, now: float) -> Operation[list[Delivered]]:  # noqa: ARG002  # as Reader's
        """Return at most one suspect. Waits for it at most one claim interval.

        Raises `GroupVanished` if the group is gone.
        """
        member = self.member
        found = yield from records(member)
        marked = [(one, record) for one, record in found.items() if record.suspect]
        if member.able.verbs:
            claimed, settled = yield from self._by_verbs(marked)
        else:
            claimed, settled = yield from self._by_script(marked)
        yield from forget(member, settled)
        if not claimed:
            # A read of a key that is never written is a pause that CLIENT UNBLOCK can end.
            wait: list[Word] = ["XREAD", "BLOCK", claim_interval_ms(member), "STREAMS"]
            replies = yield [[*wait, related_key(member.stream, ":hw:probe"), "$"]]
            accepted(replies[0])
        return claimed

    # --- Redis and Valkey -------------------------------------------------------------------------

    def _by_script(
        self, marked: Sequence[tuple[bytes, Record]]
    ) -> Operation[tuple[list[Delivered], list[bytes]]]:
        if not marked:
            return [], []
        words: list[Word] = [word for one, record in marked for word in (one, record.left)]
        rows, gone, settled = yield from CLAIM_SUSPECT.call(
            self.member.claim_keys, [*self.member.who, *words]
        )
        if gone:
            self._gone(gone)
        parked = PARKED_CONSUMER.encode()
        found = [
            Delivered(one, fields, count + 1, True, owner not in (parked, b""))
            for one, fields, owner, _idle, count in rows
        ]
        return found, settled

    # --- Headwater --------------------------------------------------------------------------------

    def _by_verbs(
        self, marked: Sequence[tuple[bytes, Record]]
    ) -> Operation[tuple[list[Delivered], list[bytes]]]:
        if not marked:
            return [], []
        member = self.member
        replies = yield [
            ["XPENDING", member.stream, member.group, one, one, 1] for one, _ in marked
        ]
        settled = []
        for (entry_id, record), reply in zip(marked, replies, strict=True):
            rows = accepted(reply)
            if not rows:
                settled.append(entry_id)
                continue
            _id, owner, _idle, count = rows[0]
            if owner == bytes_of(member.consumer):
                continue
            entries = yield from self._claim(entry_id, count, ours=not owner and bool(record.left))
            if entries:
                silent = bool(owner)
                return [Delivered(entry_id, entries[0][1], count + 1, True, silent)], settled
        return [], settled

    def _claim(self, entry_id: bytes, count: int, *, ours: bool) -> Operation[list[Any]]:
        """Claim an entry if possible, and return it. With ``ours``, end its delay in the same step."""
        member = self.member
        head: list[Word] = ["XCLAIM", member.stream, member.group, member.consumer]
        if not ours:
            replies = yield [[*head, member.claim_after_ms, entry_id]]
            found: list[Any] = accepted(replies[0])
            return found
        release: list[Word] = ["XNACK", member.stream, member.group, "SILENT", "IDS", 1, entry_id]
        replies = yield [
            ["MULTI"],
            [*release, "RETRYCOUNT", count],
            [*head, 0, entry_id],
            ["EXEC"],
        ]
        outcome = accepted(replies[3])
        if isinstance(outcome[1], Refused):
            raise outcome[1]
        claimed: list[Any] = outcome[1]
        return claimed
