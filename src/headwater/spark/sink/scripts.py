"""A Lua script that moves one chunk from a stage to the stream, and updates the position."""

from __future__ import annotations

from typing import Final

MOST_WORDS: Final = 7000
"""The most arguments that Lua can pass to XADD at once; its stack holds 8,000 values."""

CHUNK: Final = """
-- KEYS: the stream, the marker, the stage.
-- ARGV: [1] epoch [2] stage's index [3] position, which must equal the marker's; [4] the stage's count,
-- [5] most entries, [6] most bytes, [7] '1' for the last stage, [8] most arguments of an entry,
-- [9] how many of the epoch are published, [10…] arguments of XADD that trim.
-- Returns the status, how many entries were added, and an error's text.
local now = redis.call('HMGET', KEYS[2], 'epoch', 'stage', 'position', 'done')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] or now[3] ~= ARGV[3] or now[4] then
  return {'moved', 0, ''}
end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'stream' then return {'type', 0, kind} end
local from, count, most = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local expected = math.min(most, count - from)
local entries = redis.call('XRANGE', KEYS[3], string.format('%.0f-0', from + 1), '+',
                           'COUNT', expected)
if #entries ~= expected or entries[expected][1] ~= string.format('%.0f-0', from + expected) then
  return {'missing', 0, ''}
end
local status, wrong, added, bytes = 'ok', '', 0, 0
for i = 1, expected do
  local fields = entries[i][2]
  if #fields > tonumber(ARGV[8]) then
    status = 'wide'
    break
  end
  local words = {'XADD', KEYS[1]}
  for k = 10, #ARGV do words[#words + 1] = ARGV[k] end
  for k = 2, #fields do -- the id, then the row's fields; [1] is the name of the id's own field
    words[#words + 1] = fields[k]
    bytes = bytes + #fields[k]
  end
  local reply = redis.pcall(unpack(words))
  if type(reply) == 'table' and reply.err then
    status, wrong = 'refused', reply.err
    break
  end
  added = added + 1
  if bytes >= tonumber(ARGV[6]) then break end
end
if added > 0 then
  local place = {'HSET', KEYS[2], 'published', string.format('%.0f', ARGV[9] + added)}
  if from + added < count then
    place[5], place[6] = 'position', string.format('%.0f', from + added)
  else
    redis.call('UNLINK', KEYS[3])
    if ARGV[7] == '1' then
      redis.call('HDEL', KEYS[2], 'stages')
      place[5], place[6] = 'done', '1'
    else
      place[5], place[6] = 'stage', string.format('%.0f', ARGV[2] + 1)
      place[7], place[8] = 'position', '0'
    end
  end
  redis.call(unpack(place))
end
return {status, added, wrong}
"""
