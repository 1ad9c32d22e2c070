"""Redis's node bounds, which `~` trimming and XINFO's radix-tree figures depend on.

Redis keeps a stream's entries in nodes of a radix tree, each a listpack of at most
``stream-node-max-entries`` entries and ``stream-node-max-bytes`` bytes. Our blocks are larger and
shaped otherwise; what clients can see of Redis's nodes is kept here: for each node its first and
last id, how many entries it took and how many live, its field names and its size.

Rule 1. A node opens when a command says so (``opens`` is part of the fact), because the bounds in
        force then may not be those in force when the fact is applied again.
Rule 2. A node whose last live entry goes vanishes; the next entry goes to the newest that is left,
        if its bounds allow that. Only the node that a trim ends in stays although nothing lives in
        it any more: its last entry was deleted and is past the trim. Later trims drop it.

Sources: Redis, t_stream.c (streamAppendItem, streamTrim) and listpack.c for the sizes.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from headwater.engine.weights import (
    CONTENT,
    FIRST_MS,
    FIRST_SEQ,
    LAST_MS,
    LAST_SEQ,
    LISTPACK_FRAME,
    LIVE,
    NAMES_SIZE,
    NODE_WORDS,
    PAIRS,
    SIZE,
    TAKEN,
    WORDS,
)
from headwater.limits import MAX_ENTRY_BYTES
from headwater.model import id_before

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd and weights_c.pxd have them in C
    from headwater.engine.weights import grow, integer_bytes, weigh
    from headwater.memory import prefetch_end, push_word, set_word, word_at


def elements(wire: bytes) -> list[bytes]:
    """Fields and values, alternating, of an entry's canonical RESP.

    >>> elements(b"$1\\r\\na\\r\\n$2\\r\\nbc\\r\\n")
    [b'a', b'bc']
    """
    found: list[bytes] = []
    at = 0
    while at < len(wire):
        stop = wire.index(b"\r\n", at)
        length = int(wire[at + 1 : stop])
        found.append(wire[stop + 2 : stop + 2 + length])
        at = stop + length + 4
    return found


class Weighing:
    """What was found of the last entry that was looked at: what `NodeIndex.opens` has weighed, `add`
    need not weigh again. One serves all streams of a keyspace."""

    def __init__(self) -> None:
        self.index: NodeIndex | None = None
        """Whose newest names the entry's were compared with; None when there is nothing to use."""
        self.wire: bytearray | None = None
        self.start = self.end = 0
        self.words: array[int] = array("Q", bytes(8 * WORDS))
        """See `headwater.engine.weights.weigh`."""
        self.same = False
        """The entry has those names."""


class NodeIndex:
    """The nodes of one stream, oldest first.

    >>> nodes = NodeIndex()
    >>> wire = bytearray(b"$1\\r\\na\\r\\n$1\\r\\nb\\r\\n")
    >>> nodes.opens(wire, 0, len(wire), 4096, 100)
    True
    >>> nodes.add(5, 0, wire, 0, len(wire), True)
    >>> len(nodes), nodes.live(0), nodes.last(0)
    (1, 1, (5, 0))
    """

    def __init__(self, weighing: Weighing | None = None) -> None:
        self._words: array[int] = array("Q")
        """Seven a node, see `headwater.engine.weights`."""
        self.names: list[bytes] = []
        """Field names that each node was opened with, in RESP; nodes with the same names share them."""
        self._newest: bytes | None = None
        """The last of them, if they were looked at since that last changed."""
        self.gone = 0
        """Nodes in front, less than half, that are gone and still take their place: a trim of the
        first of many must not move all others."""
        self._weighing = weighing if weighing is not None else Weighing()

    def __len__(self) -> int:
        return len(self._words) // NODE_WORDS - self.gone

    def copy(self) -> NodeIndex:
        """The same nodes."""
        made = NodeIndex(self._weighing)
        made._words, made.names = self._words[self.gone * NODE_WORDS :], self.names[self.gone :]
        return made

    def adopt(self, weighing: Weighing) -> None:
        """Be the nodes of a stream of another keyspace from now on, whose ``weighing`` this is."""
        self._weighing = weighing

    def _at(self, node: int) -> int:
        """Where the words of a node begin."""
        return (self.gone + node) * NODE_WORDS

    def live(self, node: int) -> int:
        return self._words[self._at(node) + LIVE]

    def taken(self, node: int) -> int:
        """How many entries the node took, alive or not."""
        return word_at(self._words, self._at(node) + TAKEN)

    def first(self, node: int) -> tuple[int, int]:
        """Id that the node was opened with, alive or not."""
        at = self._at(node)
        return self._words[at + FIRST_MS], self._words[at + FIRST_SEQ]

    def last(self, node: int) -> tuple[int, int]:
        """Id of the last entry that the node took, alive or not."""
        at = self._at(node)
        return self._words[at + LAST_MS], self._words[at + LAST_SEQ]

    def names_of(self, node: int) -> bytes:
        """The field names that the node was opened with, in RESP."""
        return self.names[self.gone + node]

    def size(self, node: int) -> int:
        """Bytes of the listpack that Redis would hold."""
        return self._size_at(self._at(node))

    def _size_at(self, at: int) -> int:
        taken, live = word_at(self._words, at + TAKEN), word_at(self._words, at + LIVE)
        rest = word_at(self._words, at + SIZE)
        return rest + integer_bytes(live) + integer_bytes(taken - live)

    def prefetch(self) -> None:
        """`opens` and `add` will be called soon."""
        prefetch_end(self._words)

    def opens(
        self, wire: bytearray, start: int, end: int, max_bytes: int, max_entries: int
    ) -> bool:
        """Whether an entry of these fields would start a new node; 0 lifts a bound."""
        self._weighing.index = None
        at = len(self._words) - NODE_WORDS
        if at < self.gone * NODE_WORDS:
            return True
        if max_entries and word_at(self._words, at + TAKEN) >= max_entries:
            return True
        most = max_bytes if 0 < max_bytes < MAX_ENTRY_BYTES else MAX_ENTRY_BYTES
        return self._size_at(at) + word_at(self._weigh(wire, start, end).words, CONTENT) >= most

    def add(
        self, ms: int, seq: int, wire: bytearray, start: int, end: int, opens_node: bool
    ) -> None:
        """An entry was appended; its fields are the bytes of ``wire`` from ``start`` to ``end``-1."""
        found = self._weighing
        if (
            found.index is not self
            or found.wire is not wire
            or found.start != start
            or found.end != end
        ):
            self._weigh(wire, start, end)
        found.index = found.wire = None
        if opens_node:
            pairs, names_size = word_at(found.words, PAIRS), word_at(found.words, NAMES_SIZE)
            names = self.names[len(self.names) - 1] if found.same else _names_of(wire, start, end)
            self._open(ms, seq, names, LISTPACK_FRAME + integer_bytes(pairs) + 2 + names_size)
            found.same = True
        grow(self._words, len(self._words) - NODE_WORDS, ms, seq, found.words, found.same)

    def _open(self, ms: int, seq: int, names: bytes, size: int) -> None:
        words = self._words
        newest = len(self.names) - 1
        if newest >= 0 and self.last(newest - self.gone) >= (ms, seq):
            # Only after XSETID went back below entries that are gone: ranges of nodes stay apart.
            before = id_before(ms, seq)
            set_word(words, newest * NODE_WORDS + LAST_MS, before[0])
            set_word(words, newest * NODE_WORDS + LAST_SEQ, before[1])
        for word in (ms, seq, ms, seq, 0, 0, size):
            push_word(words, word)
        self.names.append(names)
        self._newest = names

    def _weigh(self, wire: bytearray, start: int, end: int) -> Weighing:
        """Look at an entry of these fields."""
        found = self._weighing
        if self._newest is None:
            self._newest = self.names[len(self.names) - 1] if self.names else b""
        found.same = weigh(wire, start, end, self._newest, found.words)
        found.index, found.wire, found.start, found.end = self, wire, start, end
        return found

    def drop(self, ms: int, seq: int, *, stays: bool = False) -> None:
        """A live entry went away; its node ``stays`` when it was its last (rule 2)."""
        node = self._node_of(ms, seq)
        at = self._at(node)
        self._words[at + LIVE] -= 1
        if self._words[at + LIVE] == 0 and not stays:
            if node == 0:
                self._leave(1)
            else:
                del self._words[at : at + NODE_WORDS]
                del self.names[self.gone + node]
                self._newest = None

    def trim_through(self, ms: int, seq: int, gone: int) -> None:
        """The ``gone`` live entries up to ``ms-seq`` went away, and all nodes that end there."""
        node = 0
        words = self._words
        while node < len(self) and self.last(node) <= (ms, seq):
            gone -= words[self._at(node) + LIVE]
            node += 1
        if gone:
            words[self._at(node) + LIVE] -= gone
        self._leave(node)

    def _leave(self, nodes: int) -> None:
        """So many of the first are gone."""
        self.gone += nodes
        self._newest = None
        if 2 * self.gone >= len(self.names):
            del self._words[: self.gone * NODE_WORDS]
            del self.names[: self.gone]
            self.gone = 0

    def radix_tree_nodes(self) -> int:
        """Nodes of the compressed radix tree that Redis would keep over the first ids (XINFO)."""
        keys = []
        for node in range(len(self)):
            ms, seq = self.first(node)
            keys.append(ms.to_bytes(8, "big") + seq.to_bytes(8, "big"))
        return _radix_nodes(keys)

    def _node_of(self, ms: int, seq: int) -> int:
        """The node that took ``ms-seq``."""
        words = self._words
        low, high = 0, len(self) - 1
        while low < high:
            middle = (low + high) // 2
            at = self._at(middle) + LAST_MS
            found = word_at(words, at)
            if found < ms or (found == ms and word_at(words, at + 1) < seq):
                low = middle + 1
            else:
                high = middle
        return low


def _names_of(wire: bytearray, start: int, end: int) -> bytes:
    """Every other element, as it stands."""
    found, at = bytearray(), start
    while at < end:
        for named in (True, False):
            stop = wire.index(b"\r", at)
            behind = stop + 4 + int(wire[at + 1 : stop])
            if named:
                found += wire[at:behind]
            at = behind
    return bytes(found)


def _radix_nodes(keys: list[bytes]) -> int:
    """Nodes of a compressed radix tree over sorted keys of 16 bytes; an empty tree has its root."""
    if not keys:
        return 1
    total = 0
    pending = [(0, len(keys), 0)]
    while pending:
        low, high, depth = pending.pop()
        if high - low == 1:
            total += 1 if depth == 16 else 2
            continue
        a, b = keys[low], keys[high - 1]
        common = depth
        while a[common] == b[common]:
            common += 1
        total += 2 if common > depth else 1
        start = low
        for at in range(low + 1, high + 1):
            if at == high or keys[at][common] != keys[start][common]:
                pending.append((start, at, common + 1))
                start = at
    return total
