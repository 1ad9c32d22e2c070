"""Chooses the node of a cluster for each command, and follows redirections.

    commands ──▶ Router ──[Part]──▶ driver ──▶ the client of one node
                        ◀─[Answer]─

Rule 1. Commands that belong together are sent together, to the node of their first key: MULTI … EXEC,
        and WAIT after its write.
Rule 2. A command is sent again only if a node refused to run it, with MOVED or ASK. A lost connection
        raises an error. If a write of the same call may have run, the error is
        marked (`attempts.may_have_run`).
Rule 3. A command without a key goes to the node of the other commands of its call. Alone, it goes to the
        node of the router's ``home`` key. So CLIENT ID and CLIENT UNBLOCK go to the same node.
Rule 4. A router that ``stays`` uses one connection to one node. When the slot has moved, it raises
        `SlotMoved`, a ConnectionError, and the caller opens another connection.
Rule 5. A transaction after WATCH runs on the node that watches, or not at all, because while a slot moves,
        its keys are on two nodes. The reply is then TRYAGAIN, as from a node that has only some of a
        command's keys.
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
"""Maximum number of times that a call sends a command. After that, the reply is the last redirection."""

ASKED_BLOCK_MS: Final = 100
"""BLOCK of a read that is sent after ASKING, in milliseconds. CLIENT UNBLOCK cannot reach that read."""


class SlotMoved(RedisConnectionError):
    """Raised if a slot has moved from the one node that a client uses. The redirected command was not run."""


class QueuedCommand(NamedTuple):
    """A command and its options, as passed to redis-py's clients."""

    words: Sequence[Any]
    options: dict[str, Any] = {}  # noqa: RUF012  # never written


class Part(NamedTuple):
    """Commands for one node, sent over one connection."""

    node: NodeAddress
    commands: list[QueuedCommand]


Answer = list[Any] | Exception
"""A reply for each command, errors included; or the error of the connection."""

Routing = Generator[Part, Answer, list[Any]]


class Unit(NamedTuple):
    """Commands that belong together: their places in the call, and their slot."""

    places: range
    slot: int | None
    asked: NodeAddress | None = None
    """The node that an ASK redirection named while the slot moves there; None without a redirection."""
    crosses: bool = False
    """True if the unit is a transaction on several slots. Nodes do not run such transactions."""


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
        """Run the commands and return their replies. ``replies``, if given, come from a server that was not
        known to be a node of a cluster. Then only the commands that the server redirected are sent."""
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

    def located(self) -> Routing:
        """Ask the cluster which nodes own slots, even if they are known, and return them."""
        refused = yield from self._load()
        if refused is not None:
            raise refused
        return list(self.topology.owners())

    def _note(self, name: str, node: NodeAddress) -> None:
        """Note whether a node watches a key for this client, after the command ``name``."""
        if name == "WATCH":
            self._watching[node] = None
        elif self._watching and name in ("MULTI", "UNWATCH"):
            self._watching.pop(node, None)

    def _kept_to_watching(
        self, units: list[Unit], commands: Sequence[QueuedCommand], found: list[Any]
    ) -> list[Unit]:
        """Return the units without the transactions that would run on a node that does not watch a key. The
        replies of those transactions in ``found`` become TRYAGAIN."""
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
        """Copy the replies of a node to ``found``. Return the units that the node redirects."""
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
        """Return the unit to send again after a redirection; None if the node did not redirect it."""
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
        """Return the units of each node, in order."""
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
        """Ask the nodes, one after another, for the owners of the slots. Returns the error of a node that
        does not permit this user to ask, otherwise None."""
        failure: Exception | None = None
        for node in self.topology.nodes():
            answer = yield Part(node, [_SLOTS])
            reply = answer if isinstance(answer, Exception) else answer[0]
            if isinstance(reply, ResponseError) and "cluster support disabled" in str(reply):
                raise ConfigError(
                    f"{node} is not a node of a cluster: write redis://{node} for a single server"
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
            failure = RedisConnectionError(f"{node} does not know the owner of any slot")
        if isinstance(failure, ResponseError):
            failure = RedisConnectionError(
                f"the nodes of the cluster do not report the slots' owners: {failure}"
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
    return ResponseError("CROSSSLOT the keys of a transaction must be in one slot")


def _elsewhere() -> ResponseError:
    return TryAgainError(
        "TRYAGAIN the keys of a transaction and the key that it watches are on different nodes while "
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
    """Return the command with the value of BLOCK, if given, replaced by `ASKED_BLOCK_MS`."""
    words = list(command.words)
    if command_name(words) in ("XREAD", "XREADGROUP"):
        at = 4 if words[1] in ("GROUP", b"GROUP") else 1  # a group's name may be BLOCK
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
