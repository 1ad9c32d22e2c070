"""Reports the entries of a group that wait for a limit of their consumer, as its workers wrote them.

Rule. A worker that parks an entry, or keeps it for longer than two seconds, adds it to the hash
      ``{stream}:hw:limited:<group>``. The worker that starts or settles the entry removes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Command, Operation, Refused, Word
from headwater.messages.keys import limited_key

KEPT_MS = 7 * 86_400_000


def note_limited(
    member: Member, waiting: Sequence[bytes], over: Sequence[bytes]
) -> Operation[None]:
    """Record for `explain` the entries that wait for a limit now, and those that no longer do (``over``). A refusal by
    the server is ignored."""
    key = limited_key(member.stream, member.group)
    commands: list[Command] = [["HDEL", key, *over]] if over else []
    if waiting:
        words: list[Word] = [word for one in waiting for word in (one, 1)]
        commands += [["HSET", key, *words], ["PEXPIRE", key, KEPT_MS]]
    yield commands


class Limited(NamedTuple):
    """Entries of a group that wait for a limit."""

    total: int = 0
    ids: frozenset[str] = frozenset()
    """Ids of the entries that wait, among those that were asked about."""


def read_limited(stream: str, group: str, ids: Sequence[str]) -> Operation[Limited]:
    """Return the number of entries that wait for a limit, and those of ``ids`` that do."""
    key = limited_key(stream, group)
    asks: list[Command] = [["HMGET", key, *ids]] if ids else []
    replies = yield [["HLEN", key], *asks]
    if any(isinstance(reply, Refused) for reply in replies):
        return Limited()
    values = replies[1] if ids else []
    found = [one for one, value in zip(ids, values, strict=True) if value is not None]
    return Limited(int(replies[0]), frozenset(found))
