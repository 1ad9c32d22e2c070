"""Adds entries to streams: in order, each at most once by its name, at a later time, confirmed by replicas.

Rule. An addition with names may be repeated. The store recognizes the repetition by the name and returns the id
of the first entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

from headwater.common.model import MIN_ID, StreamID
from headwater.errors import NotReplicated
from headwater.groups.protocol.operation import (
    Command,
    Operation,
    Refused,
    Script,
    Word,
    accepted,
    batched,
    mapping,
    refused,
)
from headwater.groups.protocol.store_errors import CREDENTIALS, Remedy, Step, remedy
from headwater.groups.settling.scheduling import deferred, due_ms
from headwater.groups.settling.settling import LOADED_BYTES, LUA_WORDS, Addition, size_of
from headwater.messages.keys import dedupe_key, related_key

CHUNK = 1_000
"""Maximum number of messages that are sent before their replies are read."""

PRODUCER = "hw"
"""The producer id of Headwater's messages. All apps use the same id, so that they share idempotent ids."""

MOST_KEYS = 10_000
"""Number of idempotent ids that a stream remembers of a producer: the maximum that XCFGSET accepts."""

SCRIPT_MESSAGES = 50
"""Maximum number of named messages that one script adds: half a millisecond of the server's time."""

_PLACE = "hw.place"
"""Name of a group that exists only while the stream is created."""


class Once(NamedTuple):
    """The name of each entry, and the milliseconds for which the store remembers it."""

    names: Sequence[str]
    window_ms: int


class Replicas(NamedTuple):
    """The number of replicas that must confirm entries, and the maximum time for this in milliseconds."""

    number: int
    timeout_ms: int


class Adding:
    """Entries to add in order, with the outcome of each.

    With ``once``, an entry is added only if its name is new. With ``after_ms``, each entry is published after that
    delay. With ``replicas``, replicas confirm the entries that were added.
    """

    def __init__(
        self,
        additions: Sequence[Addition],
        *,
        once: Once | None = None,
        after_ms: Sequence[int] | None = None,
        replicas: Replicas | None = None,
    ) -> None:
        self.additions = additions
        if after_ms is not None:
            self.additions = [deferred(*pair) for pair in zip(additions, after_ms, strict=True)]
        self.once = once
        self.outcomes: list[str | Refused | None] = [None] * len(additions)
        """The outcome of each entry: its id, or the error with which the store rejects the entry permanently;
        None if it is not added yet."""
        self.after_ms = after_ms
        self.first = 0
        """Index of this part's first entry in the whole list; 0 if this object is the whole list."""
        self._due: dict[int, int] = {}
        """Index in the whole list → due time, in Unix milliseconds, of entries that had been scheduled before."""
        self._last: dict[str, StreamID] = {}
        """The last id of each stream before this call. Entries with a greater id are new, unless another client
        has just added the same name."""
        self._replicas = replicas
        self._confirmed: int | None = None

    def parts(self) -> Iterator[Adding]:
        """Yield parts of `CHUNK` entries. When the next part is requested, this object takes over the
        outcomes of the part before it."""
        once, after_ms = self.once, self.after_ms
        for first in range(0, len(self.additions), CHUNK):
            part = slice(first, first + CHUNK)
            made = copy(self)
            made.additions, made.outcomes = self.additions[part], self.outcomes[part]
            made.first = first
            made.once = once and Once(once.names[part], once.window_ms)
            made.after_ms = after_ms and after_ms[part]
            yield made
            self.outcomes[part] = made.outcomes

    def rest(self) -> Operation[None]:
        """Add the entries that have no outcome yet.

        Raises the first error of an entry that the store cannot add now. Such entries were not added, so
        it is safe to repeat the operation. Raises `NotReplicated` if too few replicas confirm.
        """
        waiting = [n for n, one in enumerate(self.outcomes) if one is None]
        later: list[Refused] = []
        if waiting:
            replies = (
                yield from self._add(waiting) if self.once is None else self._add_once(waiting)
            )
            for n, reply in zip(waiting, replies, strict=True):
                if not isinstance(reply, Refused):
                    self.outcomes[n] = reply.decode()
                elif may_be_added_later(reply):
                    later.append(reply)
                else:
                    self.outcomes[n] = reply
        if later:
            raise later[0]
        if self.once is not None and self.after_ms is not None:
            yield from self._look_up()
        if self._replicas is not None and self._confirmed is not None:
            self._check_replicas(self._replicas, self._confirmed)

    def due_ms(self) -> list[int]:
        """Return the due time of each scheduled entry, in Unix milliseconds of the store."""
        assert self.after_ms is not None
        due = [_ms(one) + after for one, after in zip(self.outcomes, self.after_ms, strict=True)]
        for n, found in self._due.items():
            due[n] = found
        return due

    def _add(self, waiting: Sequence[int]) -> Operation[list[Any]]:
        entries = [self.additions[n] for n in waiting]
        return (yield from self._sent([["XADD", one.stream, *one.words()] for one in entries]))

    def _add_once(self, waiting: Sequence[int]) -> Operation[list[Any]]:
        assert self.once is not None
        by_stream: dict[str, list[int]] = {}
        for n in waiting:
            by_stream.setdefault(self.additions[n].stream, []).append(n)
        looked = [] if self.after_ms is None else [*by_stream]
        looks: list[Command] = [["XINFO", "STREAM", one] for one in looked]
        known, *infos = yield [["COMMAND", "INFO", "xcfgset"], *looks]
        if isinstance(known, dict):
            known = list(known.values())
        for stream, info in zip(looked, infos, strict=True):
            if not isinstance(info, Refused):
                last = StreamID.parse(mapping(info)[b"last-generated-id"])
                self._last.setdefault(stream, last)
        idmp = isinstance(known, list) and known and isinstance(known[0], list | tuple)
        add = self._by_idmp if idmp else self._by_script
        found = yield from add(by_stream, self.once)
        return [found[n] for n in waiting]

    def _by_idmp(
        self, by_stream: Mapping[str, Sequence[int]], once: Once
    ) -> Operation[dict[int, Any]]:
        window: list[Word] = [
            "IDMP-DURATION",
            -(-once.window_ms // 1000),
            "IDMP-MAXSIZE",
            MOST_KEYS,
        ]
        found: dict[int, Any] = {}
        settings: dict[str, Any] = {}
        for missing in (False, True):  # streams that do not exist are created in the second round
            commands: list[Command] = []
            places: list[int | str | None] = []
            for stream, numbers in by_stream.items():
                rest = [n for n in numbers if n not in found]
                if not rest:
                    continue
                if missing:
                    commands.append(["XGROUP", "CREATE", stream, _PLACE, "0", "MKSTREAM"])
                    commands.append(["XGROUP", "DESTROY", stream, _PLACE])
                    places += [None, None]
                # Every call configures the stream, because deleting a stream deletes its configuration. A change
                # of the values drops all idempotent ids, so they must be set before the stream's first entry.
                commands.append(["XCFGSET", stream, *window])
                places.append(stream)
                create: list[Word] = [] if missing else ["NOMKSTREAM"]
                for n in rest:
                    how = [*create, "IDMP", PRODUCER, once.names[n], *self.additions[n].words()]
                    commands.append(["XADD", stream, *how])
                places += rest
            replies = yield from self._sent(commands)
            for place, reply in zip(places, replies, strict=True):
                if isinstance(place, str):
                    settings[place] = reply
                elif place is not None and reply is not None:
                    found[place] = reply
        if not any(isinstance(one, Refused) for one in found.values()):
            for reply in settings.values():
                accepted(reply)
        return found

    def _by_script(
        self, by_stream: Mapping[str, Sequence[int]], once: Once
    ) -> Operation[dict[int, Any]]:
        found: dict[int, Any] = {}
        calls: list[tuple[list[int], list[Word]]] = []
        for stream, numbers in by_stream.items():
            short = []
            for n in numbers:
                addition = self.additions[n]
                if len(addition.words()) > LUA_WORDS:
                    found[n] = Refused(
                        f"ERR {len(addition.fields)} fields are too many for dedupe= on this server, which "
                        f"takes {LUA_WORDS // 2}: write the message as one field (codec='json')"
                    )
                else:
                    short.append(n)
            for part in batched(short, SCRIPT_MESSAGES):
                keys = [stream, *(dedupe_key(stream, once.names[n]) for n in part)]
                words: list[Word] = [len(keys), *keys, once.window_ms]
                for n in part:
                    one = self.additions[n].words()
                    words += [len(one), *one]
                calls.append((part, words))
        load: list[Command] = []
        if size_of(self.additions) > LOADED_BYTES:
            load = [["SCRIPT", "LOAD", _ADD_EACH.text]]  # so that large entries are not sent twice
        wanted: list[Command] = [["EVALSHA", _ADD_EACH.digest, *one[1]] for one in calls]
        replies = (yield from self._sent([*load, *wanted]))[len(load) :]
        if any(isinstance(one, Refused) and one.code == "NOSCRIPT" for one in replies):
            replies = yield from self._sent([["EVAL", _ADD_EACH.text, *one[1]] for one in calls])
        for (part, _words), reply in zip(calls, replies, strict=True):
            for place, n in enumerate(part):
                added: Any = reply if isinstance(reply, Refused) else reply[place]
                if isinstance(added, list):
                    added = refused(added[0].decode("utf-8", "replace"))
                found[n] = added
        return found

    def _look_up(self) -> Operation[None]:
        """Read the due times of entries that the store already had, and of those whose name was given twice."""
        seen: set[tuple[str, str]] = set()
        before: list[int] = []
        for n, (to, one) in enumerate(zip(self.additions, self.outcomes, strict=True)):
            if not isinstance(one, str):
                continue
            ms, _dash, seq = one.partition("-")
            if (to.stream, one) in seen or (int(ms), int(seq)) <= self._last.get(to.stream, MIN_ID):
                before.append(n)
            seen.add((to.stream, one))
        if not before:
            return
        commands: list[Command] = []
        for n in before:
            one = str(self.outcomes[n])
            commands.append(["XRANGE", self.additions[n].stream, one, one])
        for n, reply in zip(before, (yield commands), strict=True):
            for entry_id, fields in accepted(reply):
                self._due[self.first + n] = due_ms(entry_id, fields)

    def _sent(self, commands: list[Command]) -> Operation[list[Any]]:
        """Send commands, and have replicas confirm them. Return the replies without the confirmations."""
        if self._replicas is None or not commands:
            return (yield commands) if commands else []
        streams = {one.stream for one in self.additions}
        confirm: list[Command] = []
        for stream in streams:
            # The repetition of a message writes nothing that replicas could confirm, so this write follows it.
            confirm.append(["SET", related_key(stream, ":hw:wait"), "", "PX", 1])
            confirm.append(["WAIT", *self._replicas])
        replies = yield [*commands, *confirm]
        waits = replies[len(commands) + 1 :: 2]
        # An error of WAIT confirms nothing. A primary that has just been demoted returns one.
        self._confirmed = min(0 if isinstance(one, Refused) else int(one) for one in waits)
        return replies[: len(commands)]

    def _check_replicas(self, replicas: Replicas, confirmed: int) -> None:
        added = [one for one in self.outcomes if isinstance(one, str)]
        if confirmed >= replicas.number or not added:
            return
        many = added[0] if len(added) == 1 else f"{len(added)} messages"
        was, it = ("was", "it") if len(added) == 1 else ("were", "them")
        raise NotReplicated(
            f"{many} {was} added to {self.additions[0].stream!r}, but {confirmed} of {replicas.number} "
            f"replicas confirmed {it} within {replicas.timeout_ms} ms; a failover now could lose {it}",
            id=added[-1],
            replicas=confirmed,
        )


_ADD_EACH = Script(
    """
-- KEYS stream, for each message the string with its id. ARGV window in ms, for each message the number of words
-- and XADD's arguments after the key. Returns for each its id, or {error}.
local found, at = {}, 2
for i = 2, #KEYS do
  local words = tonumber(ARGV[at])
  local id = redis.call('GET', KEYS[i])
  if not id then
    id = redis.pcall('XADD', KEYS[1], unpack(ARGV, at + 1, at + words))
    if type(id) == 'table' then id = {id.err} else redis.call('SET', KEYS[i], id, 'PX', ARGV[1]) end
  end
  found[i - 1] = id
  at = at + 1 + words
end
return found
"""
)


def _ms(entry_id: object) -> int:
    return int(str(entry_id).partition("-")[0])


def may_be_added_later(error: Exception) -> bool:
    """Return whether the store, which refused an entry now, may accept it later (`store_errors`)."""
    refused = isinstance(error, Refused) and error.code not in CREDENTIALS
    return refused and remedy(error, Step.PUBLISH) in (Remedy.WAIT, Remedy.RECONNECT)


def add_one(addition: Addition) -> Operation[str]:
    """Add an entry and return its id."""
    replies = yield [["XADD", addition.stream, *addition.words()]]
    entry_id: bytes = accepted(replies[0])
    return entry_id.decode()


def add_once(addition: Addition, *, key: str, window_ms: int) -> Operation[str]:
    """Add an entry unless one was added with this key within the window. Return the earlier or new id."""
    adding = Adding([addition], once=Once([key], window_ms))
    yield from adding.rest()
    added: str = accepted(adding.outcomes[0])
    return added
