"""Operations of the one process that reads for an ordered group: its name lease, and entries by id.

Rule 1. The *reader's key* `{stream}:hw:reader:<group>` names the reader, and expires if it is not renewed.
        Only this reader reads and claims.
Rule 2. Entries are claimed by id, so that the caller decides which entry is next. A former reader may have let
        another one read while its own handlers still run. Its entries are claimed only after they were not
        renewed for ``claim_after``. If the former reader dies, its key expires at about that time.
Rule 3. Reading and claiming are transactions that fail if the reader's key has changed or expired since it
        was checked. So a process that was suspended in between gets nothing. The transactions use plain commands,
        the same on every server, and need one connection for all their steps.
Rule 4. An entry that is not pending is settled, unless the group will read it again because a failover has lost
        its delivery, or an operator has moved the group back. Then the reader begins again, as if it had lost
        the key. If it did not, the next entry of the line would begin before this entry.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

from headwater.common.model import StreamID
from headwater.common.names import bytes_of
from headwater.groups.membership.member import Member
from headwater.groups.protocol.content import CONTENT_BYTES, ContentPages
from headwater.groups.protocol.operation import (
    Command,
    GroupVanished,
    Operation,
    Refused,
    accepted,
    executed,
    group_row,
    score_ms,
    server_ms,
)
from headwater.groups.reading.claiming import Delivered, Gone, claim_interval_ms, drop_gone
from headwater.messages.keys import PARKED_CONSUMER, delays_key, group_reader_key

PAGE = 500
"""Maximum number of pending entries that one step examines or claims."""

_PARKED = PARKED_CONSUMER.encode()


class Claimed(NamedTuple):
    """The result of claiming entries by id."""

    found: list[Delivered]
    waiting: dict[bytes, int]
    """Entries that are not due → milliseconds until the next attempt."""
    settled: list[bytes]
    """Entries that are no longer pending, or gone from the stream."""


class NotTheReader(Exception):
    """Raised if this member does not have the reader's key, or if the group was moved back. Nothing was done."""


def take_reader_key(member: Member, *, ttl_ms: int) -> Operation[bool]:
    """Become the reader if the group has none. Return whether this member is the reader now."""
    key = group_reader_key(member.stream, member.group)
    replies = yield [["SET", key, member.consumer, "NX", "PX", ttl_ms], ["GET", key]]
    accepted(replies[0])
    return bool(accepted(replies[1]) == bytes_of(member.consumer))


def is_reader(member: Member) -> Operation[bool]:
    """Return whether the reader's key names this member."""
    replies = yield [["GET", group_reader_key(member.stream, member.group)]]
    return bool(accepted(replies[0]) == bytes_of(member.consumer))


def keep_reader_key(member: Member, *, ttl_ms: int) -> Operation[bool]:
    """Renew the reader's key. Return False if it is gone or names another consumer.

    A member that has lost the key may renew it once for the new reader. This is harmless.
    """
    key = group_reader_key(member.stream, member.group)
    replies = yield [["MULTI"], ["GET", key], ["PEXPIRE", key, ttl_ms], ["EXEC"]]
    name, _prolonged = [accepted(one) for one in executed(replies)]
    return bool(name == bytes_of(member.consumer))


def release_reader_key(member: Member, *, ttl_ms: int) -> Operation[None]:
    """Delete the reader's key, so that another process can be the reader immediately. The caller must have renewed
    the key in time."""
    key = group_reader_key(member.stream, member.group)
    replies = yield [["GETDEL", key]]
    name = accepted(replies[0])
    if name is not None and name != bytes_of(member.consumer):
        yield [["SET", key, name, "NX", "PX", ttl_ms]]  # another member had the key: restore it


def pending_page(
    member: Member, known: Container[bytes], *, start: bytes, gone: Gone
) -> Operation[tuple[list[tuple[bytes, list[bytes]]], bytes | None]]:
    """Return a page of pending entries that are not ``known``, with their fields, in id order from ``start``, and
    the start of the next page, None after the last one. A page ends early if its entries are large."""
    replies = yield [["XPENDING", member.stream, member.group, start, b"+", PAGE]]
    rows = accepted(replies[0])
    unknown = [row[0] for row in rows if row[0] not in known]
    found: list[tuple[bytes, list[bytes]]] = []
    pages, size = ContentPages(), 0
    for ids in pages.of(unknown):
        replies = yield [["XRANGE", member.stream, one, one] for one in ids]
        entries = [accepted(reply) for reply in replies]
        there = [(one, entry[0][1]) for one, entry in zip(ids, entries, strict=True) if entry]
        lost = [one for one, entry in zip(ids, entries, strict=True) if not entry]
        yield from drop_gone(member, lost, gone)
        size += pages.read([fields for _id, fields in there])
        found += there
        if size >= CONTENT_BYTES and ids[-1] != unknown[-1]:
            return found, b"(" + ids[-1]
    return found, (b"(" + rows[-1][0] if len(rows) == PAGE else None)


def read_new(member: Member, *, limit: int) -> Operation[list[Delivered]]:
    """Return up to ``limit`` new entries that are available now. Raises `NotTheReader` if this member does
    not have the reader's key.

    Returns an empty list if the key was renewed in between.
    """
    yield from _watch(member)
    read: Command = ["XREADGROUP", "GROUP", member.group, member.consumer, "COUNT", limit]
    replies = yield from _transaction([[*read, "STREAMS", member.stream, ">"]])
    streams = None if replies is None else accepted(replies[0])
    if not streams:
        return []
    entries = next(iter(streams.values())) if isinstance(streams, dict) else streams[0][1]
    return [
        Delivered(entry[0], entry[1], 1, False, False) for entry in entries if entry[1] is not None
    ]


def last_delivered(member: Member) -> Operation[bytes]:
    """Return the group's last-delivered id. Raises `GroupVanished` if the group is gone."""
    replies = yield [["XINFO", "GROUPS", member.stream]]
    mine = group_row(accepted(replies[0]), member.group)
    if mine is None:
        raise GroupVanished(f"NOGROUP no group {member.group!r} of {member.stream!r}", "NOGROUP")
    found: bytes = mine[b"last-delivered-id"]
    return found


def wait_for_new(member: Member, seen: bytes, *, block_ms: int) -> Operation[None]:
    """Wait until the stream has an entry after ``seen``, without delivering it."""
    replies = yield [["XREAD", "BLOCK", block_ms, "COUNT", 1, "STREAMS", member.stream, seen]]
    accepted(replies[0])


def claim(member: Member, ids: Sequence[bytes], *, gone: Gone) -> Operation[Claimed]:
    """Claim those of the pending entries ``ids`` that are due, and that no other consumer renews. Raises
    `NotTheReader` if this member does not have the reader's key, or the group will read one of them again. Claims
    nothing if the key was renewed after it was checked."""
    yield from _watch(member)
    rows, waiting, settled = yield from _look(member, ids)
    if settled and StreamID.parse(settled[-1]) > StreamID.parse(
        (yield from last_delivered(member))
    ):
        yield [["UNWATCH"]]
        raise NotTheReader
    claims: list[Command] = [
        ["XCLAIM", member.stream, member.group, member.consumer, _lease_ms(member, row), row[0]]
        for row in rows
    ]
    parked = [row[0] for row in rows if row[1] == _PARKED]
    if parked and not member.able.verbs:
        claims.append(["ZREM", delays_key(member.stream, member.group), *parked])
    answers = yield from _transaction(claims)
    found: list[Delivered] = []
    missed: list[bytes] = []
    for row, answer in zip(rows, answers or (), strict=False):
        entries = accepted(answer)
        if entries and entries[0] is not None:
            silent = row[1] not in (_PARKED, b"")
            found.append(Delivered(row[0], entries[0][1], row[3] + 1, True, silent))
        else:
            missed.append(row[0])
    settled += yield from _missed(member, missed, waiting, gone)
    return Claimed(found, waiting, settled)


def _watch(member: Member) -> Operation[None]:
    """Watch the reader's key: the next transaction fails if it changes. Raises `NotTheReader`."""
    key = group_reader_key(member.stream, member.group)
    replies = yield [["WATCH", key], ["GET", key]]
    accepted(replies[0])
    if accepted(replies[1]) != bytes_of(member.consumer):
        yield [["UNWATCH"]]
        raise NotTheReader


def _transaction(commands: Sequence[Command]) -> Operation[list[Any] | None]:
    """Run the commands in a transaction. Return the replies, errors included, or None if the key has changed
    since `_watch`."""
    if not commands:
        yield [["UNWATCH"]]
        return []
    replies = yield [["MULTI"], *commands, ["EXEC"]]
    return None if replies[-1] is None else executed(replies)


def _look(
    member: Member, ids: Sequence[bytes]
) -> Operation[tuple[list[Any], dict[bytes, int], list[bytes]]]:
    """Return the XPENDING rows of due entries, the milliseconds until each of the others is due, and the ids of
    entries that are no longer pending."""
    commands: list[Command] = [
        ["XPENDING", member.stream, member.group, one, one, 1] for one in ids
    ]
    if member.able.verbs:
        commands.append(["XDELAYED", member.stream, member.group, ids[0], ids[-1], PAGE])
    else:
        commands += [["ZMSCORE", delays_key(member.stream, member.group), *ids], ["TIME"]]
    replies = yield commands
    rows, settled, waiting = [], [], {}
    due = _due(member, ids, replies[len(ids) :])
    for one, reply in zip(ids, replies, strict=False):
        row = next(iter(accepted(reply)), None)
        if row is None:
            settled.append(one)
            continue
        left = due(row)
        if left <= 0 and (lease := _lease_ms(member, row)):
            left = min(lease - int(row[2]), claim_interval_ms(member))
        if left > 0:
            waiting[one] = left
        else:
            rows.append(row)
    return rows, waiting, settled


def _lease_ms(member: Member, row: Any) -> int:
    """Return the lease of an XPENDING row's entry, in milliseconds; 0 if no other consumer owns it."""
    return 0 if row[1] in (b"", _PARKED, bytes_of(member.consumer)) else member.claim_after_ms


def _due(member: Member, ids: Sequence[bytes], replies: Sequence[Any]) -> Callable[[Any], int]:
    """Return a function that takes an XPENDING row and returns the milliseconds until its entry is due."""
    if member.able.verbs:
        # Without XDELAYED, the claim skips entries that are not due: see `_missed`.
        delayed = [] if isinstance(replies[0], Refused) else replies[0]
        times = {row[0]: int(row[1]) for row in delayed}
        return lambda row: times.get(row[0], 0)
    now = server_ms(replies[1])
    scores = dict(zip(ids, accepted(replies[0]), strict=True))

    def left(row: Any) -> int:
        if row[1] != _PARKED:
            return 0
        score = scores[row[0]]
        if score is None:
            return max(0, member.claim_after_ms - int(row[2]))
        return max(0, score_ms(score) - now)

    return left


def _missed(
    member: Member, ids: Sequence[bytes], waiting: dict[bytes, int], gone: Gone
) -> Operation[list[bytes]]:
    """Return those pending entries that a claim has skipped because they are gone from the stream. The other
    entries that it skipped are not due, and are added to ``waiting``."""
    if not ids:
        return []
    replies = yield [["XRANGE", member.stream, one, one] for one in ids]
    lost = []
    for one, reply in zip(ids, replies, strict=True):
        if accepted(reply):
            waiting[one] = claim_interval_ms(member)
        else:
            lost.append(one)
    if lost:
        gone(lost)  # XCLAIM has dropped them
    return lost
