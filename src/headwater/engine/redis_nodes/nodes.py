"""The sizes of Redis's stream nodes, which determine `~` trimming and the radix-tree statistics of XINFO.

Redis stores a stream's entries in nodes of a radix tree, each a listpack of at most
``stream-node-max-entries`` entries and ``stream-node-max-bytes`` bytes. Headwater's blocks are larger and
have another structure. This module stores those properties of Redis's nodes that clients can see: for each node its
first and last id, the number of entries added to it, the number of live ones, its field names, its size.

Rule 1. A command decides whether an entry opens a node (``opens`` is part of the fact), because the limits
        may have changed when the fact is applied again.
Rule 2. A node is removed with its last live entry. The next entry is added to the newest remaining node
        if its limits allow that. Only the node in which a trim ends can stay without a live entry: if its
        last entry was deleted and is above the trim. Later trims remove it.
Rule 3. The newest nodes, to which entries are added, are words of an array. Older nodes are packed
        (packed_nodes.py). If there is any node, the newest is not packed.

Sources: Redis, t_stream.c (streamAppendItem, streamTrim) and listpack.c for the sizes.
"""

from __future__ import annotations

from array import array

from headwater.common.limits import MAX_ENTRY_BYTES
from headwater.common.model import id_before
from headwater.engine.accounts.memory_account import NODE_BYTES, MemoryAccount
from headwater.engine.accounts.weights import (
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
from headwater.engine.redis_nodes.entry_fields import field_names
from headwater.engine.redis_nodes.node_runs import (
    RUN_NODES,
    NodeRun,
    count_radix_tree,
    find_node,
    shared_names,
)
from headwater.engine.redis_nodes.packed_nodes import PackedNodes

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd and weights_c.pxd have them in C
    from headwater.engine.accounts.weights import grow, integer_bytes, weigh
    from headwater.native.memory import prefetch_end, push_word, set_word, word_at


class Weighing:
    """The weights of the last entry that was examined, so that `NodeIndex.add` need not repeat the work of
    `NodeIndex.opens`. All streams of a keyspace share one."""

    def __init__(self, account: MemoryAccount | None = None) -> None:
        self.account = account if account is not None else MemoryAccount()
        """The account of the keyspace."""
        self.index: NodeIndex | None = None
        """The index whose newest names were compared with the entry's; None if the weights are not valid."""
        self.wire: bytearray | None = None
        self.start = self.end = 0
        self.words: array[int] = array("Q", bytes(8 * WORDS))
        """The weights, as `headwater.engine.accounts.weights.weigh` sets them."""
        self.same = False
        """True if the entry has the field names of the newest node."""


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
        """Seven words for each node that is not packed, see `headwater.engine.accounts.weights`."""
        self.names: list[bytes] = []
        """The field names with which each of these nodes was opened, in RESP. Nodes with the same names
        share them."""
        self._newest: bytes | None = None
        """The last of ``names``; None if it must be looked up."""
        self.gone = 0
        """Number of removed nodes at the front that still use memory, less than half of all: trimming the
        first of many nodes must not move all others."""
        self.packed: PackedNodes | None = None
        """The older nodes; None if no node is packed."""
        self._weighing = weighing if weighing is not None else Weighing()
        self.booked = 0

    def __del__(self) -> None:
        self._weighing.account.nodes -= self.booked

    def __len__(self) -> int:
        return len(self._words) // NODE_WORDS - self.gone + self._older()

    def copy(self) -> NodeIndex:
        """Return a copy of the index."""
        made = NodeIndex(self._weighing)
        made._words, made.names = self._words[self.gone * NODE_WORDS :], self.names[self.gone :]
        if self.packed is not None:
            made.packed = self.packed.copy()
        made.book()
        return made

    def adopt(self, weighing: Weighing) -> None:
        """Move the index to another keyspace, which has this ``weighing``."""
        self._weighing.account.nodes -= self.booked
        self._weighing, self.booked = weighing, 0
        self.book()

    def book(self) -> None:
        """Account for the nodes, including removed nodes that still use memory."""
        size = NODE_BYTES * len(self.names)
        if self.packed is not None:
            size += self.packed.size
        if size != self.booked:
            self._weighing.account.nodes += size - self.booked
            self.booked = size

    def part(self, first: int, end: int) -> tuple[array[int], list[tuple[int, bytes]]]:
        """Return the words of nodes ``first`` to ``end``-1, and a list of ``(count, names)``, each for
        ``count`` consecutive nodes with the same names. `extend` takes the same form."""
        older = self._older()
        words: array[int] = array("Q")
        every: list[bytes] = []
        if first < older:
            assert self.packed is not None
            words, every = self.packed.part(first, min(end, older))
        begin, stop = max(first, older) - older, max(end, older) - older
        words += self._words[self._at(begin) : self._at(stop)]
        every += self.names[self.gone + begin : self.gone + stop]
        found: list[tuple[int, bytes]] = []
        for names in every:
            if found and found[-1][1] == names:
                found[-1] = (found[-1][0] + 1, names)
            else:
                found.append((1, names))
        return words, found

    def extend(self, words: array[int], names: list[tuple[int, bytes]]) -> None:
        """Append nodes. ``words`` and ``names`` have the form that `part` returns."""
        assert len(words) == NODE_WORDS * sum([count for count, _ in names])
        self._words.extend(words)
        for count, text in names:
            shared = self.names[-1] if self.names and self.names[-1] == text else text
            self.names.extend([shared] * count)
        self._newest = None
        self._pack()

    def _older(self) -> int:
        """Return the number of packed nodes."""
        return 0 if self.packed is None else self.packed.count

    def _at(self, node: int) -> int:
        """Return the index of the first word of node number ``node`` among the nodes that are not packed."""
        return (self.gone + node) * NODE_WORDS

    def _word(self, node: int, which: int) -> int:
        if self.packed is not None:
            if node < self.packed.count:
                return self.packed.word(node, which)
            node -= self.packed.count
        return word_at(self._words, self._at(node) + which)

    def live(self, node: int) -> int:
        return self._word(node, LIVE)

    def taken(self, node: int) -> int:
        """Return the number of entries added to the node, live or not."""
        return self._word(node, TAKEN)

    def first(self, node: int) -> tuple[int, int]:
        """Return the id with which the node was opened, live or not."""
        return self._word(node, FIRST_MS), self._word(node, FIRST_SEQ)

    def last(self, node: int) -> tuple[int, int]:
        """Return the id of the last entry added to the node, live or not."""
        return self._word(node, LAST_MS), self._word(node, LAST_SEQ)

    def names_of(self, node: int) -> bytes:
        """Return the field names with which the node was opened, in RESP."""
        if self.packed is not None and node < self.packed.count:
            return self.packed.names_of(node)
        return self.names[self.gone + node - self._older()]

    def size(self, node: int) -> int:
        """Return the size of the node's listpack in Redis, in bytes."""
        live, taken = self.live(node), self.taken(node)
        return self._word(node, SIZE) + integer_bytes(live) + integer_bytes(taken - live)

    def run_at(self, node: int) -> NodeRun | None:
        """Return the packed run that begins with node number ``node``; None if no packed run does."""
        if self.packed is None or node >= self.packed.count:
            return None
        return self.packed.run_at(node)

    def _newest_size(self, at: int) -> int:
        """Return the size of the newest node, whose words begin at ``at``."""
        taken, live = word_at(self._words, at + TAKEN), word_at(self._words, at + LIVE)
        rest = word_at(self._words, at + SIZE)
        return rest + integer_bytes(live) + integer_bytes(taken - live)

    def prefetch(self) -> None:
        """Prefetch the memory that `opens` and `add` will use. Call this shortly before them."""
        prefetch_end(self._words)

    def opens(
        self, wire: bytearray, start: int, end: int, max_bytes: int, max_entries: int
    ) -> bool:
        """Return whether an entry with these fields opens a node. 0 means no limit but `MAX_ENTRY_BYTES`."""
        self._weighing.index = None
        at = len(self._words) - NODE_WORDS
        if at < self.gone * NODE_WORDS:
            return True
        if max_entries and word_at(self._words, at + TAKEN) >= max_entries:
            return True
        most = max_bytes if 0 < max_bytes < MAX_ENTRY_BYTES else MAX_ENTRY_BYTES
        return self._newest_size(at) + word_at(self._weigh(wire, start, end).words, CONTENT) >= most

    def add(
        self, ms: int, seq: int, wire: bytearray, start: int, end: int, opens_node: bool
    ) -> None:
        """Add an appended entry. Its fields are the bytes of ``wire`` from ``start`` to ``end``-1."""
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
            names = self.names[len(self.names) - 1] if found.same else field_names(wire, start, end)
            self._open(ms, seq, names, LISTPACK_FRAME + integer_bytes(pairs) + 2 + names_size)
            found.same = True
        grow(self._words, len(self._words) - NODE_WORDS, ms, seq, found.words, found.same)

    def _open(self, ms: int, seq: int, names: bytes, size: int) -> None:
        words = self._words
        newest = len(self.names) - 1
        # Ranges of nodes must not overlap. They would only if XSETID lowered the last id below deleted entries: the
        # nodes from this id on have no live entry, and the range of the node before is too long.
        while newest >= self.gone and self._begins_from(newest, ms, seq):
            del words[newest * NODE_WORDS :]
            del self.names[newest]
            newest -= 1
        last = newest * NODE_WORDS + LAST_MS
        if newest >= 0 and (word_at(words, last), word_at(words, last + 1)) >= (ms, seq):
            before = id_before(ms, seq)
            set_word(words, last, before[0])
            set_word(words, last + 1, before[1])
        for word in (ms, seq, ms, seq, 0, 0, size):
            push_word(words, word)
        self.names.append(names)
        self._newest = names
        if len(self.names) >= self.gone + 2 * RUN_NODES:
            self._pack()
            self._newest = names
        self.book()

    def _begins_from(self, newest: int, ms: int, seq: int) -> bool:
        """Return whether the newest node begins at this id or after it."""
        first = newest * NODE_WORDS + FIRST_MS
        return (word_at(self._words, first), word_at(self._words, first + 1)) >= (ms, seq)

    def _weigh(self, wire: bytearray, start: int, end: int) -> Weighing:
        """Weigh an entry with these fields."""
        found = self._weighing
        if self._newest is None:
            self._newest = self.names[len(self.names) - 1] if self.names else b""
        found.same = weigh(wire, start, end, self._newest, found.words)
        found.index, found.wire, found.start, found.end = self, wire, start, end
        return found

    def drop(self, ms: int, seq: int, *, stays: bool = False) -> None:
        """Remove a live entry. With ``stays``, its node stays even without a live entry (rule 2)."""
        if self._is_packed(ms, seq):
            assert self.packed is not None
            self.packed.drop(ms, seq, stays)
            self.book()
            return
        node = find_node(self._words, self.gone, len(self.names) - 1, ms, seq) - self.gone
        at = self._at(node)
        self._words[at + LIVE] -= 1
        if self._words[at + LIVE] == 0 and not stays:
            if node == 0:
                self._leave(1)
            else:
                del self._words[at : at + NODE_WORDS]
                del self.names[self.gone + node]
                self._newest = None
                self.book()

    def trim_through(self, ms: int, seq: int, gone: int) -> None:
        """Remove the ``gone`` live entries up to ``ms-seq``, and all nodes whose last id is at most ``ms-seq``."""
        if self.packed is not None:
            gone = self.packed.trim_through(ms, seq, gone)
            self.book()
            if self._older():
                return
        node, count = 0, len(self.names) - self.gone
        words = self._words
        while node < count:
            at = self._at(node) + LAST_MS
            if (word_at(words, at), word_at(words, at + 1)) > (ms, seq):
                break
            gone -= words[self._at(node) + LIVE]
            node += 1
        if gone:
            words[self._at(node) + LIVE] -= gone
        self._leave(node)

    def _is_packed(self, ms: int, seq: int) -> bool:
        """Return whether the node that ``ms-seq`` was added to is packed."""
        if self.packed is None or not self.packed.runs:
            return False
        newest = self.packed.runs[len(self.packed.runs) - 1]
        return newest.last_ms > ms or (newest.last_ms == ms and newest.last_seq >= seq)

    def _pack(self) -> None:
        """Pack the oldest nodes that are not packed, so that fewer than ``2 * RUN_NODES`` remain."""
        while len(self.names) - self.gone >= 2 * RUN_NODES:
            if self.packed is None:
                self.packed = PackedNodes()
            first, end = self.gone, self.gone + RUN_NODES
            words = self._words[first * NODE_WORDS : end * NODE_WORDS]
            self.packed.append(NodeRun(words, shared_names(self.names[first:end])))
            self._leave(RUN_NODES)

    def _unpack(self) -> None:
        """Unpack the newest run. Call it when all nodes that were not packed are removed."""
        assert self.packed is not None
        run = self.packed.pop()
        self._words = run.unpacked()[:]
        self.names = [run.names_of(node) for node in range(run.count)]
        self.gone = 0
        self.book()

    def _leave(self, nodes: int) -> None:
        """Remove the first ``nodes`` of the nodes that are not packed."""
        self.gone += nodes
        self._newest = None
        if 2 * self.gone >= len(self.names):
            del self._words[: self.gone * NODE_WORDS]
            del self.names[: self.gone]
            self.gone = 0
            if not self.names and self._older():
                self._unpack()
            self.book()

    def radix_tree_nodes(self) -> int:
        """Return the number of nodes of the compressed radix tree that Redis would have (XINFO)."""
        newest = NodeRun(self._words[self.gone * NODE_WORDS :], b"")
        return count_radix_tree([] if self.packed is None else self.packed.closed(), newest)
