"""Counts entries of a range, and finds the id some entries further, without transferring any.

On Headwater XSPLIT counts without reading entries. Elsewhere a read-only script reads them on the server, in pages of a
few milliseconds.
"""

from __future__ import annotations

from headwater.groups.protocol.operation import Operation, accepted

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


def count_between(stream: str, first: str, last: str, *, verbs: bool) -> Operation[int]:
    """Return how many entries there are from ``first`` to ``last``: ids as XRANGE takes them."""
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


def entry_number(stream: str, number: int, *, verbs: bool) -> Operation[str | None]:
    """Return the id of the entry with this number in the stream, counted from 1; None if there are fewer."""
    if verbs:
        return (yield from _halve(stream, "-", "+", number))
    return (yield from _walk(stream, "-", "+", number, "XRANGE"))


def entry_before(stream: str, last: str, number: int, *, verbs: bool) -> Operation[str | None]:
    """Return the id of the entry that is ``number`` entries back from ``last``, which counts as the first; None if
    there are fewer."""
    if verbs:
        total = yield from count_between(stream, "-", last, verbs=True)
        if number > total:
            return None
        return (yield from _halve(stream, "-", last, total - number + 1))
    return (yield from _walk(stream, last, "-", number, "XREVRANGE"))


def _halve(stream: str, first: str, last: str, number: int) -> Operation[str | None]:
    """Find an entry by its number in a range: XSPLIT says where the second half begins."""
    while True:
        replies = yield [["XSPLIT", stream, first, last, 2]]
        total, cuts = accepted(replies[0])
        if number < 1 or number > total:
            return None
        if not cuts:
            replies = yield [["XRANGE", stream, first, last, "COUNT", 1]]
            return str(accepted(replies[0])[0][0].decode())
        half = total - total // 2
        cut = cuts[0].decode()
        if number <= half:
            last = f"({cut}"
        else:
            first, number = cut, number - half


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
