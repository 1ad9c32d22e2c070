"""The counters of streams without their entries: XCOUNTERS on Headwater, a Lua script elsewhere.

XINFO STREAM returns the first and the last entry too, which may have megabytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headwater.model import StreamID
from headwater.spark.core.replies import as_dict
from headwater.spark.core.state import StreamState

if TYPE_CHECKING:
    import redis

SCRIPT: Final = """
local found = {}
for i, key in ipairs(KEYS) do
  local info = redis.pcall('XINFO', 'STREAM', key)
  if not info.err then
    local of = {}
    for j = 1, #info, 2 do of[info[j]] = info[j + 1] end
    found[i] = {of['length'], of['recorded-first-entry-id'], of['last-generated-id'],
      of['max-deleted-entry-id'], of['entries-added']}
  elseif string.find(info.err, 'no such key', 1, true) then
    found[i] = false
  else
    return redis.error_reply(info.err)
  end
end
return found
"""
"""Returns for each key what XCOUNTERS returns."""


def state_of(client: redis.Redis, stream: str) -> StreamState | None:
    """Return the state of one stream, None if there is no such key, as cheaply as the server and the user's rights
    allow. Raises redis-py's errors."""
    import redis

    def by_command() -> Any:
        return client.execute_command("XCOUNTERS", stream)

    def by_script() -> Any:
        return client.register_script(SCRIPT)(keys=[stream])

    for ask in (by_command, by_script):
        try:
            reply = ask()
        except redis.ResponseError:
            continue  # another kind of server, or not allowed
        found = states_of(reply)
        if found is not None:
            return found[0]
    try:
        values = as_dict(client.execute_command("XINFO STREAM", stream))
    except redis.ResponseError as error:
        if "no such key" in str(error):
            return None
        raise
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
