"""Limits of a group across all its workers: the rate at which entries start, and the number that run at once.

    RATES   for each limited key, a string with the time between two tokens of the limit that wrote it, after two times
            in microseconds of the server:
                ``run``: all tokens up to it are given away        ──▶ an entry that runs, now or very soon
                ``line``: the entries in line are due up to it     ──▶ an entry that is parked until its turn
    PLACES  for each limited key, a hash id → consumer of the entries that run, a list of the entries in line, and
            a hash of their ids; for the group, a hash of the limited keys with a line, key → number of places

Rule 1. One script decides about all limits of an entry: it takes a token of each limit, or none at all.
Rule 2. The tokens of a key come at regular times, and up to ``burst`` of them can be unused (the generic cell rate
        algorithm, ITU-T I.371). So at most ``burst`` + rate times t entries get a token within any time t.
Rule 3. An entry with a key that must wait is parked, with a due time of its own in the line of its key. When it is
        due, it needs a token, as every entry does. A new entry does not overtake the line.
Rule 4. An entry has a place while it is pending, its owner is the one that took the place, and this owner's lease is
        valid. So renewing the entry keeps its place, and the place of a dead process is free after ``claim_after``.
Rule 5. An entry is in at most one line: that of the first limit that denies it a place. Limits with keys come first.
Rule 6. A line is in the key of its places with the suffix ``:line``, and its ids are in one with ``:waits``.
        An entry without a key leaves the line when no live process has it.
Rule 7. The process that frees a place makes the first entry in line due now. If that process dies first, another
        one does this: each process looks every two seconds.
Rule 8. The first worker with other limits than the last one makes all parked entries due now, so that none waits for
        its turn under a limit that was raised, changed or removed. Times of a limit with another rate are not kept:
        its line is forgotten, and its tokens count as given away up to the next one of this limit at the latest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.common.names import bytes_of
from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import (
    Operation,
    Script,
    Word,
    accepted,
    mapping,
    whole_number,
)
from headwater.groups.protocol.scripts import ROW_OF
from headwater.messages.keys import delays_key, group_settings_key, limit_key, limited_key

KEPT_MS = 7 * 86_400_000
"""Time for which the places of a key are kept after the last change, in milliseconds: longer than any handler runs."""

LAST_RESORT_MS = 3_600_000
"""Delay in milliseconds after which an entry in line is due by itself, in case no worker has the limit now."""

LOOKED_AT = 100
"""Number of keys with a line that `look_after` examines in one step."""


LIMITS_FIELD = "limits"
"""Field of the group's settings with the limits of the worker that joined last."""


class Token(NamedTuple):
    """A limit by rate for one key. Times are in microseconds."""

    key: str
    """The key of its state in the store."""
    every_us: float
    """Time between two tokens."""
    burst_us: float
    """Maximum time for which tokens may stay unused."""
    in_line: bool
    """True if entries that wait are parked, each with its own due time; False if their process keeps them."""


class LimitPlace(NamedTuple):
    """A limit on the number of entries that run at once, for one key."""

    key: str
    most: int
    in_line: bool


class Verdict(NamedTuple):
    """The decision about an entry. ``wait_us`` is the time until the entry starts if ``starts``, until it is due if
    ``parked``, and otherwise until its process asks again."""

    starts: bool
    wait_us: float
    parked: bool = False


RATES = Script(
    """
-- KEYS limits. ARGV[1] number of limits, then for each: microseconds between tokens, of burst, '1' if there is a line.
-- Then for each entry: horizon in microseconds, '1' if it was in line, number of its limits, their indexes.
-- Returns for each entry two numbers: 0 and microseconds until it starts; 1, until it is due; 2, until the next try.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
-- A time in the state of a limit. A value that another client has written, or one ten years ahead, counts as none.
local function time_of(text)
  local found = tonumber(text or '')
  return found and found >= 0 and found < now + 315360000000000 and found or 0
end
local limits, place = {}, 2
for i = 1, tonumber(ARGV[1]) do
  local run, line, pace = string.match(redis.call('GET', KEYS[i]) or '', '^(%S+) (%S+) ?(%S*)$')
  local one = {
    run = time_of(run), line = time_of(line), pace = ARGV[place], every = tonumber(ARGV[place]),
    burst = tonumber(ARGV[place + 1]), has_line = ARGV[place + 2] == '1',
  }
  if pace ~= one.pace then one.run, one.line = math.min(one.run, now + one.burst + one.every), 0 end
  limits[i] = one
  place = place + 3
end
local function earliest(one) return math.max(now, one.run - one.burst) end
local found = {}
while place <= #ARGV do
  local horizon, was_in_line, count = tonumber(ARGV[place]), ARGV[place + 1] == '1', tonumber(ARGV[place + 2])
  local at, due, late = now, 0, {}
  for i = place + 3, place + 2 + count do
    local one = limits[tonumber(ARGV[i])]
    at = math.max(at, earliest(one))
    local waits = earliest(one) > now + horizon or (one.line > now and not was_in_line)
    if one.has_line and waits then late[#late + 1] = one end
  end
  if #late > 0 then
    for _, one in ipairs(late) do due = math.max(due, one.line, earliest(one)) end
    for _, one in ipairs(late) do one.line = due + one.every one.changed = true end
    found[#found + 1] = 1
    found[#found + 1] = string.format('%.0f', due - now)
  elseif at > now + horizon then
    found[#found + 1] = 2
    found[#found + 1] = string.format('%.0f', at - now)
  else
    for i = place + 3, place + 2 + count do
      local one = limits[tonumber(ARGV[i])]
      one.run = math.max(one.run, at) + one.every
      one.changed = true
    end
    found[#found + 1] = 0
    found[#found + 1] = string.format('%.0f', at - now)
  end
  place = place + 3 + count
end
for i, one in ipairs(limits) do
  if one.changed then
    local left = math.ceil((math.max(one.run, one.line) - now) / 1000) + 1000
    local text = string.format('%.2f %.2f %s', one.run, one.line, one.pace)
    redis.call('SET', KEYS[i], text, 'PX', string.format('%.0f', left))
  end
end
return found
"""
)

_PLACES = """
local stream, delays, index = KEYS[1], KEYS[2], KEYS[3]
local group, claim_after = ARGV[1], tonumber(ARGV[2])
local verbs, kept = ARGV[3] == '1', ARGV[4]
"""
_PLACES += ROW_OF
_PLACES += """
-- Return how many places of a key are taken, without those whose entries do not run any more.
local function taken(key)
  local rows, count = redis.call('HGETALL', key), 0
  for i = 1, #rows, 2 do
    local row = row_of(rows[i])
    if row and row[2] == rows[i + 1] and row[3] < claim_after then
      count = count + 1
    else
      redis.call('HDEL', key, rows[i])
    end
  end
  return count
end
local function leave(key, id)
  if redis.call('HDEL', key .. ':waits', id) == 1 then redis.call('LREM', key .. ':line', 1, id) end
end
-- Remove an id that was found in the line. Its hash of ids may lack the id: the server may have evicted the hash.
local function remove(key, id)
  redis.call('HDEL', key .. ':waits', id)
  redis.call('LREM', key .. ':line', 1, id)
end
-- Make an entry due now if it is parked.
local function make_due(id, row)
  if verbs and row[2] == '' then
    redis.call('XNACK', stream, group, 'FAIL', 'IDS', 1, id)
  elseif row[2] == 'hw.parked' then
    local clock = redis.call('TIME')
    redis.call('ZADD', delays, 'XX', clock[1] * 1000 + math.floor(clock[2] / 1000), id)
  end
end
-- Make the first entries in line due now, as many as places are free.
local function call_up(key, most)
  local line = key .. ':line'
  local free = most - taken(key)
  local called = 0
  while called < free do
    local first = redis.call('LINDEX', line, called)
    if not first then break end
    local row = row_of(first)
    if not row then
      remove(key, first)
    else
      make_due(first, row)
      called = called + 1
    end
  end
  if redis.call('LLEN', line) == 0 then redis.call('HDEL', index, key) end
  return called
end
"""

TAKE_PLACES = Script(
    _PLACES
    + """
-- KEYS[4…] for each limit its places. ARGV[5] consumer, [6] number of limits, then for each: most places,
-- '1' if entries in line are parked. Then for each entry: id, number of its limits, their indexes.
-- Returns for each entry 0 if it has its places, 1 if it must be parked, 2 if its process must ask again.
local consumer, limits, place = ARGV[5], {}, 7
for i = 1, tonumber(ARGV[6]) do
  local key = KEYS[3 + i]
  limits[i] = {
    key = key, line = key .. ':line', waits = key .. ':waits', most = ARGV[place],
    parks = ARGV[place + 1] == '1', free = tonumber(ARGV[place]) - taken(key),
  }
  place = place + 2
end
-- Whether an entry waits where it is. Those of a line without a key wait in live processes: one that was handed back, or
-- whose process is dead, loses its turn, since all processes may have no room for it.
local function waits(one, id)
  if one.parks then return true end
  local row = row_of(id)
  return row and row[2] ~= '' and row[2] ~= 'hw.parked' and row[3] < claim_after
end
-- Whether a place is free for this entry, and not for others that came before it.
local function may_take(one, id)
  local before = 0
  while before < one.free do
    local other = redis.call('LINDEX', one.line, before)
    if not other or other == id then return true end
    if waits(one, other) then before = before + 1 else remove(one.key, other) end
  end
  return false
end
local found = {}
while place <= #ARGV do
  local id, count = ARGV[place], tonumber(ARGV[place + 1])
  local verdict = 0
  for i = place + 2, place + 1 + count do
    local one = limits[tonumber(ARGV[i])]
    if verdict ~= 0 then
      leave(one.key, id)
    elseif redis.call('HEXISTS', one.key, id) == 0 and not may_take(one, id) then
      if redis.call('HSETNX', one.waits, id, 1) == 1 then redis.call('RPUSH', one.line, id) end
      redis.call('HSET', index, one.key, one.most)
      for _, key in ipairs({one.line, one.waits, index}) do redis.call('PEXPIRE', key, kept) end
      verdict = one.parks and 1 or 2
    end
  end
  if verdict == 0 then
    for i = place + 2, place + 1 + count do
      local one = limits[tonumber(ARGV[i])]
      if redis.call('HSET', one.key, id, consumer) == 1 then one.free = one.free - 1 end
      redis.call('PEXPIRE', one.key, kept)
      leave(one.key, id)
    end
  end
  found[#found + 1] = verdict
  place = place + 2 + count
end
return found
"""
)

FREE_PLACES = Script(
    _PLACES
    + """
-- KEYS[4…] places of keys. ARGV[5] consumer; for each key: most places, number of ids, ids that do not run any more.
-- Returns how many entries in line were made due.
local called, place = 0, 6
for i = 4, #KEYS do
  local most, count = tonumber(ARGV[place]), tonumber(ARGV[place + 1])
  for j = place + 2, place + 1 + count do
    if redis.call('HGET', KEYS[i], ARGV[j]) == ARGV[5] then redis.call('HDEL', KEYS[i], ARGV[j]) end
  end
  called = called + call_up(KEYS[i], most)
  place = place + 2 + count
end
return called
"""
)


MAKE_DUE = Script(
    _PLACES
    + """
-- KEYS[4] hash of entries that wait for a limit. ARGV[5…] ids from it. Those that are parked are due now, and they and
-- those that are not pending any more leave the hash. Those that wait in a process stay.
for i = 5, #ARGV do
  local row = row_of(ARGV[i])
  if row then make_due(ARGV[i], row) end
  if not row or row[2] == '' or row[2] == 'hw.parked' then redis.call('HDEL', KEYS[4], ARGV[i]) end
end
return 0
"""
)


class Asked(NamedTuple):
    """One entry that is about to start."""

    id: bytes
    horizon_us: int
    """Maximum time for which the process keeps the entry until its token comes, in microseconds."""
    was_in_line: bool
    tokens: Sequence[Token] = ()
    places: Sequence[LimitPlace] = ()


def take_tokens(asked: Sequence[Asked]) -> Operation[list[Verdict]]:
    """Take a token of each limit for each entry that may start within its horizon. Return a verdict for each entry."""
    numbers: dict[Token, int] = {}
    words: list[Word] = []
    for one in asked:
        indexes = [numbers.setdefault(token, len(numbers) + 1) for token in one.tokens]
        words += [one.horizon_us, int(one.was_in_line), len(indexes), *indexes]
    head: list[Word] = [len(numbers)]
    for token in numbers:
        head += [repr(token.every_us), repr(token.burst_us), int(token.in_line)]
    found = yield from RATES.call([token.key for token in numbers], [*head, *words])
    return [
        Verdict(how == 0, float(wait), parked=how == 1)
        for how, wait in zip(found[::2], found[1::2], strict=True)
    ]


def take_places(member: Member, asked: Sequence[Asked]) -> Operation[list[int]]:
    """Take a place of each limit for each entry that may start. Return a number for each entry: 0 if it has its
    places, 1 if it is in line and so must be parked, 2 if its process must ask again."""
    numbers: dict[LimitPlace, int] = {}
    words: list[Word] = []
    for one in asked:
        indexes = [numbers.setdefault(place, len(numbers) + 1) for place in one.places]
        words += [one.id, len(indexes), *indexes]
    head: list[Word] = [*_who(member), member.consumer, len(numbers)]
    for place in numbers:
        head += [place.most, int(place.in_line)]
    keys = [*_keys(member), *(place.key for place in numbers)]
    found: list[int] = yield from TAKE_PLACES.call(keys, [*head, *words])
    return found


def free_places(member: Member, freed: Sequence[tuple[bytes, LimitPlace]]) -> Operation[int]:
    """Give back places of entries that no longer run. Return the number of entries in line that are due now."""
    by_place: dict[LimitPlace, list[bytes]] = {}
    for entry_id, place in freed:
        by_place.setdefault(place, []).append(entry_id)
    words: list[Word] = [*_who(member), member.consumer]
    for place, ids in by_place.items():
        words += [place.most, len(ids), *ids]
    keys = [*_keys(member), *(place.key for place in by_place)]
    found: int = yield from FREE_PLACES.call(keys, words)
    return found


def look_after(member: Member, cursor: int) -> Operation[tuple[int, int]]:
    """Make entries in line due for the places of dead processes. Examines some keys, beginning at ``cursor``.
    Return the number of entries, and the next cursor, which is 0 at the end."""
    replies = yield [["HSCAN", limit_key(member.stream, member.group), cursor, "COUNT", LOOKED_AT]]
    following, page = accepted(replies[0])
    if not page:
        return 0, int(following)
    words: list[Word] = [*_who(member), member.consumer]
    # Another client may have written other fields.
    own = bytes_of(limit_key(member.stream, member.group)) + b":"
    rows = {
        key: most
        for key, most in mapping(page).items()
        if key.startswith(own) and whole_number(most) is not None
    }
    for most in rows.values():
        words += [most, 0]
    found: int = yield from FREE_PLACES.call([*_keys(member), *rows], words)
    return found, int(following)


def agree_on_limits(member: Member, limits: str) -> Operation[None]:
    """Make all entries that were parked for a limit due now if the last worker that joined had other ``limits``."""
    settings = group_settings_key(member.stream, member.group)
    replies = yield [["HMGET", settings, LIMITS_FIELD]]
    before = accepted(replies[0])[0]
    if (before or b"") == bytes_of(limits):
        return
    key, cursor = limited_key(member.stream, member.group), 0
    while True:
        replies = yield [["HSCAN", key, cursor, "COUNT", LOOKED_AT]]
        following, page = accepted(replies[0])
        if page:
            yield from MAKE_DUE.call([*_keys(member), key], [*_who(member), *mapping(page)])
        cursor = int(following)
        if cursor == 0:
            break
    accepted((yield [["HSET", settings, LIMITS_FIELD, limits]])[0])


def _keys(member: Member) -> list[Word]:
    stream, group = member.stream, member.group
    return [stream, delays_key(stream, group), limit_key(stream, group)]


def _who(member: Member) -> list[Word]:
    return [member.group, member.claim_after_ms, int(member.able.verbs), KEPT_MS]


def limit_state_key(stream: str, group: str, name: str, key: str) -> str:
    """Return the store's key for a limit and one limited key. It never equals another such key with a suffix."""
    escaped = key.replace("%", "%25").replace(":", "%3A")
    return f"{limit_key(stream, group)}:{name}:{escaped}"
