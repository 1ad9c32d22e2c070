"""The older nodes of a large stream, as packed runs (node_runs.py). At most one run is open.

Rule 1. A query that concerns whole runs, such as the end of a trim or the size of the radix tree, opens none
        of them.
Rule 2. A run is opened to change or read one of its nodes. Most deletions follow one another in order, so it
        stays open until another run is opened, or until a query needs all runs packed.
Rule 3. Nodes are numbered from the first. Queries in ascending order are answered in constant time.
"""

from __future__ import annotations

from array import array

from headwater.engine.accounts.weights import LAST_MS, LIVE, NODE_WORDS
from headwater.engine.redis_nodes.node_runs import NodeRun, find_node

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has it in C
    from headwater.native.memory import word_at


class PackedNodes:
    """Runs of nodes, oldest first."""

    def __init__(self) -> None:
        self.runs: list[NodeRun] = []
        self.count = 0
        """Number of nodes of all runs."""
        self.size = 0
        """Memory of all runs, in bytes."""
        self._open: NodeRun | None = None
        self._at = 0
        """The run that was found last, by its number."""
        self._before = 0
        """Number of nodes before that run."""

    def copy(self) -> PackedNodes:
        """Return a copy, which shares the runs."""
        self._close()
        made = PackedNodes()
        made.runs, made.count, made.size = self.runs.copy(), self.count, self.size
        return made

    # --- queries --------------------------------------------------------------------------------

    def run_at(self, node: int) -> NodeRun | None:
        """Return the run that begins with node number ``node``; None if no run does."""
        run = self._find(node)
        return run if node == self._before else None

    def word(self, node: int, which: int) -> int:
        """Return a word of a node, see `headwater.engine.accounts.weights`."""
        self._find(node)
        run = self._opened(self._at)
        assert run.words is not None
        return word_at(run.words, (node - self._before) * NODE_WORDS + which)

    def names_of(self, node: int) -> bytes:
        """Return the field names with which a node was opened, in RESP."""
        run = self._find(node)
        return run.names_of(node - self._before)

    def part(self, first: int, end: int) -> tuple[array[int], list[bytes]]:
        """Return the words and names of the nodes ``first`` to ``end``-1."""
        words: array[int] = array("Q")
        names: list[bytes] = []
        while first < end:
            run = self._find(first)
            begin, stop = first - self._before, min(end - self._before, run.count)
            words += run.unpacked()[begin * NODE_WORDS : stop * NODE_WORDS]
            names += [run.names_of(node) for node in range(begin, stop)]
            first = self._before + stop
        return words, names

    def closed(self) -> list[NodeRun]:
        """Return all runs, packed."""
        self._close()
        return self.runs

    # --- mutators -------------------------------------------------------------------------------

    def append(self, run: NodeRun) -> None:
        """Add an open run, and close it."""
        run.pack()
        self.runs.append(run)
        self.count += run.count
        self.size += run.book()

    def pop(self) -> NodeRun:
        """Remove the last run and return it."""
        run = self.runs.pop()
        self._forget(run)
        return run

    def drop(self, ms: int, seq: int, stays: bool) -> None:
        """Remove a live entry, as `NodeIndex.drop` does."""
        at = self._run_of(ms, seq)
        run = self._opened(at)
        assert run.words is not None
        node = find_node(run.words, 0, run.count - 1, ms, seq)
        run.leave(node, 1)
        if not word_at(run.words, node * NODE_WORDS + LIVE) and not stays:
            self._remove(at, node, node + 1)

    def trim_through(self, ms: int, seq: int, gone: int) -> int:
        """Trim as `NodeIndex.trim_through` does. Return how many of the ``gone`` entries are in later nodes."""
        at = 0
        for run in self.runs:
            if run.last_ms > ms or (run.last_ms == ms and run.last_seq > seq):
                break
            gone -= run.live
            self._forget(run)
            at += 1
        del self.runs[:at]
        return self._trim_first(ms, seq, gone) if self.runs else gone

    def _trim_first(self, ms: int, seq: int, gone: int) -> int:
        """Trim the first run, which ends after ``ms-seq``."""
        run = self._opened(0)
        words = run.words
        assert words is not None
        end = find_node(words, 0, run.count - 1, ms, seq)
        for node in range(end):
            gone -= word_at(words, node * NODE_WORDS + LIVE)
        last = end * NODE_WORDS + LAST_MS
        if word_at(words, last) == ms and word_at(words, last + 1) == seq:
            gone -= word_at(words, end * NODE_WORDS + LIVE)
            end += 1
        if gone:
            run.leave(end, gone)
        if end:
            self._remove(0, 0, end)
        return 0

    # --- parts ----------------------------------------------------------------------------------

    def _remove(self, at: int, first: int, end: int) -> None:
        """Remove the nodes ``first`` to ``end``-1 of run number ``at``, which is open."""
        run = self.runs[at]
        self._forget(run)
        run.remove(first, end)
        if run.count:
            self.count += run.count
            self.size += run.booked
            self._open = run
        else:
            del self.runs[at]

    def _forget(self, run: NodeRun) -> None:
        """Stop counting a run that is about to be removed or changed."""
        self.count -= run.count
        self.size -= run.booked
        self._at = self._before = 0
        if run is self._open:
            self._open = None

    def _find(self, node: int) -> NodeRun:
        """Return the run of a node."""
        if node < self._before:
            self._at = self._before = 0
        run = self.runs[self._at]
        while node >= self._before + run.count:
            self._before += run.count
            self._at += 1
            run = self.runs[self._at]
        return run

    def _run_of(self, ms: int, seq: int) -> int:
        """Return the number of the run with the node to which ``ms-seq`` was added."""
        low, high = 0, len(self.runs) - 1
        while low < high:
            middle = (low + high) // 2
            run = self.runs[middle]
            if run.last_ms < ms or (run.last_ms == ms and run.last_seq < seq):
                low = middle + 1
            else:
                high = middle
        return low

    def _opened(self, at: int) -> NodeRun:
        """Return run number ``at``, open."""
        run = self.runs[at]
        if run is not self._open:
            self._close()
            run = self._open = self.runs[at] = run.opened()
        return run

    def _close(self) -> None:
        if self._open is not None:
            self._open.pack()
            self.size += self._open.book()
            self._open = None
