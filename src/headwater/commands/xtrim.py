"""XTRIM, and `Trim`, the options MAXLEN and MINID of XTRIM and XADD.

The number of entries that ``~`` removes depends on Redis's nodes (engine/redis_nodes/nodes.py).

Source: Redis, streamTrim and streamParseAddOrTrimArgsOrReply.
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.common.model import flat_words
from headwater.engine.facts.facts import HEADROOM, ID_BYTES
from headwater.engine.keyspace.events import STREAM
from headwater.engine.redis_nodes.node_runs import NodeRun
from headwater.engine.streams.stream import StoredStream
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

KEEPREF, DELREF, ACKED = b"KEEPREF", b"DELREF", b"ACKED"
REFERENCE_MODES = (KEEPREF, DELREF, ACKED)

_TWO = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
_NO_STRATEGY = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
_NO_TILDE = "ERR syntax error, LIMIT cannot be used without the special ~ option"
_MAX_DEFAULT_LIMIT = 1_000_000


class _Plan:
    """The entries that a trim removes: all up to ``bound``, and ``ids`` after it; ``gone`` is their number. With
    ``stays``, the node in which the trim ends is kept (engine/redis_nodes/nodes.py, rule 2)."""

    def __init__(self) -> None:
        self.gone = 0
        self.bound: tuple[int, int] | None = None
        self.ids: list[tuple[int, int]] = []
        self.stays = False


class Trim:
    """The trimming options of one command. `take` parses them, `check` validates them, `apply` trims."""

    def __init__(self) -> None:
        self.maxlen = -1
        self.minid: tuple[int, int] | None = None
        self.approximate = False
        self.limit = -1
        """Maximum number of entries to remove; 0 means no limit, -1 that LIMIT was not given."""
        self.mode = b""

    @property
    def given(self) -> bool:
        """True if MAXLEN or MINID was given."""
        return self.maxlen >= 0 or self.minid is not None

    def take(self, arguments: Arguments, index: int) -> int:
        """Parse the option at ``index``. Return the index after it; ``index`` if it is not a trimming option."""
        word = arguments.token(index)
        more = arguments.count - 1 - index
        if word in (b"MAXLEN", b"MINID") and more:
            return self._strategy(arguments, index, word, more)
        if word == b"LIMIT" and more:
            self.limit = arguments.integer(index + 1)
            if self.limit < 0:
                raise CommandError("ERR The LIMIT argument must be >= 0.")
            return index + 2
        if word in REFERENCE_MODES and not self.mode:
            self.mode = word
            return index + 1
        return index

    def _strategy(self, arguments: Arguments, index: int, word: bytes, more: int) -> int:
        if self.given:
            raise CommandError(_TWO)
        self.approximate = False
        index += 1
        sign = arguments.bytes(index)
        if more >= 2 and sign in (b"~", b"="):
            self.approximate = sign == b"~"
            index += 1
        if word == b"MAXLEN":
            self.maxlen = arguments.integer(index)
            if self.maxlen < 0:
                raise CommandError("ERR The MAXLEN argument must be >= 0.")
        else:
            self.minid = arguments.id(index)
        return index + 1

    def check(self, node_max_entries: int) -> None:
        """Check the combination of options, and set the default LIMIT of ``~``. Raises `CommandError`."""
        if self.limit > 0 and not self.given:
            raise CommandError(_NO_STRATEGY)
        if self.limit >= 0:
            if not self.approximate:
                raise CommandError(_NO_TILDE)
        elif self.approximate:
            most = min(node_max_entries, _MAX_DEFAULT_LIMIT)  # 100 times a larger one overflows
            self.limit = min(100 * most or 10_000, _MAX_DEFAULT_LIMIT)
        else:
            self.limit = 0

    def fact_bytes(self, stream: StoredStream | None, added: int) -> int:
        """Return an upper bound for the facts of `apply` after ``added`` more entries, in bytes."""
        if stream is None or self.mode in (b"", KEEPREF):
            return HEADROOM
        most = stream.length + added
        if self.minid is not None:
            most = stream.log.count_range((0, 0), self.minid) + added
        elif self.maxlen >= 0:
            most = max(0, most - self.maxlen)
        return HEADROOM + (most * ID_BYTES + HEADROOM) * (1 + len(stream.groups))

    def apply(self, stream: StoredStream) -> int:
        """Trim the stream. Return the number of removed entries."""
        if not self.given:
            return 0
        plan = _Plan()
        self._plan(stream, plan)
        if plan.bound is not None:
            stream.trim_through(*plan.bound)
        if plan.ids:
            if self.mode == DELREF:
                forget(stream, plan.ids)
            stream.delete(plan.ids, marks=False, stays=plan.stays)
        return plan.gone

    def _plan(self, stream: StoredStream, plan: _Plan) -> None:
        nodes, keeps_references = stream.nodes, self.mode in (b"", KEEPREF)
        passed = node = 0
        count = len(nodes)
        while node < count:
            if self._enough(stream.length - plan.gone, None):
                break
            run = nodes.run_at(node) if keeps_references else None
            if run is not None and self._covers_run(stream.length - plan.gone, plan, run):
                plan.gone += run.live
                plan.bound = run.last_ms, run.last_seq
                node += run.count
                continue
            live = nodes.live(node)
            if self.limit and plan.gone + live > self.limit:
                break
            whole = self._covers(stream.length - plan.gone - live, nodes.last(node))
            passed += live
            if whole and (keeps_references or passed == 0):
                plan.gone += live
                plan.bound = nodes.last(node)
                node += 1
                continue
            if keeps_references and self.approximate:
                break
            plan.stays = self._pick(stream, node, plan) and not whole
            if not whole:
                break
            node += 1

    def _covers_run(self, length: int, plan: _Plan, run: NodeRun) -> bool:
        """Return whether all nodes of a run are removed entirely, from a stream of ``length`` entries."""
        if self.limit and plan.gone + run.live > self.limit:
            return False
        return self._covers(length - run.live, (run.last_ms, run.last_seq))

    def _pick(self, stream: StoredStream, node: int, plan: _Plan) -> bool:
        """Choose entries of one node, one by one. Return whether any was chosen."""
        before = plan.gone
        spans, _ = stream.log.spans(stream.nodes.first(node), stream.nodes.last(node))
        for entry_id in (found for span in spans for found in span.ids()):
            if self._enough(stream.length - plan.gone, entry_id):
                break
            if self.mode == ACKED and stream.referenced(entry_id):
                continue
            plan.gone += 1
            if self.mode in (b"", KEEPREF):
                plan.bound = entry_id
            else:
                plan.ids.append(entry_id)
        return plan.gone > before

    def _enough(self, length: int, entry_id: tuple[int, int] | None) -> bool:
        """Return whether the remaining entries, from ``entry_id`` (None: unknown) on, can all stay."""
        if self.minid is None:
            return length <= self.maxlen
        return entry_id is not None and entry_id >= self.minid

    def _covers(self, length_without: int, last: tuple[int, int]) -> bool:
        """Return whether a node with the last id ``last`` is removed entirely; ``length_without`` entries remain."""
        if self.minid is None:
            return length_without >= self.maxlen
        return last < self.minid


def forget(stream: StoredStream, ids: list[tuple[int, int]]) -> None:
    """Remove ``ids`` from all pending lists of ``stream`` (DELREF)."""
    for group in stream.sorted_groups():
        pending = [entry_id for entry_id in ids if group.pel.find(*entry_id) >= 0]
        if pending:
            group.acknowledge(flat_words(pending))


def xtrim(call: Call) -> None:
    """XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT n] [KEEPREF|DELREF|ACKED] → the number of
    removed entries."""
    arguments, trim = call.arguments, Trim()
    index = 2
    while index < arguments.count:
        following = trim.take(arguments, index)
        if following == index:
            raise CommandError("ERR syntax error")
        index = following
    if trim.limit > 0 and not trim.given:
        raise CommandError(_NO_STRATEGY)
    if not trim.given:
        raise CommandError("ERR syntax error, XTRIM must be called with a trimming strategy")
    trim.check(call.settings.node_max_entries)
    key = arguments.bytes(1)
    stream = call.stream(key)
    gone = 0
    if stream is not None:
        call.admit(trim.fact_bytes(stream, 0))
        gone = trim.apply(stream)
        if gone:
            call.modified(key, gone)
            call.notify(STREAM, b"xtrim", key)
    call.reply.integer(gone)
