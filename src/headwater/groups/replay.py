"""Replaying dead letters: the entry goes back to the group that could not handle it, and to no other.

Rule 1. An entry that its stream still holds becomes pending in its own group again, with no delivery
        counted. Other groups, which have handled it, do not see it.
Rule 2. An entry whose stream or group no longer has it can only be added again, which every group of
        the stream sees. That is done only when there is no other group, or when the caller allows it.
Rule 3. The record is removed in the same step, so two operators never replay one record twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from headwater.groups.operation import Operation, Refused, Script, Word, accepted
from headwater.groups.settling import LUA_WORDS
from headwater.messages import PARKED_CONSUMER, DeadLetter

REPLAY = Script(
    """
-- KEYS stream and, unless it lies in another slot, dead-letter stream. ARGV group, entry's id ('' if
-- unknown), record's id, '1' if other groups may see the entry, parking consumer, the fields.
local stream, dead = KEYS[1], KEYS[2]
local group, id, record, all, parked = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]
if dead and not redis.call('XRANGE', dead, record, record)[1] then return {'gone'} end
local last, others = nil, 0
if redis.call('EXISTS', stream) == 1 then
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local about = {}
    for i = 1, #info, 2 do about[info[i]] = info[i + 1] end
    if about['name'] == group then last = about['last-delivered-id'] else others = others + 1 end
  end
end
local outcome
if last and id ~= '' and redis.call('XRANGE', stream, id, id)[1] then
  if redis.call('XPENDING', stream, group, id, id, 1)[1]
     or redis.call('XRANGE', stream, '(' .. last, id, 'COUNT', 1)[1] then
    outcome = {'coming', id}
  else
    redis.call('XCLAIM', stream, group, parked, 0, id,
               'TIME', 0, 'RETRYCOUNT', 0, 'FORCE', 'JUSTID')
    outcome = {'returned', id}
  end
elseif others > 0 and not all then
  return {last and 'others' or 'nogroup', others}
elseif #ARGV < 6 then
  return {'large'}
else
  outcome = {'added', redis.call('XADD', stream, '*', unpack(ARGV, 6))}
end
if dead then redis.call('XDEL', dead, record) end
return outcome
"""
)


class ReplayResult(StrEnum):
    """What became of a record that was to be replayed."""

    RETURNED = "returned"
    """The entry is pending in its group again."""
    ADDED = "added"
    """The entry was added again, with a new id: it or its group was gone from the stream."""
    COMING = "coming"
    """The group is to get the entry anyway (it is pending or undelivered); the record was removed."""
    GONE = "gone"
    """Nothing was done: another operator has replayed or dropped the record."""
    REFUSED = "refused"
    """Nothing was done; `Replayed.reason` says why."""


DONE = frozenset({ReplayResult.RETURNED, ReplayResult.ADDED, ReplayResult.COMING})
"""The results after which the record is gone and its group handles the entry."""


class Replayed(NamedTuple):
    """One record and what became of it. ``entry_id`` is empty when nothing was done."""

    letter: DeadLetter
    how: ReplayResult
    entry_id: str = ""
    reason: str = ""


def replay(
    destination: str, letters: Sequence[DeadLetter], *, all_groups: bool = False
) -> Operation[list[Replayed]]:
    """Give the entries of these records to their groups again; one outcome each, in order.

    ``destination`` is the dead-letter stream. With ``all_groups`` entries that are gone from their
    streams are added again although other groups see them too.
    """
    outcomes = []
    for letter in letters:
        if letter.stream and letter.fields:
            outcomes.append((yield from _replay(destination, letter, all_groups=all_groups)))
        else:
            reason = (
                "it does not say what entry of which stream it was; look at it with `headwater "
                "dead show` and drop it"
            )
            outcomes.append(Replayed(letter, ReplayResult.REFUSED, reason=reason))
    return outcomes


def _replay(destination: str, letter: DeadLetter, *, all_groups: bool) -> Operation[Replayed]:
    fields: list[Word] = [part for pair in letter.fields for part in pair]
    about: list[Word] = [letter.group, letter.entry_id, letter.id, int(all_groups), PARKED_CONSUMER]
    words = about if len(fields) > LUA_WORDS else [*about, *fields]
    try:
        reply = yield from REPLAY.call([letter.stream, destination], words)
    except Refused as error:
        if error.code != "CROSSSLOT":
            raise
        # A dead-letter stream in another slot of a cluster: first the entry, then the record.
        reply = yield from REPLAY.call([letter.stream], words)
        if reply[0].decode() in DONE:
            accepted((yield [["XDEL", destination, letter.id]])[0])
    if reply[0] == b"large":
        # Lua cannot pass so many words to a command; here two operators at a time would both add it.
        replies = yield [["XADD", letter.stream, "*", *fields], ["XDEL", destination, letter.id]]
        reply = [b"added", accepted(replies[0])]
    return _outcome(letter, reply[0], reply[1:])


def _outcome(letter: DeadLetter, word: bytes, rest: Sequence[bytes | int]) -> Replayed:
    if word.decode() in DONE:
        entry_id = rest[0]
        assert isinstance(entry_id, bytes), "the script returns an id with these words"
        return Replayed(letter, ReplayResult(word.decode()), entry_id.decode())
    if word == b"gone":
        return Replayed(letter, ReplayResult.GONE)
    lacks = (
        f"stream {letter.stream!r} has no group {letter.group!r} any more"
        if word == b"nogroup"
        else f"its entry {letter.entry_id} is gone from {letter.stream!r}"
    )
    others = "another group" if rest[0] == 1 else f"{rest[0]!s} other groups"
    reason = f"{lacks}, and adding it again would reach {others}: allow that with --all-groups"
    return Replayed(letter, ReplayResult.REFUSED, reason=reason)
