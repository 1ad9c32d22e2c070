"""Which node of a cluster gets which command, and what happens when it sends it elsewhere.

    commands ──▶ Router ──[Part]──▶ driver ──▶ the client of one node
                        ◀─[Answer]─

Rule 1. Commands that belong together go together: MULTI … EXEC, and WAIT behind the write that it is
        about. They go to the node of their first key.
Rule 2. Sent again is only what a node has refused to run: MOVED and ASK say so. A lost connection is
        raised; when something of the same call had run, the error says that it may have (`guarded`).
Rule 3. A command without a key goes where the others of the same call go; alone, to the node of the
        router's ``home`` key. CLIENT ID and CLIENT UNBLOCK find the same node so.
Rule 4. A router that ``stays`` is of one connection to one node: it does not follow a move for good, it
        raises `SlotMoved`, a ConnectionError, and its user opens another.
Rule 5. A transaction behind WATCH runs on the node that watches or not at all: while a slot moves, some
        of its keys are at one node and some at the other. TRYAGAIN is the answer then, as it is of a
        node that has some keys of a command.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from redis.exceptions import (
    AskError,
    MovedError,
    NoPermissionError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from headwater.client.attempts import say_may_have_run
from headwater.client.repeatable import command_name, is_repeatable
from headwater.client.server_url import NodeAddress
from headwater.client.slots import Topology, first_key, parse_slots, slot_of
from headwater.errors import ConfigError

ROUNDS: Final = 8
"""Redirections that one call follows; then it gets the last one as its answer."""

ASKED_BLOCK_MS: Final = 100
"""A read on a slot that is moving does not wait longer: CLIENT UNBLOCK cannot reach it there."""


class SlotMoved(RedisConnectionError):
    """The slot that a connection is for belongs to another node now; nothing was run."""


class QueuedCommand(NamedTuple):
    """A command as redis-py's clients are given it."""

    words: Sequence[Any]
    options: dict[str, Any] = {}  # noqa: RUF012  # never written


class Part(NamedTuple):
    """What goes to one node, over one connection."""

    node: NodeAddress
    commands: list[QueuedCommand]


Answer = list[Any] | Exception
"""A reply for each command, errors among them; or the error of the connection."""

Routing = Generator[Part, Answer, list[Any]]


class Unit(NamedTuple):
    """Commands that belong together: where in the call they are, and the slot they belong to."""

    places: range
    slot: int | None
    asked: NodeAddress | None = None
    """The node that has the slot's keys already, while the slot moves there."""
    crosses: bool = False
    """It is a transaction on several slots, which no node runs."""


_SLOTS = QueuedCommand((b"CLUSTER", b"SLOTS"))
_ASKING = QueuedCommand((b"ASKING",))


class Router:
    """Routes the calls of one client."""

    def __init__(self, topology: Topology, *, home: str = "", stays: bool = False) -> None:
        self.topology = topology
        self.stays = stays
        self._home = slot_of(home) if home else None
        self._watching: dict[NodeAddress, None] = {}
        """The nodes that watch a key for this client."""

    def route(
        self, commands: Sequence[QueuedCommand], replies: Sequence[Any] | None = None
    ) -> Routing:
        """Have the commands run; their replies. ``replies`` are those of a node that was asked without
        knowing it for one of a cluster: then only what it redirected is sent."""
        found: list[Any] = list(replies or [None] * len(commands))
        units = _units(commands)
        if replies is not None:
            asked = self.topology.nodes()[0]
            redirected = [self._redirected(one, found, asked) for one in units]
            units = [one for one in redirected if one is not None]
        ran = replies is not None and _any_write(commands)
        for unit in [one for one in units if one.crosses]:
            found[unit.places.start : unit.places.stop] = [_crossing()] * len(unit.places)
            units.remove(unit)
        for _round in range(ROUNDS):
            if not self.topology.fresh:
                try:
                    refused = yield from self._load()
                except RedisConnectionError as error:
                    raise _explained(error, ran) from None
                if refused is not None:
                    for unit in units:
                        found[unit.places.start : unit.places.stop] = [refused] * len(unit.places)
                    break
            again: list[Unit] = []
            units = self._kept_to_watching(units, commands, found)
            for node, part in self._parts(units, commands).items():
                answer = yield Part(node, _flat(part, commands))
                if isinstance(answer, Exception):
                    self.topology.doubt(node)
                    raise _explained(answer, ran)
                again += self._take(part, answer, found, node, commands)
                ran = ran or _any_write([commands[n] for unit in part for n in unit.places])
            if not again:
                break
            units = again
        return found

    def _note(self, name: str, node: NodeAddress) -> None:
        """Note that a node watches a key for this client, or does so no more."""
        if name == "WATCH":
            self._watching[node] = None
        elif self._watching and name in ("MULTI", "UNWATCH"):
            self._watching.pop(node, None)

    def _kept_to_watching(
        self, units: list[Unit], commands: Sequence[QueuedCommand], found: list[Any]
    ) -> list[Unit]:
        """The units without the transactions that would run at a node that does not watch; these are answered."""
        if not self._watching:
            return units
        kept = []
        for unit in units:
            name = command_name(commands[unit.places.start].words)
            if name == "MULTI" and self._node(unit) not in self._watching:
                found[unit.places.start : unit.places.stop] = [_elsewhere()] * len(unit.places)
                self._watching = {}
            else:
                kept.append(unit)
        return kept

    def _take(
        self,
        part: list[Unit],
        answer: list[Any],
        found: list[Any],
        node: NodeAddress,
        commands: Sequence[QueuedCommand],
    ) -> list[Unit]:
        """Note the replies of a node; the units that it redirects."""
        again: list[Unit] = []
        at = 0
        for unit in part:
            at += unit.asked is not None
            found[unit.places.start : unit.places.stop] = answer[at : at + len(unit.places)]
            at += len(unit.places)
            redirected = self._redirected(unit, found, node)
            if redirected is not None:
                again.append(redirected)
            else:
                self._note(command_name(commands[unit.places.start].words), node)
        return again

    def _redirected(self, unit: Unit, found: Sequence[Any], by: NodeAddress) -> Unit | None:
        """The unit as it goes out next; None when it was answered."""
        for place in unit.places:
            reply = found[place]
            if not isinstance(reply, AskError):
                continue
            node = NodeAddress(reply.host or by.host, reply.port)
            if not isinstance(reply, MovedError):
                self.topology.cluster = True
                return unit._replace(asked=node)
            self.topology.moved(reply.slot_id, node)
            if self.stays:
                raise SlotMoved(
                    f"slot {reply.slot_id} is at {node} now, another node of the cluster"
                )
            return unit._replace(asked=None)
        return None

    def _parts(
        self, units: Sequence[Unit], commands: Sequence[QueuedCommand]
    ) -> dict[NodeAddress, list[Unit]]:
        """The units of each node, in order."""
        keyed = next((unit for unit in units if unit.slot is not None), None)
        common = self._node(keyed) if keyed else self._owner(self._home)
        parts: dict[NodeAddress, list[Unit]] = {}
        for unit in units:
            node = common if unit.slot is None else self._node(unit)
            name = command_name(commands[unit.places.start].words)
            for one in self._watching if name == "UNWATCH" and self._watching else (node,):
                parts.setdefault(one, []).append(unit)
        return parts

    def _node(self, unit: Unit) -> NodeAddress:
        return unit.asked or self._owner(unit.slot)

    def _owner(self, slot: int | None) -> NodeAddress:
        node = None if slot is None else self.topology.owner(slot)
        return node or self.topology.nodes()[0]

    def _load(self) -> Generator[Part, Answer, ResponseError | None]:
        """Ask the nodes, one after another, who owns what; the error of a node that does not let this
        user know."""
        failure: Exception | None = None
        for node in self.topology.nodes():
            answer = yield Part(node, [_SLOTS])
            reply = answer if isinstance(answer, Exception) else answer[0]
            if isinstance(reply, ResponseError) and "cluster support disabled" in str(reply):
                raise ConfigError(
                    f"{node} is no node of a cluster: write redis://{node} for a single server"
                )
            if isinstance(reply, NoPermissionError):
                return reply
            if isinstance(reply, Exception):
                failure = reply
                continue
            slots = parse_slots(reply, node)
            if any(slots):
                self.topology.replace(slots)
                return None
            failure = RedisConnectionError(f"{node} knows no owner of any slot")
        if isinstance(failure, ResponseError):
            failure = RedisConnectionError(
                f"the cluster does not say who owns its slots: {failure}"
            )
        assert failure is not None, "an address has at least one node"
        raise failure


def _units(commands: Sequence[QueuedCommand]) -> list[Unit]:
    units: list[Unit] = []
    first = 0
    while first < len(commands):
        end = first + 1
        if command_name(commands[first].words) == "MULTI":
            while end < len(commands) and command_name(commands[end - 1].words) != "EXEC":
                end += 1
        while end < len(commands) and command_name(commands[end].words) in ("WAIT", "WAITAOF"):
            end += 1
        keys = [first_key(command.words) for command in commands[first:end]]
        slots = list(dict.fromkeys(slot_of(key) for key in keys if key is not None))
        units.append(Unit(range(first, end), slots[0] if slots else None, crosses=len(slots) > 1))
        first = end
    return units


def _crossing() -> ResponseError:
    return ResponseError("CROSSSLOT a transaction touches keys of one slot only")


def _elsewhere() -> ResponseError:
    return TryAgainError(
        "TRYAGAIN the keys of a transaction and the key that it watches are at different nodes while "
        "their slot moves"
    )


def _flat(units: Sequence[Unit], commands: Sequence[QueuedCommand]) -> list[QueuedCommand]:
    flat: list[QueuedCommand] = []
    for unit in units:
        own = [commands[n] for n in unit.places]
        if unit.asked is not None:
            flat.append(_ASKING)
            own = [_hurried(command) for command in own]
        flat += own
    return flat


def _hurried(command: QueuedCommand) -> QueuedCommand:
    """The command with a short BLOCK, if it has one."""
    words = list(command.words)
    if command_name(words) in ("XREAD", "XREADGROUP"):
        at = 4 if words[1] in ("GROUP", b"GROUP") else 1  # a group may be called BLOCK
        while at < len(words) and words[at] not in ("STREAMS", b"STREAMS"):
            if words[at] in ("BLOCK", b"BLOCK"):
                words[at + 1] = ASKED_BLOCK_MS
            at += 1
    return command._replace(words=words)


def _any_write(commands: Sequence[QueuedCommand]) -> bool:
    return not all(
        is_repeatable(one.words) or command_name(one.words) == "EXEC" for one in commands
    )


def _explained(error: Exception, ran: bool) -> Exception:
    if ran:
        say_may_have_run(error)
    return error
