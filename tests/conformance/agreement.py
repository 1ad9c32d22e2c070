"""Runs a history of streams (`histories_streams`) on two stores as a pipeline. If the replies
differ, finds the shortest history for which they do.

`masks` prepares the replies for the comparison; ids that a server generated are replaced by their
names in the history. At the end the invariants are checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from random import Random
from typing import NamedTuple

from headwater.testing.node import request
from headwater.testing.replies import Map, Reply, ReplyReader, Simple
from tests.conformance import differences
from tests.conformance.endpoints import Command
from tests.conformance.histories_streams import Unit
from tests.conformance.masks import Circumstances, comparable
from tests.conformance.pipelines import MARK, NotAnswered, Pipeline, cut

SHRINK_SECONDS = 120.0
SHOWN = 60
"""How many commands of a shrunk history a failure shows, and how many words of a command."""

_UNKNOWN = b"1-1"
"""Replaces an id that the server did not generate, because its command was removed from the history."""


class Unlike(NamedTuple):
    """The first difference of two stores. ``command`` is empty if the difference is not in a reply."""

    command: Command
    ours: object
    theirs: object


class Side:
    """One of the two stores, and the ids that it generated in this history."""

    def __init__(self, pipeline: Pipeline, hidden: frozenset[bytes]) -> None:
        self.pipeline = pipeline
        self.hidden = hidden
        self.given: dict[bytes, bytes] = {}
        """Name of an id (``@7``) → the id."""
        self.names: dict[bytes, bytes] = {}
        """Id → name."""

    def sent(self, command: Command) -> Command:
        """Return the command with its names replaced by ids."""
        if not any(word.startswith((b"@", b"(@", b"*@")) for word in command):
            return command
        return tuple(self._resolved(word) for word in command)

    def _resolved(self, word: bytes) -> bytes:
        if word.startswith(b"*@"):
            return b"*"
        if word.startswith(b"(@"):
            return b"(" + self.given.get(word[1:], _UNKNOWN)
        return self.given.get(word, _UNKNOWN) if word.startswith(b"@") else word

    def said(self, commands: Sequence[Command], raw: bytes) -> list[Reply]:
        """Return the replies to ``commands``, comparable with those of another store."""
        reader = ReplyReader()
        reader.feed(raw)
        replies: list[Reply] = []
        for command in commands:
            reply = reader.next()
            if reply is None:
                raise NotAnswered(f"no reply to {command!r}")
            replies.append(reply)
        if reader.buffer:
            raise NotAnswered(f"bytes after the last reply: {bytes(reader.buffer[:200])!r}")
        self._learn(commands, replies)
        circumstances = Circumstances(self.pipeline.now_ms(), self.hidden)
        found = comparable(commands, replies, circumstances)
        return [self._named(reply) for reply in found] if self.names else found

    def _learn(self, commands: Sequence[Command], replies: Sequence[Reply]) -> None:
        queued: list[Command] = []
        for command, reply in zip(commands, replies, strict=True):
            if reply == Simple(b"QUEUED"):
                queued.append(command)
            elif command == (b"EXEC",) and isinstance(reply, list):
                for inner, part in zip(queued, reply, strict=True):
                    self._learn_one(inner, part)
                queued = []
            else:
                self._learn_one(command, reply)

    def _learn_one(self, command: Command, reply: Reply) -> None:
        if command[0] != b"XADD" or not isinstance(reply, bytes):
            return
        for word in command[2:]:
            if word.startswith(b"*@"):
                self.given[word[1:]] = reply
                self.names[reply] = word[1:]
                return

    def _named(self, reply: Reply) -> Reply:
        if isinstance(reply, bytes):
            return self.names.get(reply, reply)
        if isinstance(reply, list):
            return [self._named(part) for part in reply]
        if isinstance(reply, Map):
            return Map(tuple((self._named(a), self._named(b)) for a, b in reply.pairs))
        return reply


def first_unlike(
    units: Sequence[Unit], seed: int, ours: Pipeline, theirs: Pipeline, *, server: str = "redis-8.2"
) -> Unlike | None:
    """Run a history on both stores. Return None if their replies are equal and Headwater is sound."""
    hidden = differences.hidden_fields(server) | differences.unlike_fields(server)
    resp = 2 + seed % 2
    sides = Side(ours, hidden), Side(theirs, hidden)
    for side in sides:
        side.pipeline.prepare(resp)
    commands: list[Command] = []
    try:
        for batch, commands in _batches(units):
            found = _answers(sides, commands, Random(f"{seed} {batch}"))
            if found is None:
                continue
            for command, we, they in zip(commands, *found, strict=True):
                if we != they:
                    return Unlike(command, we, they)
        broken = ours.broken()
    except Exception as error:
        return Unlike(commands[0] if commands else (), f"failed in this batch: {error!r}", None)
    return Unlike((), broken[:5], []) if broken else None


def _batches(units: Sequence[Unit]) -> Iterator[tuple[int, list[Command]]]:
    for batch, together in groupby(units, key=lambda unit: unit.batch):
        yield batch, [command for unit in together for command in unit.commands]


def _answers(
    sides: tuple[Side, Side], commands: list[Command], random: Random
) -> tuple[list[Reply], list[Reply]] | None:
    """Return the replies of both stores to a batch; None if they are equal byte for byte."""
    raw = []
    for side in sides:
        data = b"".join(request(side.sent(command)) for command in commands) + MARK
        raw.append(side.pipeline.exchange(cut(data, random)))
    asked = any(word.startswith(b"*@") for command in commands for word in command[2:])
    if raw[0] == raw[1] and not asked:
        return None
    return sides[0].said(commands, raw[0]), sides[1].said(commands, raw[1])


def explained(
    units: list[Unit], unlike: Unlike, again: Callable[[list[Unit]], Unlike | None]
) -> str:
    """Describe the difference with a history as short as possible. ``again`` runs another."""
    shorter, found = _shrunk(units, again), None
    if len(shorter) < len(units):
        found = again(shorter)
    if found is None:  # nothing can be left out, or the difference depends on more than the history
        return f"{len(units)} units, none of which can be left out\n{_sentence(unlike)}"
    lines = [f"{len(units)} units, {len(shorter)} of which do"]
    for unit in shorter[:SHOWN]:
        lines += [f"[{unit.batch}] {_shown(command)}" for command in unit.commands]
    return "\n".join([*lines, _sentence(found)])


def _shrunk(units: list[Unit], again: Callable[[list[Unit]], Unlike | None]) -> list[Unit]:
    """Like `histories.shrink`, with a time limit."""
    deadline = time.monotonic() + SHRINK_SECONDS
    size = len(units) // 2
    while size:
        start = 0
        while start < len(units):
            if time.monotonic() > deadline:
                return units
            shorter = units[:start] + units[start + size :]
            if again(shorter) is not None:
                units = shorter
            else:
                start += size
        size //= 2
    return units


def _sentence(unlike: Unlike) -> str:
    where, ours, theirs = _narrowed(unlike.ours, unlike.theirs)
    said = f"    we:   {_cut(ours)}\n    they: {_cut(theirs)}"
    said = f"    at {where}\n{said}" if where else said
    return f"  {_shown(unlike.command)}\n{said}" if unlike.command else said


def _narrowed(ours: object, theirs: object) -> tuple[str, object, object]:
    """Return the first differing part of two long replies, and its position."""
    where = ""
    while isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        at = next((at for at, we in enumerate(ours) if we != theirs[at]), -1)
        if at < 0:
            break
        where += f"[{at}]"
        ours, theirs = ours[at], theirs[at]
    return where, ours, theirs


def _shown(command: Command) -> str:
    return " ".join(_cut(word)[1:] if word.isascii() else _cut(word) for word in command[:SHOWN])


def _cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 1000 else f"{text[:900]} … {text[-90:]}"
