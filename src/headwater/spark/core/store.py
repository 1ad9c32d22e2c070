"""The client that planning uses. It transfers no entry bodies, except the first and last entry that XINFO
STREAM returns.

Rule 1. All commands are safe to repeat: one that failed because of a lost connection is repeated (connection.py).
Rule 2. On a cluster, requests about a stream are sent to the node that owns it, and a search asks all primaries.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headwater.client.redaction import redacted
from headwater.client.server_url import is_cluster
from headwater.errors import DeclarationError, Disconnected, HeadwaterError
from headwater.groups.protocol.operation import Operation, Refused, Script, batched, run_together
from headwater.messages.keys import RESERVED
from headwater.spark.core import counters
from headwater.spark.core.connection import connect, patiently, refuse_node
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.positions import StreamState
from headwater.spark.core.replies import as_dict, as_text

if TYPE_CHECKING:
    import redis

_log = logging.getLogger("headwater.spark")

T = TypeVar("T")
Command = tuple[str | bytes | int, ...]
ScriptCall = tuple[Sequence[str], Sequence[str | int]]
"""The keys and the arguments of a Lua script."""

_MOST_LEFT_OUT: Final = 1000
"""Maximum number of keys that the log names as not read."""

_SEARCH_SECONDS: Final = 1.0
_SEARCH_SHARE: Final = 20
"""Minimum time between two searches of a query for new streams: a second, and 20 times a search's duration."""

_MOST_SEARCHES: Final = 5
"""Maximum number of searches of a cluster, which are repeated until a search finds nothing new."""

COUNTED_TOGETHER: Final = 500
"""Maximum number of streams whose counters one request returns: some milliseconds on Redis and Valkey."""

_SEARCH_CALLS: Final = 20
_SEARCH_KEYS: Final = 1000
"""Limits of the search for a name that resembles a misspelt one: calls, and keys per call. It takes some 20 ms."""


class SourceStore:
    """The server or cluster that planning asks about streams."""

    def __init__(self, options: SourceOptions, client: redis.Redis | None = None) -> None:
        self.options = options
        self.client = client or connect(options.url)
        self.clustered = is_cluster(options.url)
        """True if the streams are on several nodes."""
        self._splits: bool | None = None
        self._is_single = False
        """True if the url is known to name a server that is not a node of a cluster."""
        self._left_out: set[bytes] = set()
        self._found: list[str] = []
        self._search_again = 0.0

    def close(self) -> None:
        self.client.close()

    def ask(self, *words: str | bytes | int) -> Any:
        """Return the reply to one command."""
        return self.patiently(lambda: self.client.execute_command(*words))

    def ask_together(self, *commands: Command) -> list[Any]:
        """Return the replies to commands that run in one MULTI, so that all see the same state.

        The reply to a command that fails is its error. A cluster runs the commands one after another.
        """
        return self._pipelined(commands, transaction=True)

    def ask_all(self, commands: Iterable[Command]) -> list[Any]:
        """Return the replies to commands that are sent together and run one after another. The reply to a command
        that fails is its error."""
        return self._pipelined(list(commands), transaction=False)

    def _pipelined(self, commands: Sequence[Command], *, transaction: bool) -> list[Any]:
        def send() -> list[Any]:
            # A cluster has no transactions over several nodes, and no command here needs one there.
            pipeline = self.client.pipeline(transaction=transaction and not self.clustered)
            for command in commands:
                pipeline.execute_command(*command)
            replies: list[Any] = pipeline.execute(raise_on_error=False)
            return replies

        return self.patiently(send)

    def run_all(self, script: Script, calls: Sequence[ScriptCall]) -> list[Any]:
        """Return a Lua script's replies to ``calls``, which are sent together. The script may run twice."""
        if self.clustered:
            return self.run_operations(lambda: [script.call(*call) for call in calls])
        return self.patiently(lambda: self._evaluated(script, calls))

    def _evaluated(self, script: Script, calls: Sequence[ScriptCall]) -> list[Any]:
        import redis

        def evaluate() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            for keys, arguments in calls:
                pipeline.evalsha(script.digest, len(keys), *keys, *arguments)
            replies: list[Any] = pipeline.execute(raise_on_error=False)
            return replies

        replies = evaluate()
        if any(isinstance(one, redis.exceptions.NoScriptError) for one in replies):
            # ACL rules may permit SCRIPT LOAD without EVAL. A cluster's client would load it on one node only.
            self.client.script_load(script.text)
            replies = evaluate()
        for one in replies:
            if isinstance(one, Exception):
                raise one
        return replies

    def run_operations(self, operations: Callable[[], list[Operation[Any]]]) -> list[Any]:
        """Return the results of operations, which may run twice. Their next commands are sent in one request."""

        def ask() -> list[Any]:
            return run_together(self.client, operations())

        try:
            return self.patiently(ask)
        except Refused as error:
            raise HeadwaterError(f"{redacted(self.options.url)} answered: {error}") from error

    def patiently(self, ask: Callable[[], T]) -> T:
        """Call ``ask`` as `connection.patiently` does."""
        return patiently(self.options.url, ask)

    @property
    def splits(self) -> bool:
        """True if the server has XSPLIT and XCOUNTERS, that is, if it is Headwater."""
        if self._splits is None and self.clustered:
            self._splits = False  # Headwater has no cluster mode
        if self._splits is None:
            try:
                reply = self.ask("COMMAND INFO", "XCOUNTERS")
            except Disconnected:
                raise
            except HeadwaterError:
                reply = None  # ACL rules forbid COMMAND: plan with what all servers support
            self._splits = counters.is_known(reply)
        return self._splits

    def streams(self) -> list[str]:
        """Return the named streams, even if they do not exist, or all existing streams that match the pattern."""
        if self.options.pattern is None:
            return list(self.options.streams)
        found: set[str] = set()
        for key in self.patiently(self._keys):
            try:
                name = key.decode()
            except UnicodeDecodeError:
                self._leave_out(key)
                continue
            if RESERVED not in name and self.options.includes(name):
                found.add(name)
        return sorted(found)

    def _keys(self) -> set[bytes]:
        """Return the keys that the pattern's glob matches, on all nodes."""
        assert self.options.pattern is not None, "a search has a pattern"
        glob = self.options.pattern.glob

        def scan(client: redis.Redis) -> set[bytes]:
            return set(client.scan_iter(glob, count=1000, _type="stream"))

        from headwater.client.sync.cluster import ClusterClient

        if not isinstance(self.client, ClusterClient):
            if not self._is_single:
                refuse_node(self.options.url, self.client)
                self._is_single = True
            return scan(self.client)
        # A search misses a key that moves to a node already searched. The next search finds that key.
        found: set[bytes] = set()
        for _attempt in range(_MOST_SEARCHES):
            keys = found.union(*self.client.each_primary(scan))
            if keys == found:
                break
            found = keys
        return found

    def recent_streams(self) -> list[str]:
        """Return `streams`, cached for a second or, if longer, for 20 times the duration of the last search."""
        began = time.monotonic()
        if began >= self._search_again:
            self._found = self.streams()
            took = time.monotonic() - began
            self._search_again = began + max(_SEARCH_SECONDS, _SEARCH_SHARE * took)
        return self._found

    def _leave_out(self, key: bytes) -> None:
        """Log, once per key, that a stream is not read."""
        if key not in self._left_out and len(self._left_out) < _MOST_LEFT_OUT:
            self._left_out.add(key)
            _log.warning(
                "the pattern %r matches the key %r, whose name is not UTF-8, so the column stream cannot "
                "hold it: its entries are not read.",
                str(self.options.pattern),
                key,
            )

    def state(self, stream: str) -> StreamState | None:
        """Return the state of ``stream``, as the server reports it; None if the key does not exist."""
        (reply,) = self.ask_together(("XINFO STREAM", stream))
        return self.read_state(stream, reply)

    def states(self, streams: Iterable[str]) -> dict[str, StreamState | None]:
        """Return the states of many streams, in few requests and without transferring entries."""
        found: dict[str, StreamState | None] = {}
        for names in batched(streams, COUNTED_TOGETHER):
            found |= self.states_and(names, ())[0]
        return found

    def missing(self, streams: Sequence[str]) -> list[str]:
        """Return those of ``streams`` whose key does not exist on the server that owns it."""
        replies = self.ask_all(("EXISTS", stream) for stream in streams)
        refused = next((one for one in replies if isinstance(one, Exception)), None)
        if refused is not None:
            raise HeadwaterError(
                f"{redacted(self.options.url)} answered: {refused}. The query must be able to check with "
                f"EXISTS whether the streams {', '.join(streams[:5])} were removed"
            )
        return [stream for stream, reply in zip(streams, replies, strict=True) if reply == 0]

    def forget(self, streams: Iterable[str]) -> None:
        """Omit removed streams from `recent_streams` until a search finds them again."""
        gone = set(streams)
        self._found = [stream for stream in self._found if stream not in gone]

    def states_and(
        self, streams: Sequence[str], commands: Sequence[Command]
    ) -> tuple[dict[str, StreamState | None], list[Any]]:
        """Return the states of a few streams, and the replies to ``commands``, at one moment (on Headwater)."""
        counted, replies = self._counted(streams, commands)
        states = None if isinstance(counted, Exception) else counters.states_of(counted)
        if states is None:
            # One by one, because an error names the stream.
            return {stream: self.state(stream) for stream in streams}, replies
        return dict(zip(streams, states, strict=True)), replies

    def _counted(
        self, streams: Sequence[str], commands: Sequence[Command]
    ) -> tuple[Any, list[Any]]:
        """Return the server's counters of streams, or its error, and the replies to ``commands``."""
        try:
            if self.splits:
                reply, *replies = self.ask_together(("XCOUNTERS", *streams), *commands)
                return reply, replies
            counted = self.script_counters(streams)
        except Disconnected:
            raise
        except HeadwaterError as error:
            return error, self.ask_together(*commands) if commands else []
        return counted, self.ask_together(*commands) if commands else []

    def script_counters(self, streams: Sequence[str]) -> list[Any]:
        """Return the counters of streams, as a Lua script returns them, from a server without XCOUNTERS."""
        if self.clustered:  # a script has the keys of one slot
            replies = self.run_operations(
                lambda: [counters.SCRIPT.call([one], []) for one in streams]
            )
            return [reply[0] if reply else None for reply in replies]
        counted: list[Any] = []
        while len(counted) < len(streams):
            counted += self.run_all(counters.SCRIPT, [(streams[len(counted) :], ())])[0]
        return counted

    def read_state(self, stream: str, reply: Any) -> StreamState | None:
        """Parse a reply of XINFO STREAM. Raises `DeclarationError` for a key that is not a stream."""
        if isinstance(reply, Exception):
            text = str(reply)
            if "no such key" in text:
                return None
            if "WRONGTYPE" in text or "wrong kind of value" in text:
                kind = self.ask("TYPE", stream)
                raise DeclarationError(
                    f"stream: the key {stream!r} holds a {as_text(kind)}, not a stream"
                )
            raise HeadwaterError(f"{redacted(self.options.url)} answered: {text}") from reply
        state = counters.state_in(as_dict(reply))
        if state is None:
            raise HeadwaterError(
                f"{redacted(self.options.url)} does not count the entries added to a stream "
                "(entries-added), so completeness cannot be checked. Redis 7.0, Valkey 7.2 and "
                "Headwater do."
            )
        return state

    def unknown(self, stream: str) -> DeclarationError:
        """Return the error for a named stream that does not exist, with the nearest existing name."""
        near = get_close_matches(stream, self.some_streams(), n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return DeclarationError(
            f"stream: there is no stream {stream!r} at {redacted(self.options.url)}.{hint} A pattern "
            f"like {stream + '*'!r} finds a stream that is created later; XGROUP CREATE {stream} <group> "
            "$ MKSTREAM creates an empty one."
        )

    def some_streams(self) -> list[str]:
        """Return the names of streams that a search of limited length finds."""
        found: list[str] = []
        cursor = 0
        try:
            for _call in range(_SEARCH_CALLS):
                cursor, keys = self.ask("SCAN", cursor, "COUNT", _SEARCH_KEYS, "TYPE", "stream")
                found += [as_text(key) for key in keys]
                if not int(cursor):
                    break
        except HeadwaterError:
            pass  # ACL rules forbid SCAN, so there is no hint
        return [name for name in found if RESERVED not in name]

    def entry_sizes(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Estimate the bytes per entry, at least 1, by stream; ``lengths`` are the numbers of entries.

        Divides the key's memory, which includes its groups, by the number of entries: one command for a
        stream of any length.
        """
        found: dict[str, int] = {}
        for names in batched(lengths, COUNTED_TOGETHER):
            memory = self.ask_all(("MEMORY USAGE", name) for name in names)
            for name, size in zip(names, memory, strict=True):
                if isinstance(size, Exception):
                    raise HeadwaterError(f"{redacted(self.options.url)} answered: {size}")
                found[name] = max(1, int(size or 0) // max(1, lengths[name]))
        return found
