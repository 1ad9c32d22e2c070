"""Adding entries to streams: many in order, one at most once, one that replicas confirm.

Rule. `add_once` may be repeated: the store recognizes the repetition by its key and returns the id of
the first entry.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import NotReplicated
from headwater.groups.operation import Command, Operation, Refused, Script, Word, accepted
from headwater.groups.settling import LOADED_BYTES, LUA_WORDS, Addition, size_of
from headwater.groups.store_errors import CREDENTIALS, Remedy, Step, remedy
from headwater.messages import dedupe_key

CHUNK = 1_000
"""How many messages are sent before their replies are read."""

PRODUCER = "hw"
"""The producer id of Headwater's messages. All apps use it, so that they share their keys."""

MOST_KEYS = 10_000
"""How many keys a stream remembers of a producer: the most that XCFGSET accepts."""

_PLACE = "hw.place"
"""A group that exists only while the stream is created."""


class Adding:
    """Entries to add in order, with the outcome of each."""

    def __init__(self, additions: Sequence[Addition]) -> None:
        self.additions = additions
        self.outcomes: list[str | Refused | None] = [None] * len(additions)
        """For each entry its id, or the error with which the store rejects it for good; None if it is not
        added yet."""

    def rest(self) -> Operation[None]:
        """Add the entries that have no outcome yet.

        Raises the first error of an entry that the store cannot add now. Such entries were not added, so
        the operation may be repeated.
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
    """Return whether the store refused to add an entry now and may accept it later (`store_errors`)."""
    refused = isinstance(error, Refused) and error.code not in CREDENTIALS
    return refused and remedy(error, Step.PUBLISH) in (Remedy.WAIT, Remedy.RECONNECT)


def add_one(addition: Addition) -> Operation[str]:
    """Add an entry and return its id."""
    replies = yield [["XADD", addition.stream, *addition.words()]]
    entry_id: bytes = accepted(replies[0])
    return entry_id.decode()


def add_replicated(addition: Addition, *, replicas: int, timeout_ms: int) -> Operation[str]:
    """Add an entry, wait until ``replicas`` replicas have it, and return its id.

    Raises `NotReplicated` if too few confirm it in time. The entry was added in this case too.
    """
    replies = yield [["XADD", addition.stream, *addition.words()], ["WAIT", replicas, timeout_ms]]
    entry_id: str = accepted(replies[0]).decode()
    # An error of WAIT, as on a primary that has just been demoted, confirms nothing.
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
    """Add an entry unless one was added with this key within the window. Return the id of either."""
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
    # Configured with every message, because deleting a stream deletes its configuration. A change of
    # these values drops all keys, so the stream must have them before its first entry.
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
-- KEYS stream, the string with the id. ARGV window in ms, XADD's arguments after the key.
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
    large = size_of([addition]) > LOADED_BYTES
    entry_id: bytes = yield from _ADD_ONCE.call(keys, [window_ms, *words], large=large)
    return entry_id.decode()
