"""Determines which entries of an archived stream may be trimmed, and who still needs the others.

An entry is trimmed when all of these conditions hold:

    archive     the manifest is on disk and names the entry
    groups      the entry was delivered to each group, and the group has settled it
    queries     each query in log mode that is not forgotten has committed the entry (core/queries.py)
    `keep_ms`   has passed since the milliseconds of the entry's id, by the server's clock

The bound is the smallest id that is still needed; `Hold` names its reader. The trim is XTRIM MINID = bound
ACKED, so a group that is created or set back between the check and the trim keeps its entries. Servers
without ACKED (Redis before 8.2, Valkey) run one Lua script that checks the groups again and trims by the
result.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from headwater.common.model import MAX_ID, StreamID
from headwater.errors import HeadwaterError
from headwater.groups.protocol.operation import Script, server_ms
from headwater.messages.keys import queries_key
from headwater.spark.archive.index import Index
from headwater.spark.archive.manifest import Manifest
from headwater.spark.core.connection import patiently
from headwater.spark.core.positions import after
from headwater.spark.core.queries import Committed, committed
from headwater.spark.core.replies import as_dict, as_text
from headwater.spark.core.store import SourceStore

STEP_ENTRIES: Final = 50_000
"""Approximate number of entries in one XTRIM, which takes some 10 ms. The server is busy for that time."""


_DAY_MS: Final = 86_400_000

_log = logging.getLogger("headwater.spark")


class Trimming(NamedTuple):
    """Options of a trim: entries to keep although no reader needs them, and queries to ignore.

    Entries younger than ``keep_ms`` are kept. A query that has not renewed its line for
    ``forget_queries_after_ms`` is ignored; if that limit is None, every query counts.
    """

    keep_ms: int = 0
    forget_queries_after_ms: int | None = None


class Hold(NamedTuple):
    """``first`` is the smallest id that ``who`` needs."""

    first: StreamID
    who: str


_LUA: Final = Script("""
local function less(a, b)
  local am, as = string.match(a, '^(%d+)-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)-(%d+)$')
  if am ~= bm then
    if #am ~= #bm then return #am < #bm end
    return am < bm
  end
  if #as ~= #bs then return #as < #bs end
  return as < bs
end
local function incremented(digits)
  local nines = string.match(digits, '9*$')
  local head = string.sub(digits, 1, #digits - #nines)
  if head == '' then return '1' .. string.rep('0', #nines) end
  local last = string.char(string.byte(head, -1) + 1)
  return string.sub(head, 1, -2) .. last .. string.rep('0', #nines)
end
local function after(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  if seq == '18446744073709551615' then return incremented(ms) .. '-0' end
  return ms .. '-' .. incremented(seq)
end
local bound = ARGV[1]
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local of = {}
  for i = 1, #group, 2 do of[group[i]] = group[i + 1] end
  local pending = redis.call('XPENDING', KEYS[1], of['name'])
  if pending[1] > 0 and less(pending[2], bound) then bound = pending[2] end
  local undelivered = after(of['last-delivered-id'])
  if less(undelivered, bound) then bound = undelivered end
end
return redis.call('XTRIM', KEYS[1], 'MINID', '=', bound)
""")
"""Checks the groups and trims in one step. Returns the number of removed entries. Ids are compared and
incremented as strings, because Lua's numbers have only 53 bits."""


class Trimmer:
    """Trims one stream up to what its archive contains."""

    def __init__(self, store: SourceStore, manifest: Manifest, trimming: Trimming) -> None:
        self._store = store
        self._manifest = manifest
        self._trimming = trimming
        self._acked = True

    def holds(self) -> list[Hold]:
        """Return all holds on entries in the order of ids. The first hold limits a trim."""
        return sorted([*self._own(), *self._groups(), *self._queries()])

    def trim(self) -> int:
        """Remove the archived entries that no reader needs; return their number."""
        stream = self._manifest.stream
        if self._store.state(stream) is None:
            return 0
        bound = self.holds()[0].first
        for query, age_ms in self._awaited():
            if age_ms <= _DAY_MS or _next(query.id) > bound:
                continue  # the query runs, or other readers need these entries too
            _log.warning(
                "the query %s of %s has not been seen for %d days, so %r keeps the entries that the query has not "
                "read%s. If it will not run again: HDEL %s %s",
                query.query,
                query.app or "an unknown host",
                age_ms // _DAY_MS,
                stream,
                self._until(),
                queries_key(stream),
                query.query,
            )
        return sum(self._remove_below(stream, step) for step in self._steps(bound))

    def _own(self) -> Iterator[Hold]:
        yield Hold(_next(self._manifest.end.id), "the archive, which ends before it")
        if self._trimming.keep_ms:
            kept = max(0, self._now_ms() - self._trimming.keep_ms)
            yield Hold(StreamID(kept, 0), "the setting keep")

    def _groups(self) -> Iterator[Hold]:
        stream = self._manifest.stream
        if self._store.state(stream) is None:
            return
        for group in self._store.ask("XINFO GROUPS", stream):
            values = as_dict(group)
            name = repr(as_text(values["name"]))
            delivered = StreamID.parse(values["last-delivered-id"])
            yield Hold(_next(delivered), f"group {name}, to which it was not delivered")
            # A bytes name: for a str, redis-py would turn the reply into objects of its own.
            count, smallest, *_ = self._store.ask(b"XPENDING", stream, values["name"])
            if count:
                yield Hold(StreamID.parse(smallest), f"group {name}, in which it is pending")

    def _queries(self) -> Iterator[Hold]:
        for query, age_ms in self._awaited():
            who = f"query {query.query} of {query.app or 'an unknown host'}, which has not read it"
            if age_ms > _DAY_MS:
                who += f" and has not been seen for {age_ms // _DAY_MS} days"
            yield Hold(_next(query.id), who)

    def _awaited(self) -> Iterator[tuple[Committed, int]]:
        """Yield the queries that are not forgotten, each with the milliseconds since it was last seen."""
        forget = self._trimming.forget_queries_after_ms
        client, stream = self._store.client, self._manifest.stream
        queries = patiently(self._store.options.url, lambda: committed(client, stream))
        now_ms = self._now_ms() if queries else 0
        for query in queries:
            age_ms = now_ms - query.at_ms
            if forget is None or age_ms <= forget:
                yield query, age_ms

    def _until(self) -> str:
        forget = self._trimming.forget_queries_after_ms
        return (
            "" if forget is None else f" until it has not been seen for {forget / _DAY_MS:g} days"
        )

    def _steps(self, bound: StreamID) -> Iterator[StreamID]:
        """Yield ids about `STEP_ENTRIES` apart, then ``bound``."""
        state = self._store.state(self._manifest.stream)
        index = Index(self._manifest)
        if state is not None and index.entries:
            rank, last = index.rank(state.first_id), index.rank(bound)
            while (rank := rank + STEP_ENTRIES) < last:
                yield index.id_at(rank)
        yield bound

    def _remove_below(self, stream: str, bound: StreamID) -> int:
        # If the trim is repeated after a lost reply, the returned count is too small, but the trim is correct.
        if self._acked:
            try:
                return int(self._store.ask("XTRIM", stream, "MINID", "=", str(bound), "ACKED"))
            except HeadwaterError as error:
                if "syntax" not in str(error):
                    raise
                self._acked = False
        return int(self._store.run_all(_LUA, [([stream], [str(bound)])])[0])

    def _now_ms(self) -> int:
        return server_ms(self._store.ask("TIME"))


def _next(id_: StreamID) -> StreamID:
    return id_ if id_ == MAX_ID else after(id_)
