"""Reads the counters of streams without their entries: with XCOUNTERS on Headwater, with a Lua script elsewhere.

XINFO STREAM also returns the first and the last entry, which may have megabytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headwater.common.model import StreamID
from headwater.groups.protocol.operation import Script
from headwater.spark.core.positions import StreamState

_COLLECT: Final = """
local found, bytes = {}, 0
local function weigh(entry)
  if not entry then return end
  for _, word in ipairs(entry[2]) do bytes = bytes + #word end
end
for i, key in ipairs(KEYS) do
  local info = redis.pcall('XINFO', 'STREAM', key)
  if not info.err then
    local of = {}
    for j = 1, #info, 2 do of[info[j]] = info[j + 1] end
    found[i] = {of['length'], of['recorded-first-entry-id'], of['last-generated-id'],
      of['max-deleted-entry-id'], of['entries-added']}
    weigh(of['first-entry'])
    weigh(of['last-entry'])
  elseif string.find(info.err, 'no such key', 1, true) then
    found[i] = false
  else
    return redis.error_reply(info.err)
  end
  if bytes > 4194304 then break end
end
"""
"""The loop ends when XINFO has copied 4 MB of entries into Lua, which blocks the server for milliseconds."""

SCRIPT: Final = Script(_COLLECT + "return found\n")
"""Returns the reply of XCOUNTERS, but for the first keys only (`_COLLECT`)."""

DIGEST: Final = Script(
    _COLLECT
    + """
local lines = {}
for i = 1, #found do lines[i] = found[i] and table.concat(found[i], ' ') or '-' end
return {#found, redis.sha1hex(table.concat(lines, ','))}
"""
)
"""Returns the number of keys for which `SCRIPT` would return counters, and a digest of these counters."""


def is_known(reply: Any) -> bool:
    """Return whether the server has a command, from the reply to COMMAND INFO for that one command."""
    return bool(reply) and next(iter(reply)) is not None


def state_in(values: Mapping[str, Any]) -> StreamState | None:
    """Return the state from a reply of XINFO STREAM; None if the server does not count the entries added (Redis
    before 7.0)."""
    if "entries-added" not in values:
        return None
    return _state(
        values["length"],
        values["recorded-first-entry-id"],
        values["last-generated-id"],
        values["max-deleted-entry-id"],
        values["entries-added"],
    )


def states_of(reply: list[Any]) -> list[StreamState | None] | None:
    """Return the states from the reply of XCOUNTERS or of `SCRIPT`; None if the server does not count the entries
    added (Redis before 7.0)."""
    if any(counters is not None and len(counters) < 5 for counters in reply):
        return None
    return [None if counters is None else _state(*counters) for counters in reply]


def _state(length: Any, first: Any, last: Any, deleted: Any, added: Any) -> StreamState:
    return StreamState(
        length=int(length),
        last_id=StreamID.parse(last),
        max_deleted_id=StreamID.parse(deleted),
        entries_added=int(added),
        first_id=StreamID.parse(first),
    )
