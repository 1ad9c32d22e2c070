"""Some consecutive nodes of a stream, packed: 12 bytes per node instead of 70 (nodes.py).

    open     words ──▶ seven words for each node       packed is None if a node has changed
    packed   packed ──▶ the words as differences       words is None

Rule 1. Only an open run changes, and an open run belongs to one stream. A packed one may be shared by copies
        of a stream: `opened` returns another run.
Rule 2. ``live``, ``count``, ``last_ms`` and ``last_seq`` are always right. ``first_*``, ``newest_*`` and
        ``radix`` are set when the run is packed.
"""

from __future__ import annotations

from array import array

from headwater.engine.accounts.weights import (
    FIRST_MS,
    FIRST_SEQ,
    LAST_MS,
    LAST_SEQ,
    LIVE,
    NODE_WORDS,
)
from headwater.engine.redis_nodes.radix_nodes import RadixCount, radix_nodes

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd and packing_c.pxd have them in C
    from headwater.engine.redis_nodes.radix_nodes import common_bytes
    from headwater.native.memory import set_word, word_at
    from headwater.native.packing import pack_rows, unpack_rows

RUN_NODES = 64
"""Number of nodes in a new run. More would need less memory, but more time for a change in one of them."""

_RUN_BYTES = 330
"""Bytes per run without its packed words: the object, its counts, and its place in the list."""


class NodeRun:
    """A run of nodes, open at first. ``words`` are as in `headwater.engine.accounts.weights`. ``names`` are the
    field names of all nodes, or a tuple with the field names of each."""

    def __init__(self, words: array[int], names: bytes | tuple[bytes, ...]) -> None:
        self.words: array[int] | None = words
        self.packed: bytes | None = None
        self.names = names
        self.radix: RadixCount | None = None
        """Count of the radix tree of these nodes alone (rule 2); None before the run was packed."""
        self.count = self.live = self.last_ms = self.last_seq = 0
        """Number of nodes and of their live entries, and the last id added to the last of them."""
        self.first_ms = self.first_seq = self.newest_ms = self.newest_seq = 0
        """The ids with which the first and the last node were opened."""
        self.booked = 0
        self.sum_up()

    def sum_up(self) -> None:
        """Set the attributes that follow from ``words``. Call it after a change, or the last of several."""
        words = self.words
        assert words is not None
        self.packed = None
        self.count = len(words) // NODE_WORDS
        self.live = 0
        for at in range(0, len(words), NODE_WORDS):
            self.live += word_at(words, at + LIVE)
        if self.count:
            last = len(words) - NODE_WORDS
            self.last_ms = word_at(words, last + LAST_MS)
            self.last_seq = word_at(words, last + LAST_SEQ)

    def names_of(self, node: int) -> bytes:
        """Return the field names of node number ``node`` of the run."""
        names = self.names
        return names if isinstance(names, bytes) else names[node]

    def book(self) -> int:
        """Set ``booked``, the memory of the run in bytes, after it was packed. Return the increase."""
        packed = 0 if self.packed is None else len(self.packed)
        names = 0 if isinstance(self.names, bytes) else 8 * len(self.names)
        before, self.booked = self.booked, _RUN_BYTES + packed + names
        return self.booked - before

    # --- opening --------------------------------------------------------------------------------

    def opened(self) -> NodeRun:
        """Return an open run with the same nodes."""
        made = NodeRun(self.unpacked(), self.names)
        made.packed, made.radix, made.booked = self.packed, self.radix, self.booked
        made.first_ms, made.first_seq = self.first_ms, self.first_seq
        made.newest_ms, made.newest_seq = self.newest_ms, self.newest_seq
        return made

    def unpacked(self) -> array[int]:
        """Return the words of the nodes. The caller must not change them."""
        if self.words is not None:
            return self.words
        words: array[int] = array("Q")
        assert self.packed is not None
        unpack_rows(self.packed, NODE_WORDS, self.count, words)
        return words

    def pack(self) -> None:
        """Pack the run, which must be open and have a node."""
        words, self.words = self.words, None
        assert words is not None
        if self.packed is not None:
            return
        self.packed = pack_rows(words, NODE_WORDS)
        radix = self.radix = RadixCount()
        ms, seq = word_at(words, FIRST_MS), word_at(words, FIRST_SEQ)
        self.first_ms, self.first_seq = ms, seq
        for at in range(NODE_WORDS, len(words), NODE_WORDS):
            next_ms, next_seq = word_at(words, at + FIRST_MS), word_at(words, at + FIRST_SEQ)
            radix.add(common_bytes(ms, seq, next_ms, next_seq))
            ms, seq = next_ms, next_seq
        self.newest_ms, self.newest_seq = ms, seq

    # --- changing an open run -------------------------------------------------------------------

    def leave(self, node: int, entries: int) -> None:
        """Remove ``entries`` live entries of a node."""
        assert self.words is not None
        self.packed = None
        at = node * NODE_WORDS + LIVE
        set_word(self.words, at, word_at(self.words, at) - entries)
        self.live -= entries

    def remove(self, first: int, end: int) -> None:
        """Remove the nodes ``first`` to ``end``-1."""
        assert self.words is not None
        del self.words[first * NODE_WORDS : end * NODE_WORDS]
        if not isinstance(self.names, bytes):
            self.names = self.names[:first] + self.names[end:]
        self.sum_up()


def find_node(words: array[int], low: int, high: int, ms: int, seq: int) -> int:
    """Return the first of the nodes ``low`` to ``high`` in ``words`` whose last id is at or after ``ms-seq``, or
    ``high``."""
    while low < high:
        middle = (low + high) // 2
        at = middle * NODE_WORDS + LAST_MS
        found = word_at(words, at)
        if found < ms or (found == ms and word_at(words, at + 1) < seq):
            low = middle + 1
        else:
            high = middle
    return low


def shared_names(names: list[bytes]) -> bytes | tuple[bytes, ...]:
    """Return the `NodeRun.names` of a run whose nodes have these names."""
    first = names[0]
    for one in names:
        if one is not first and one != first:
            return tuple(names)
    return first


def count_radix_tree(runs: list[NodeRun], newest: NodeRun) -> int:
    """Return the number of nodes of Redis's radix tree for packed ``runs`` and the ``newest`` nodes. Packs
    ``newest``."""
    parts: list[RadixCount] = []
    between: list[int] = []
    before: NodeRun | None = None
    if newest.count:
        newest.pack()
        runs = [*runs, newest]
    for run in runs:
        assert run.radix is not None
        parts.append(run.radix)
        if before is not None:
            depth = common_bytes(before.newest_ms, before.newest_seq, run.first_ms, run.first_seq)
            between.append(depth)
        before = run
    return radix_nodes(parts, between)
