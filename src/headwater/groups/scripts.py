"""The fallback: Headwater's verbs in Lua, for Redis and Valkey. Each is one atomic step.

Rule 1. Ownership is judged by XPENDING over one id and one consumer before anything changes.
Rule 2. A retry or a hand-back is *parked*: owned by the consumer ``hw.parked``, with an idle time at
        which it can be claimed when it is due. A delay longer than ``claim_after`` cannot be said
        by an idle time, so the due time also stands in the due hash, and who finds it early leaves
        it parked.
Rule 3. Counts: claiming adds one, parking keeps (FAIL) or takes one away (SILENT), renewing and
        parking by XCLAIM … JUSTID add none.
"""

from __future__ import annotations

from headwater.groups.operation import Script

_PROLOGUE = """
local stream, due = KEYS[1], KEYS[2]
local group, consumer, claim_after = ARGV[1], ARGV[2], tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function pending(id)
  return redis.call('XPENDING', stream, group, id, id, 1, consumer)[1]
end
local function park(id, count, delay, mark)
  local idle = math.max(0, claim_after - delay)
  redis.call('XCLAIM', stream, group, 'hw.parked', 0, id,
             'IDLE', idle, 'RETRYCOUNT', math.max(0, count), 'JUSTID')
  if mark or delay > claim_after then
    redis.call('HSET', due, id, string.format('%.0f', now + delay))
  end
end
"""

SETTLE = Script(
    _PROLOGUE
    + """
-- KEYS[3…] destinations. ARGV[4] '1': every parked entry gets a due time (the reader cannot see who
-- owned what it claims). ARGV[5] '1': the server has XNACK. Then for each settlement: how, delay,
-- id, number of additions, and for each of those: destination's index, number of words, XADD's words.
local mark, nack = ARGV[4] == '1', ARGV[5] == '1'
local outcomes, at = {}, 6
while at <= #ARGV do
  local how, delay, id, additions = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], tonumber(ARGV[at + 3])
  local row, first, wrong = pending(id), at + 4, nil
  at = first
  for i = 1, additions do
    local kind = redis.call('TYPE', KEYS[tonumber(ARGV[at])]).ok
    if kind ~= 'none' and kind ~= 'stream' then
      wrong = 'WRONGTYPE Operation against a key holding the wrong kind of value'
    end
    at = at + 2 + tonumber(ARGV[at + 1])
  end
  local outcome = {0}
  if row and not wrong then
    local place = first
    outcome[1] = 1
    for i = 1, additions do
      local words = tonumber(ARGV[place + 1])
      local added = redis.pcall('XADD', KEYS[tonumber(ARGV[place])],
                                unpack(ARGV, place + 2, place + 1 + words))
      if type(added) == 'table' and added.err then wrong = added.err break end
      outcome[#outcome + 1] = added
      place = place + 2 + words
    end
  end
  if wrong then
    outcome = {-1, wrong}
  elseif row then
    if how == 'ACK' then
      redis.call('XACK', stream, group, id)
    elseif how == 'ACKDEL' then
      redis.call('XACK', stream, group, id)
      redis.call('XDEL', stream, id)
    elseif nack and delay == 0 then
      redis.call('XNACK', stream, group, how, 'IDS', 1, id)
    else
      park(id, how == 'SILENT' and row[4] - 1 or row[4], delay, mark)
    end
  end
  outcomes[#outcomes + 1] = outcome
end
return outcomes
"""
)

CLAIM = Script(
    _PROLOGUE
    + """
-- ARGV[4] where to go on in the pending list, [5] most entries to claim, [6] most rows to look at,
-- [7] cursor of the due hash's sweep, '' for none now.
-- Returns next place ('' at the end), next cursor, {{id, fields, former owner, idle, count}, …}.
local limit, scan = tonumber(ARGV[5]), tonumber(ARGV[6])
local rows = redis.call('XPENDING', stream, group, ARGV[4], '+', scan)
local found, place = {}, ''
if #rows == scan then place = '(' .. rows[#rows][1] end
for i, row in ipairs(rows) do
  local id, owner, idle, count = row[1], row[2], row[3], row[4]
  if #found == limit then place = '(' .. rows[i - 1][1] break end
  if owner ~= consumer then
    local ripe = idle >= claim_after
    local parked = owner == 'hw.parked'
    local at = parked and redis.call('HGET', due, id)
    if at then ripe = now >= tonumber(at) end
    if ripe then
      local claimed = redis.call('XCLAIM', stream, group, consumer, 0, id)[1]
      if claimed then found[#found + 1] = {claimed[1], claimed[2], owner, idle, count} end
      if at then redis.call('HDEL', due, id) end
    end
  end
end
local cursor = ''
if ARGV[7] ~= '' then
  local swept = redis.call('HSCAN', due, ARGV[7], 'COUNT', 50)
  cursor = swept[1]
  for i = 1, #swept[2], 2 do
    local id = swept[2][i]
    if not redis.call('XPENDING', stream, group, id, id, 1)[1] then redis.call('HDEL', due, id) end
  end
end
return {place, cursor, found}
"""
)

RIPEN = Script(
    _PROLOGUE
    + """
-- For what XREADGROUP CLAIM took: ARGV[4…] id, count before. 0: it was not parked, 1: it was and is
-- due, 2: it is not due yet and is parked again with the count it had.
local outcomes = {}
for i = 4, #ARGV, 2 do
  local id, outcome = ARGV[i], 0
  local at = redis.call('HGET', due, id)
  if at then
    outcome = 1
    if now < tonumber(at) and pending(id) then
      park(id, tonumber(ARGV[i + 1]), tonumber(at) - now, true)
      outcome = 2
    else
      redis.call('HDEL', due, id)
    end
  end
  outcomes[#outcomes + 1] = outcome
end
return outcomes
"""
)

RENEW = Script(
    _PROLOGUE
    + """
-- ARGV[4…] ids. 1 where the lease was renewed, 0 where another owns the entry or nobody. An entry
-- gone from the stream keeps its owner: XCLAIM would drop it from the pending list.
local flags = {}
for i = 4, #ARGV do
  local id = ARGV[i]
  if pending(id) then
    flags[#flags + 1] = 1
    if redis.call('XRANGE', stream, id, id)[1] then
      redis.call('XCLAIM', stream, group, consumer, 0, id, 'IDLE', 0, 'JUSTID')
    end
  else
    flags[#flags + 1] = 0
  end
end
return flags
"""
)

RETIRE = Script(
    """
-- 1 removed, 0 it still owns entries, -1 no such consumer.
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
if redis.call('XPENDING', stream, group, '-', '+', 1, consumer)[1] then return 0 end
for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  for i = 1, #info, 2 do
    if info[i] == 'name' and info[i + 1] == consumer then
      redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
      return 1
    end
  end
end
return -1
"""
)
