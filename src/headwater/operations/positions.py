"""Moves a group's position and trims a stream, each with a preview of the entries it affects.

Rule. The preview and the change are two steps. Entries that are added or read between them are not in the preview.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from headwater.common.model import StreamID, id_after
from headwater.groups.protocol.capabilities import probe
from headwater.groups.protocol.operation import Operation, accepted
from headwater.groups.reports.pending import GroupInfo, groups
from headwater.operations.records import Action, record

PAGE = 1_000


class ResetPreview(NamedTuple):
    """Preview of a new position of a group."""

    stream: str
    group: str
    before: str
    """The last id that counts as delivered now."""
    after: str
    """The last id that counts as delivered afterwards."""
    again: int
    """Number of entries that will be delivered again."""
    skipped: int
    """Number of unread entries that will not be delivered."""
    pending: int
    """Number of pending entries of the group. They stay pending, even if they are delivered again."""


class TrimmedGroup(NamedTuple):
    """The entries that one group loses in a trim."""

    group: str
    unread: int
    """Number of removed entries that the group has not read."""
    pending: int
    """Number of removed entries that are pending. They cannot be handled afterwards."""


class TrimPreview(NamedTuple):
    """Preview of a trim: the entries that it removes."""

    stream: str
    removed: int
    minid: str
    """The id before which all entries are removed."""
    groups: Sequence[TrimmedGroup]


def reset_to(stream: str, group: str, target: str) -> Operation[ResetPreview]:
    """Preview the move of a group's position to ``target``: an id that then counts as delivered, ``0`` or ``$``.

    Raises `HeadwaterError` if the stream or the group does not exist.
    """
    (of,) = yield from groups(stream, group)
    if target == "$":
        replies = yield [["XREVRANGE", stream, "+", "-", "COUNT", 1]]
        newest = accepted(replies[0])
        target = newest[0][0].decode() if newest else "0-0"
    return (yield from _reset(of, "0-0" if target == "0" else target))


def reset_back(stream: str, group: str, entries: int) -> Operation[ResetPreview]:
    """Preview the move of a group's position back by ``entries`` entries."""
    (of,) = yield from groups(stream, group)
    last = of.about[b"last-delivered-id"].decode()
    found = yield from entry_before(stream, last, entries + 1, verbs=of.able.verbs)
    return (yield from _reset(of, found or "0-0"))


def set_position(reset: ResetPreview) -> Operation[None]:
    """Set the position that was previewed."""
    replies = yield [["XGROUP", "SETID", reset.stream, reset.group, reset.after]]
    accepted(replies[0])
    moved = reset.again + reset.skipped
    yield from record(
        reset.stream, Action.RESET, [], group=reset.group, to=reset.after, count=moved
    )


def _reset(of: GroupInfo, after: str) -> Operation[ResetPreview]:
    before = of.about[b"last-delivered-id"].decode()
    again = skipped = 0
    if StreamID.parse(after) < StreamID.parse(before):
        again = yield from count_between(of.stream, f"({after}", before, verbs=of.able.verbs)
    elif after != before:  # servers refuse a range that begins after the last possible id
        skipped = yield from count_between(of.stream, f"({before}", after, verbs=of.able.verbs)
    pending = int(of.about[b"pending"])
    return ResetPreview(of.stream, of.name, before, after, again, skipped, pending)


def trim_to_length(stream: str, length: int) -> Operation[TrimPreview]:
    """Preview a trim to the last ``length`` entries. Raises `HeadwaterError` if the stream does not exist."""
    found = yield from groups(stream)
    able = yield from probe()
    replies = yield [["XLEN", stream]]
    removed = int(accepted(replies[0])) - length
    if removed <= 0:
        return TrimPreview(stream, 0, "0-0", [])
    first = yield from entry_number(stream, removed + 1, verbs=able.verbs)
    if first is None:  # the trim removes all entries
        replies = yield [["XREVRANGE", stream, "+", "-", "COUNT", 1]]
        newest = accepted(replies[0])
        if not newest:
            return TrimPreview(stream, 0, "0-0", [])  # the stream has been deleted
        first = str(StreamID(*id_after(*StreamID.parse(newest[0][0]))))
    return (yield from _trim(stream, first, found))


def trim_before(stream: str, minid: str) -> Operation[TrimPreview]:
    """Preview a trim of the entries before ``minid``. Raises `HeadwaterError` if the stream does not exist."""
    found = yield from groups(stream)
    return (yield from _trim(stream, minid, found))


def trim(preview: TrimPreview) -> Operation[int]:
    """Trim as previewed. Return the number of entries removed."""
    replies = yield [["XTRIM", preview.stream, "MINID", "=", preview.minid]]
    removed = int(accepted(replies[0]))
    yield from record(preview.stream, Action.TRIM, [], to=preview.minid, count=removed)
    return removed


def _trim(stream: str, minid: str, found: Sequence[GroupInfo]) -> Operation[TrimPreview]:
    if minid == "0-0":
        return TrimPreview(stream, 0, minid, [])
    able = yield from probe()
    removed = yield from count_between(stream, "-", f"({minid}", verbs=able.verbs)
    hit = []
    for one in found:
        last = one.about[b"last-delivered-id"].decode()
        unread = 0
        if StreamID.parse(last) < StreamID.parse(minid):
            unread = yield from count_between(stream, f"({last}", f"({minid}", verbs=able.verbs)
        pending = yield from _pending_before(stream, one.name, minid)
        hit.append(TrimmedGroup(one.name, unread, pending))
    return TrimPreview(stream, removed, minid, hit)


def _pending_before(stream: str, group: str, minid: str) -> Operation[int]:
    """Return the number of pending entries of a group before ``minid``."""
    replies: Any = yield [["XPENDING", stream, group]]
    total, _first, last, *_owners = accepted(replies[0])
    if not total or StreamID.parse(last) < StreamID.parse(minid):
        return int(total)
    count, start = 0, "-"
    while True:
        replies = yield [["XPENDING", stream, group, start, f"({minid}", PAGE]]
        page = accepted(replies[0])
        count += len(page)
        if len(page) < PAGE:
            return count
        start = f"({page[-1][0].decode()}"


# --- counting without transferring entries --------------------------------------------------------
#
# On Headwater XSPLIT counts without reading entries. On other servers, a read-only script reads them in pages
# of a few milliseconds.


_PAGE = """
-- KEYS stream. ARGV first id, last id, most entries, 'XRANGE' or 'XREVRANGE'. Returns how many entries there are,
-- at most those of the page, and the last one's id.
local count, last, bytes = 0, false, 0
local step = math.min(tonumber(ARGV[3]), 500)
local from = ARGV[1]
while count < tonumber(ARGV[3]) and bytes < 4194304 do
  local page = redis.call(ARGV[4], KEYS[1], from, ARGV[2], 'COUNT', step)
  for _, entry in ipairs(page) do
    count, last = count + 1, entry[1]
    for _, word in ipairs(entry[2]) do bytes = bytes + #word end
    if count == tonumber(ARGV[3]) then break end
  end
  if #page < step then break end
  from = '(' .. last
end
return {count, last}
"""

_PAGE_ENTRIES = 5_000

_FAN = 256
"""Parts per XSPLIT of the search for an entry by its number."""


def count_between(stream: str, first: str, last: str, *, verbs: bool) -> Operation[int]:
    """Return the number of entries from ``first`` to ``last``, which are ids as XRANGE takes them."""
    if verbs:
        replies = yield [["XSPLIT", stream, first, last, 1]]
        return int(accepted(replies[0])[0])
    total = 0
    while True:
        replies = yield [["EVAL_RO", _PAGE, 1, stream, first, last, _PAGE_ENTRIES, "XRANGE"]]
        count, end = accepted(replies[0])
        total += int(count)
        if not count:
            return total
        first = f"({end.decode()}"


def entry_number(
    stream: str, number: int, *, verbs: bool, first: str = "-", last: str = "+"
) -> Operation[str | None]:
    """Return the id of the entry with this number from ``first`` to ``last``, counted from 1; None if there are fewer."""
    if verbs:
        return (yield from _split(stream, first, last, number))
    return (yield from _walk(stream, first, last, number, "XRANGE"))


def entry_before(stream: str, last: str, number: int, *, verbs: bool) -> Operation[str | None]:
    """Return the id of the ``number``-th entry backwards from ``last``, which itself counts as the first; None if
    the stream has fewer entries."""
    if verbs:
        total = yield from count_between(stream, "-", last, verbs=True)
        if number > total:
            return None
        return (yield from _split(stream, "-", last, total - number + 1))
    return (yield from _walk(stream, last, "-", number, "XREVRANGE"))


def _split(stream: str, first: str, last: str, number: int) -> Operation[str | None]:
    """Find an entry by its number in a range. Three steps cover 16 million entries. If entries are removed during
    the search, the entry may be a later one."""
    if number == 1:
        replies = yield [["XRANGE", stream, first, last, "COUNT", 1]]
        entries = accepted(replies[0])
        return entries[0][0].decode() if entries else None
    place, beyond = number - 1, None
    while True:
        replies = yield [["XSPLIT", stream, first, last, _FAN]]
        total, cuts = accepted(replies[0])
        if place >= total:
            return beyond
        size, larger = divmod(total, len(cuts) + 1)  # the first ``larger`` parts have one more
        begins = [size * part + min(part, larger) for part in range(len(cuts) + 1)]
        part = bisect_right(begins, place) - 1
        if part:
            first, place = cuts[part - 1].decode(), place - begins[part]
        if not place:
            return first
        if part < len(cuts):
            beyond = cuts[part].decode()
            last = f"({beyond}"


def _walk(stream: str, start: str, end: str, number: int, how: str) -> Operation[str | None]:
    left = number
    while left > 0:
        most = min(left, _PAGE_ENTRIES)
        replies = yield [["EVAL_RO", _PAGE, 1, stream, start, end, most, how]]
        count, found = accepted(replies[0])
        left -= count
        if not count:
            return None
        start = f"({found.decode()}"
        if not left:
            return str(found.decode())
    return None
