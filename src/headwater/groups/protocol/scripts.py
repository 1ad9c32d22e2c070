"""Headwater's commands as Lua scripts, for Redis and Valkey. Each script is one atomic step.

Rule 1. XPENDING with one id and one consumer checks the owner before anything changes. Without a consumer, it
        checks whether the entry is pending.
Rule 2. A delayed or released entry is *parked*: the consumer ``hw.parked`` owns it, with an idle time by
        which it can be claimed when it is due. The sorted set of delays has its due time as the score, so
        that a claim reads only due entries.
Rule 3. Claiming adds one to the delivery count. Parking keeps the count (FAIL) or subtracts one (SILENT).
        XCLAIM … JUSTID, which renews and parks entries, does not change the count by itself.
Rule 4. XCLAIM drops a pending entry that is gone from the stream without reporting it. Each script that
        claims returns the ids of these entries.
"""

from __future__ import annotations

from headwater.groups.protocol.operation import Script

ROW_OF = """
-- Return the row of a pending entry whose id comes from a key to which any client can write; nil if it is not an id.
local function row_of(id)
  local rows = redis.pcall('XPENDING', stream, group, id, id, 1)
  if not rows.err then return rows[1] end
  if string.find(rows.err, 'Invalid stream ID', 1, true) then return nil end
  return redis.call('XPENDING', stream, group, id, id, 1)[1]  -- raises the error
end
"""
"""A Lua function for scripts in which ``stream`` and ``group`` are local."""

_PROLOGUE = """
local stream, delays = KEYS[1], KEYS[2]
local group, consumer, claim_after = ARGV[1], ARGV[2], tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function pending(id, any_owner)
  if any_owner then return redis.call('XPENDING', stream, group, id, id, 1)[1] end
  return redis.call('XPENDING', stream, group, id, id, 1, consumer)[1]
end
local function whole(number)
  return string.format('%.0f', number)
end
-- Park an entry. Return whether it was parked: not if it is gone from the stream.
local function park(id, count, delay)
  local idle = math.max(0, claim_after - delay)
  local kept = redis.call('XCLAIM', stream, group, 'hw.parked', 0, id,
                          'IDLE', whole(idle), 'RETRYCOUNT', math.max(0, count), 'JUSTID')
  if kept[1] and delays then redis.call('ZADD', delays, whole(now + delay), id) end
  return kept[1] ~= nil
end
"""
_PROLOGUE += ROW_OF

_CLAIMING = (
    _PROLOGUE
    + """
local settings = KEYS[3]
local found, gone = {}, {}
local function take(row)
  local id = row[1]
  local claimed = redis.call('XCLAIM', stream, group, consumer, 0, id)[1]
  if row[2] == 'hw.parked' then redis.call('ZREM', delays, id) end
  if claimed then
    found[#found + 1] = {claimed[1], claimed[2], row[2], row[3], row[4]}
  else
    gone[#gone + 1] = id
  end
end
-- Whether its owner is silent, or another client released it.
local function silent(row)
  return row[2] ~= consumer and row[2] ~= 'hw.parked' and (row[3] >= claim_after or row[2] == '')
end
"""
)

SETTLE = Script(
    _PROLOGUE
    + """
-- ARGV[4] '1' if KEYS[2] is the sorted set of delays; the other keys are destinations. ARGV[5…] for each
-- settlement: how, delay, 1 if the owner does not matter, number of ids, ids, number of additions, and for each
-- of those: destination's index, number of words, XADD's words.
-- Returns for each settlement {1, new id, …}; {2} if it was to be delivered again but is gone from the
-- stream; {-1, error} if an addition was refused. {0} if it has additions, and one of its entries cannot be
-- settled or an id is given twice; without additions {0, id, …} with the ids that cannot be settled.
if ARGV[4] ~= '1' then delays = nil end
local alone
local function delete_acked(id)
  if alone == nil then alone = #redis.call('XINFO', 'GROUPS', stream) == 1 end
  if alone then
    redis.call('XDEL', stream, id)
  else
    redis.pcall('XDELEX', stream, 'ACKED', 'IDS', 1, id)  -- unknown to older servers: it stays
  end
end
local waiting = delays and redis.call('EXISTS', delays) == 1
local outcomes, at = {}, 5
while at <= #ARGV do
  local how, delay, any_owner = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2] == '1'
  local count = tonumber(ARGV[at + 3])
  local additions, first = tonumber(ARGV[at + 4 + count]), at + 5 + count
  local rows, missed, named, wrong = {}, {}, {}, nil
  for i = at + 4, at + 3 + count do
    local id = ARGV[i]
    -- With results, an id that is given twice counts as not owned the second time.
    local row = not (additions > 0 and named[id]) and pending(id, any_owner)
    if row then rows[#rows + 1] = row else missed[#missed + 1] = id end
    named[id] = true
  end
  local owned = #missed == 0
  at = first
  for i = 1, additions do
    local kind = redis.call('TYPE', KEYS[tonumber(ARGV[at])]).ok
    if kind ~= 'none' and kind ~= 'stream' then
      wrong = 'WRONGTYPE Operation against a key holding the wrong kind of value'
    end
    at = at + 2 + tonumber(ARGV[at + 1])
  end
  local outcome = {0}
  if owned and not wrong then
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
  elseif owned or additions == 0 then
    for _, id in ipairs(missed) do outcome[#outcome + 1] = id end
    for _, row in ipairs(rows) do
      local id = row[1]
      if how == 'ACK' or how == 'ACKDEL' or how == 'ACKED' then
        redis.call('XACK', stream, group, id)
        if how == 'ACKDEL' then redis.call('XDEL', stream, id) end
        if how == 'ACKED' then delete_acked(id) end
        if waiting then redis.call('ZREM', delays, id) end
      elseif not park(id, how == 'SILENT' and row[4] - 1 or row[4], delay) then
        outcome[1] = 2
      end
    end
  end
  outcomes[#outcomes + 1] = outcome
end
return outcomes
"""
)

PUBLISH_DUE = Script(
    _PROLOGUE
    + """
-- Publish to KEYS[3] the parked entries that are due, and the unread ones that are due; park the other unread ones.
-- ARGV[4] most entries, [5] size in bytes of their content after which it ends, [6] most words of an XADD, [7] most
-- digits of a number in a field.
-- Returns 1 if there may be more to do, milliseconds until the next entry is due or -1, {{id, error}, …} of
-- entries that the stream refused: those stay as they are.
local destination, limit, most, words = KEYS[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local digits = tonumber(ARGV[7])
local taken, size, refused = 0, 0, {}
-- Remove the last field if it is the number 'name', and return it.
local function number(fields, name)
  local n = #fields
  if fields[n - 1] ~= name or not string.find(fields[n], '^%d+$') or #fields[n] > digits then return nil end
  local found = tonumber(fields[n])
  fields[n], fields[n - 1] = nil, nil
  return found
end
local function note_size(fields)
  for _, word in ipairs(fields) do size = size + #word end
end
local function publish(id, fields, after)
  local added
  local maxlen = number(fields, 'hw.maxlen')
  local late = now - tonumber(string.match(id, '^%d+')) - after
  if late >= 1000 and #fields + 2 <= words then
    fields[#fields + 1] = 'hw.late'
    fields[#fields + 1] = whole(late)
  end
  if #fields > words then
    added = {err = 'ERR too many fields for one XADD in Lua'}
  elseif maxlen then
    added = redis.pcall('XADD', destination, 'MAXLEN', '~', whole(maxlen), '*', unpack(fields))
  else
    added = redis.pcall('XADD', destination, '*', unpack(fields))
  end
  if type(added) == 'table' and added.err then
    refused[#refused + 1] = {id, added.err}
    return
  end
  redis.call('XACK', stream, group, id)
  redis.call('XDEL', stream, id)
  redis.call('ZREM', delays, id)
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', delays, '-inf', whole(now), 'LIMIT', 0, limit)) do
  if size >= most then break end
  taken = taken + 1
  local row = row_of(id)
  local entry = row and redis.call('XRANGE', stream, id, id)[1]
  if row and row[2] == 'hw.parked' and entry then
    note_size(entry[2])
    publish(id, entry[2], number(entry[2], 'hw.after') or 0)
  else
    if row and not entry then redis.call('XACK', stream, group, id) end
    redis.call('ZREM', delays, id)
  end
end
while taken < limit and size < most do
  local count = math.min(4, limit - taken)
  local new = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', stream, '>')
  if not new then break end
  for _, entry in ipairs(new[1][2]) do
    taken = taken + 1
    local id, fields = entry[1], entry[2]
    note_size(fields)
    local after = number(fields, 'hw.after') or 0
    local left = tonumber(string.match(id, '^%d+')) + after - now
    if left > 0 then park(id, 0, left) else publish(id, fields, after) end
  end
end
local following, first = -1, redis.call('ZRANGE', delays, 0, 0, 'WITHSCORES')
if first[2] then following = math.max(0, tonumber(first[2]) - now) end
return {(taken >= limit or size >= most) and 1 or 0, following, refused}
"""
)

CLAIM = Script(
    _CLAIMING
    + """
-- Claim due entries, and those of consumers that have been silent for claim_after. KEYS[3] the group's settings.
-- ARGV[4] most entries to claim, [5] milliseconds between two sweeps.
-- Returns milliseconds until the next delayed entry is due or -1, 1 if there is more to claim now, 1 if the
-- caller must sweep, {{id, fields, former owner, idle, count}, …}, ids that are gone from the stream.
local limit, every = tonumber(ARGV[4]), tonumber(ARGV[5])
redis.call('XPENDING', stream, group, '-', '+', 1)  -- fails with NOGROUP, which XINFO does not
local ids = redis.call('ZRANGEBYSCORE', delays, '-inf', whole(now), 'LIMIT', 0, limit)
local more = #ids == limit and 1 or 0
for _, id in ipairs(ids) do
  local row = row_of(id)
  if row and row[2] == 'hw.parked' then
    take(row)
  else
    redis.call('ZREM', delays, id)
  end
end
local parked = 0
for _, words in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local info = {}
  for i = 1, #words, 2 do info[words[i]] = words[i + 1] end
  if info.name == 'hw.parked' then
    parked = info.pending
  elseif info.name ~= consumer and info.pending > 0 and info.idle >= claim_after then
    local room = limit - #found
    if room > 0 then
      local rows = redis.call('XPENDING', stream, group, 'IDLE', claim_after, '-', '+', room, info.name)
      for _, row in ipairs(rows) do take(row) end
      room = room - #rows
    end
    if room <= 0 then more = 1 end
  end
end
local age = now - (tonumber(redis.call('HGET', settings, 'swept_ms') or '') or 0)
local unknown = parked > redis.call('ZCARD', delays)
local sweep = 0
if not (age >= 0 and age < every) or (unknown and age >= 1000) then
  redis.pcall('HSET', settings, 'swept_ms', whole(now))  -- a server out of memory refuses it
  sweep = 1
end
local following, first = -1, redis.call('ZRANGE', delays, 0, 0, 'WITHSCORES')
if first[2] then following = math.max(0, tonumber(first[2]) - now) end
return {following, more, sweep, found, gone}
"""
)

SWEEP = Script(
    _CLAIMING
    + """
-- One step over the whole pending entries list, for entries that CLAIM does not find: those that an active
-- consumer never renews, and parked ones without a due time, as in a group that was restored. ARGV[4] where to
-- continue, [5] most entries to claim, [6] most rows to examine.
-- Returns the next place ('' at the end), claimed and gone entries as CLAIM does.
local limit, scan = tonumber(ARGV[5]), tonumber(ARGV[6])
local rows = redis.call('XPENDING', stream, group, ARGV[4], '+', scan)
local place = ''
if #rows == scan then place = '(' .. rows[#rows][1] end
for i, row in ipairs(rows) do
  local id = row[1]
  if silent(row) then
    if #found == limit then place = i == 1 and ARGV[4] or '(' .. rows[i - 1][1] break end
    take(row)
  elseif row[2] == 'hw.parked' and not redis.call('ZSCORE', delays, id) then
    redis.call('ZADD', delays, whole(now + math.max(0, claim_after - row[3])), id)
  end
end
return {place, found, gone}
"""
)

CLAIM_SUSPECT = Script(
    _CLAIMING
    + """
-- Claim the first of these suspects that can be claimed. ARGV[4…] id, '1' if a reader handed it back for the
-- caller: then it need not be due. Returns claimed and gone entries as CLAIM does, and settled ids.
local settled = {}
for i = 4, #ARGV, 2 do
  local id = ARGV[i]
  local row = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if not row then
    settled[#settled + 1] = id
  elseif row[2] == 'hw.parked' then
    local at = redis.call('ZSCORE', delays, id)
    if ARGV[i + 1] == '1' or (at and tonumber(at) <= now) then take(row) end
  elseif silent(row) then
    take(row)
  end
  if found[1] then break end
end
return {found, gone, settled}
"""
)

RENEW = Script(
    _PROLOGUE
    + """
-- ARGV[4…] ids. Returns for each 1 if the lease was renewed, 0 if the caller does not own the entry. An entry
-- that is gone from the stream keeps its owner: XCLAIM would drop it from the pending entries list.
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
-- Returns 1 if the consumer was removed, 0 if it still owns entries, -1 if there is no such consumer.
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
