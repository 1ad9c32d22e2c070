"""Adding entries to streams: many in order, one at most once, one that replicas have.

Rule. What `add_once` sends may be sent again: the store recognizes the repetition by its key and
answers with the id of the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import NotReplicated
from headwater.groups.operation import Command, Operation, Refused, Script, Word, accepted
from headwater.groups.settling import LUA_WORDS, Addition
from headwater.messages import dedupe_key

CHUNK = 1_000
"""Messages sent before their replies are read."""

PRODUCER = "hw"
"""The producer id of Headwater's messages, one for all apps: they share their keys."""

MOST_KEYS = 10_000
"""Keys that a stream remembers of one producer, the most that XCFGSET takes."""

_PLACE = "hw.place"
"""A group that exists only while the stream is created."""


def add_all(additions: Sequence[Addition]) -> Operation[list[str | Refused]]:
    """Add entries in order: an id each, or why it was refused."""
    outcomes: list[str | Refused] = []
    for first in range(0, len(additions), CHUNK):
        commands: list[Command] = [
            ["XADD", one.stream, *one.words()] for one in additions[first : first + CHUNK]
        ]
        replies = yield commands
        outcomes += [reply if isinstance(reply, Refused) else reply.decode() for reply in replies]
    return outcomes


def add_replicated(addition: Addition, *, replicas: int, timeout_ms: int) -> Operation[str]:
    """Add an entry and wait until so many replicas have it; its id. `NotReplicated` if too few
    confirm it within the time: the entry is there nevertheless."""
    replies = yield [["XADD", addition.stream, *addition.words()], ["WAIT", replicas, timeout_ms]]
    entry_id: str = accepted(replies[0]).decode()
    confirmed = int(accepted(replies[1]))
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
