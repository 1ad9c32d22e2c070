"""Records the owner of each slot of a cluster, and finds the key that determines a command's slot.

Rule 1. Asking the cluster costs a round trip. It is asked only when the owners are in doubt: at first,
        after a redirection, and after a lost connection. Otherwise commands are routed by known owners.
Rule 2. All clients of a process that use the same cluster share a topology, also across threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from headwater.client.server_url import NodeAddress, is_cluster, parse_cluster
from headwater.commands.table import COMMANDS
from headwater.common.names import bytes_of

Word = Any
Command = Sequence[Word]

_NONE: Final = 0
_READS: Final = -1
_COUNTED: Final = -2

_COUNTED_NAMES: Final = frozenset({"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"})


def slot_of(key: Word) -> int:
    """Return the slot of a key.

    >>> slot_of("{orders}:hw:group:g") == slot_of("orders")
    True
    """
    return _slot(key if isinstance(key, str | bytes) else bytes(str(key), "ascii"))


@lru_cache(maxsize=4096)
def _slot(key: str | bytes) -> int:
    return key_slot(bytes_of(key) if isinstance(key, str) else key)


def first_key(command: Command) -> Word | None:
    """Return the first key of a command; None for a command without keys.

    >>> first_key(("XREADGROUP", "GROUP", "streams", "c", "COUNT", 1, "STREAMS", "orders", ">"))
    'orders'
    >>> first_key(("EVALSHA", "ab", 0, "x")), first_key((b"XINFO", "STREAM", "orders"))
    (None, 'orders')
    """
    words = _names(command[0])
    # redis-py passes a container and its subcommand as one argument: "XINFO STREAM".
    arguments = [*words, *command[1:]] if len(words) > 1 else command
    place = _place(words[0], _text(arguments[1]).upper() if len(arguments) > 1 else "")
    if place == _READS:
        place = _after_streams(arguments)
    elif place == _COUNTED:
        place = 3 if len(arguments) > 3 and int(arguments[2]) else _NONE
    return arguments[place] if 0 < place < len(arguments) else None


@lru_cache(maxsize=1024)
def _names(name: str | bytes) -> tuple[str, ...]:
    return tuple(_text(name).upper().split()) or ("",)


@lru_cache(maxsize=1024)
def _place(name: str, second: str) -> int:
    """Return the index of the first key; `_NONE` without keys; `_READS` or `_COUNTED` to search for the key."""
    if name in ("XREAD", "XREADGROUP"):
        return _READS
    if name in _COUNTED_NAMES:
        return _COUNTED
    row = COMMANDS.get(name.encode())
    if row is None:
        return 1  # an unknown command, which the server may know
    row = row.subcommands.get(second.encode(), row)
    if not row.keys:
        return _NONE
    return row.keys[0].begin + (1 if row.keys[0].counted else 0)


def _after_streams(arguments: Command) -> int:
    index = 4 if _text(arguments[1]).upper() == "GROUP" else 1
    while index < len(arguments) and _text(arguments[index]).upper() != "STREAMS":
        index += 1
    return index + 1


def _text(word: Word) -> str:
    if isinstance(word, bytes):
        return word[:64].decode("latin-1")
    return str(word)[:64]


class Topology:
    """The known slot owners of a cluster; ``nodes`` are the nodes of its url.

    ``cluster`` is false for the url of one server, until a redirection shows that it is a node of a
    cluster.
    """

    def __init__(self, nodes: Sequence[NodeAddress], *, cluster: bool) -> None:
        self.cluster = cluster
        self.fresh = False
        """True if the slots are up to date: the cluster has been asked, and its reply has not been contradicted
        since."""
        self._seeds = tuple(nodes)
        self._slots: list[NodeAddress | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._owners: list[NodeAddress] = []
        self._moved: dict[int, NodeAddress] = {}
        """Owners of single slots, from redirections. Each takes precedence over CLUSTER SLOTS until both
        agree, because the node that is asked for the slots may be the last to learn of a move."""
        self._doubted: NodeAddress | None = None
        self._lock = threading.Lock()

    def owner(self, slot: int) -> NodeAddress | None:
        """Return the node that owns a slot; None if it is unknown."""
        return self._slots[slot]

    def owners(self) -> list[NodeAddress]:
        """Return the nodes that own slots: the primaries, as far as they are known."""
        return list(dict.fromkeys(node for node in self._slots if node is not None))

    def nodes(self) -> list[NodeAddress]:
        """Return all known nodes; the one that failed last is at the end."""
        found = list(dict.fromkeys([*self._owners, *self._moved.values(), *self._seeds]))
        if self._doubted in found:
            found.remove(self._doubted)
            found.append(self._doubted)
        return found

    def replace(self, slots: Sequence[NodeAddress | None]) -> None:
        """Replace the owners with those that the cluster has reported."""
        with self._lock:
            self._slots = list(slots)
            self._owners = list(dict.fromkeys(node for node in slots if node is not None))
            self._moved = {n: node for n, node in self._moved.items() if slots[n] != node}
            for slot, node in self._moved.items():
                self._slots[slot] = node
            self.fresh = True

    def moved(self, slot: int, node: NodeAddress) -> None:
        """Note that ``node`` owns a slot, from a redirection. Other slots may have moved too."""
        with self._lock:
            self.cluster = True
            self._slots[slot] = self._moved[slot] = node
            self.fresh = False

    def doubt(self, node: NodeAddress) -> None:
        """Note that the connection to ``node`` was lost. Another node may have taken its place."""
        with self._lock:
            self._doubted = node
            self._moved = {n: one for n, one in self._moved.items() if one != node}
            self.fresh = False


def topology_of(url: str) -> Topology:
    """Return a topology of the nodes in the url of a cluster, or of a server that may belong to one."""
    return Topology(parse_cluster(url).nodes, cluster=is_cluster(url))


def parse_slots(reply: Sequence[Any], asked: NodeAddress) -> list[NodeAddress | None]:
    """Parse the reply of CLUSTER SLOTS from the node ``asked``. If a node does not know its own address and
    leaves the host empty, the host of ``asked`` is used."""
    slots: list[NodeAddress | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
    for row in reply:
        first, last, primary = int(row[0]), int(row[1]), row[2]
        host = primary[0].decode() if isinstance(primary[0], bytes) else primary[0]
        node = NodeAddress(asked.host if host in (None, "", "?") else host, int(primary[1]))
        slots[first : last + 1] = [node] * (last + 1 - first)
    return slots
