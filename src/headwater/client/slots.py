"""Which node of a cluster owns which slot, and which key of a command decides.

Rule 1. Asking the cluster costs a round trip and is done when there is doubt: at first, after a
        redirection, after a lost connection. Nothing is asked for a command.
Rule 2. A topology is shared by all clients of a process that use the same cluster, among threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from headwater.client.server_url import NodeAddress, is_cluster, parse_cluster
from headwater.commands.table import COMMANDS

Word = Any
Command = Sequence[Word]

_NONE: Final = 0
_READS: Final = -1
_COUNTED: Final = -2

_COUNTED_NAMES: Final = frozenset({"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"})


def slot_of(key: Word) -> int:
    """The slot of a key.

    >>> slot_of("{orders}:hw:group:g") == slot_of("orders")
    True
    """
    return _slot(key if isinstance(key, str | bytes) else bytes(str(key), "ascii"))


@lru_cache(maxsize=4096)
def _slot(key: str | bytes) -> int:
    return key_slot(key.encode() if isinstance(key, str) else key)


def first_key(command: Command) -> Word | None:
    """The first key of a command; None for one without keys.

    >>> first_key(("XREADGROUP", "GROUP", "streams", "c", "COUNT", 1, "STREAMS", "orders", ">"))
    'orders'
    >>> first_key(("EVALSHA", "ab", 0, "x")), first_key((b"XINFO", "STREAM", "orders"))
    (None, 'orders')
    """
    words = _names(command[0])
    # redis-py writes a container and its word as one: "XINFO STREAM".
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
    """Where the first key is: an argument, `_NONE`, or a way to find it."""
    if name in ("XREAD", "XREADGROUP"):
        return _READS
    if name in _COUNTED_NAMES:
        return _COUNTED
    row = COMMANDS.get(name.encode())
    if row is None:
        return 1  # a command that only the server knows
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
    """What is known of a cluster; ``nodes`` are those to begin with.

    ``cluster`` is false for the url of one server, until a redirection shows that it is a node of a
    cluster.
    """

    def __init__(self, nodes: Sequence[NodeAddress], *, cluster: bool) -> None:
        self.cluster = cluster
        self.fresh = False
        """Whether the slots are as the cluster said when it was last asked, and nothing has
        contradicted it since."""
        self._seeds = tuple(nodes)
        self._slots: list[NodeAddress | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._owners: list[NodeAddress] = []
        self._moved: dict[int, NodeAddress] = {}
        """What a node has said of one slot, until the node that is asked about all agrees: it may be the
        last to learn of a move."""
        self._doubted: NodeAddress | None = None
        self._lock = threading.Lock()

    def owner(self, slot: int) -> NodeAddress | None:
        """The node that owns a slot, as far as is known."""
        return self._slots[slot]

    def nodes(self) -> list[NodeAddress]:
        """All nodes that are known, the one that failed last at the end."""
        found = list(dict.fromkeys([*self._owners, *self._moved.values(), *self._seeds]))
        if self._doubted in found:
            found.remove(self._doubted)
            found.append(self._doubted)
        return found

    def replace(self, slots: Sequence[NodeAddress | None]) -> None:
        """What the cluster says."""
        with self._lock:
            self._slots = list(slots)
            self._owners = list(dict.fromkeys(node for node in slots if node is not None))
            self._moved = {n: node for n, node in self._moved.items() if slots[n] != node}
            for slot, node in self._moved.items():
                self._slots[slot] = node
            self.fresh = True

    def moved(self, slot: int, node: NodeAddress) -> None:
        """A node says that another owns a slot. Others may have moved too."""
        with self._lock:
            self.cluster = True
            self._slots[slot] = self._moved[slot] = node
            self.fresh = False

    def doubt(self, node: NodeAddress) -> None:
        """The connection to a node was lost: another may have taken its place."""
        with self._lock:
            self._doubted = node
            self._moved = {n: one for n, one in self._moved.items() if one != node}
            self.fresh = False


def topology_of(url: str) -> Topology:
    """What the url of a cluster, or of a server that may belong to one, says of it."""
    return Topology(parse_cluster(url).nodes, cluster=is_cluster(url))


def parse_slots(reply: Sequence[Any], asked: NodeAddress) -> list[NodeAddress | None]:
    """The reply of CLUSTER SLOTS; ``asked`` gave it. A node that does not know its own address says
    nothing for the host: then it is the one that was asked at."""
    slots: list[NodeAddress | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
    for row in reply:
        first, last, primary = int(row[0]), int(row[1]), row[2]
        host = primary[0].decode() if isinstance(primary[0], bytes) else primary[0]
        node = NodeAddress(asked.host if host in (None, "", "?") else host, int(primary[1]))
        slots[first : last + 1] = [node] * (last + 1 - first)
    return slots
