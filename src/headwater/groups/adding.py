"""Adding entries to streams: many in order, one at most once, one that replicas have.

Rule. What `add_once` sends may be sent again: the store recognizes the repetition by its key and
answers with the id of the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import NotReplicated
from headwater.groups.operation import Command, Operation, Refused, Script, Word, accepted
from headwater.groups.settling import LUA_WORDS, Addition
from headwater.groups.store_errors import CREDENTIALS, Remedy, Step, remedy
from headwater.messages import dedupe_key

CHUNK = 1_000
"""Messages sent before their replies are read."""

PRODUCER = "hw"
"""The producer id of Headwater's messages, one for all apps: they share their keys."""

MOST_KEYS = 10_000
"""Keys that a stream remembers of one producer, the most that XCFGSET takes."""

_PLACE = "hw.place"
"""A group that exists only while the stream is created."""


class Adding:
    """Entries to be added in order, and what has become of each."""

    def __init__(self, additions: Sequence[Addition]) -> None:
        self.additions = additions
        self.outcomes: list[str | Refused | None] = [None] * len(additions)
        """An id, or why the store will never take the entry; None while it was not added."""

    def rest(self) -> Operation[None]:
        """Add those that have no outcome yet.

        Raises the first refusal of those that the store cannot add now: nothing was added for them,
        so this may be carried out again.
        """
        waiting = [n for n, one in enumerate(self.outcomes) if one is None]
        if not waiting:
            return
        commands: list[Command] = []
        for n in waiting:
            one = self.additions[n]
            commands.append(["XADD", one.stream, *one.words()])
        later: list[Refused] = []
        for n, reply in zip(waiting, (yield commands), strict=True):
            if not isinstance(reply, Refused):
                self.outcomes[n] = reply.decode()
            elif may_be_added_later(reply):
                later.append(reply)
            else:
                self.outcomes[n] = reply
        if later:
            raise later[0]


def may_be_added_later(error: Exception) -> bool:
    """Whether the store said that it cannot add this now, and may later (`troubles`)."""
    refused = isinstance(error, Refused) and error.code not in CREDENTIALS
    return refused and remedy(error, Step.PUBLISH) in (Remedy.WAIT, Remedy.RECONNECT)


def add_one(addition: Addition) -> Operation[str]:
    """Add an entry; its id."""
    replies = yield [["XADD", addition.stream, *addition.words()]]
    entry_id: bytes = accepted(replies[0])
    return entry_id.decode()


def add_replicated(addition: Addition, *, replicas: int, timeout_ms: int) -> Operation[str]:
    """Add an entry and wait until so many replicas have it; its id. `NotReplicated` if too few
    confirm it within the time: the entry is there nevertheless."""
    replies = yield [["XADD", addition.stream, *addition.words()], ["WAIT", replicas, timeout_ms]]
    entry_id: str = accepted(replies[0]).decode()
    # A refused WAIT, as on a primary that was demoted meanwhile, confirms nothing.
    confirmed = 0 if isinstance(replies[1], Refused) else int(replies[1])
    if confirmed < replicas:
        raise NotReplicated(
            f"{entry_id} was added to {addition.stream!r}, but {confirmed} of {replicas} replicas "
            f"confirmed it within {timeout_ms} ms; a failover now could lose it",
            id=entry_id,
            replicas=confirmed,
        )
    return entry_id


def add_once(addition: Addition, *, key: str, window_ms: int) -> Operation[str]:
    """Add an entry unless one was added with this key within the window; the id of that one."""
    replies = yield [["COMMAND", "INFO", "xcfgset"]]
    known = replies[0]
    if isinstance(known, dict):
        known = list(known.values())
    if isinstance(known, list) and known and isinstance(known[0], list | tuple):
        return (yield from _by_idmp(addition, key, window_ms))
    return (yield from _by_script(addition, key, window_ms))


def _by_idmp(addition: Addition, key: str, window_ms: int) -> Operation[str]:
    stream = addition.stream
    window: list[Word] = ["IDMP-DURATION", -(-window_ms // 1000), "IDMP-MAXSIZE", MOST_KEYS]
    # With every message: a stream that was deleted meanwhile has forgotten it. A change of these
    # values forgets all keys, so the stream must have them before its first entry.
    configure: Command = ["XCFGSET", stream, *window]
    once: list[Word] = ["IDMP", PRODUCER, key, *addition.words()]
    replies = yield [configure, ["XADD", stream, "NOMKSTREAM", *once]]
    if replies[1] is None:
        replies = yield [
            ["XGROUP", "CREATE", stream, _PLACE, "0", "MKSTREAM"],
            ["XGROUP", "DESTROY", stream, _PLACE],
            configure,
            ["XADD", stream, *once],
        ]
    entry_id: bytes = accepted(replies[-1])
    accepted(replies[-2])
    return entry_id.decode()


_ADD_ONCE = Script(
    """
-- KEYS stream, what remembers the key. ARGV window in ms, XADD's words after the key.
local first = redis.call('GET', KEYS[2])
if first then return first end
local added = redis.call('XADD', KEYS[1], unpack(ARGV, 2))
redis.call('SET', KEYS[2], added, 'PX', ARGV[1])
return added
"""
)


def _by_script(addition: Addition, key: str, window_ms: int) -> Operation[str]:
    words = addition.words()
    if len(words) > LUA_WORDS:
        raise Refused(
            f"ERR {len(addition.fields)} fields are too many for dedupe= on this server, which takes "
            f"{LUA_WORDS // 2}: write the message as one field (codec='json')"
        )
    keys: list[Word] = [addition.stream, dedupe_key(addition.stream, key)]
    entry_id: bytes = yield from _ADD_ONCE.call(keys, [window_ms, *words])
    return entry_id.decode()
