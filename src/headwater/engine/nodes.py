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

from headwater.limits import MAX_ENTRY_BYTES
from headwater.model import id_before

_WORDS = 7
_TAKEN, _LIVE = 4, 5
LISTPACK_FRAME = 7
"""Header of six bytes, end mark of one."""


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


def _with_backlen(size: int) -> int:
    """An element's bytes with those that say how to step back over it; the bounds are Redis's, one
    below what its seven bits a byte would allow."""
    if size < 128:
        return size + 1
    if size < 16383:
        return size + 2
    if size < 2097151:
        return size + 3
    return size + 4 if size < 268435455 else size + 5


def integer_bytes(value: int) -> int:
    """Bytes of a listpack element that holds the integer ``value``, backlen included."""
    if 0 <= value <= 127:
        return 2
    if -4096 <= value <= 4095:
        return 3
    if -32768 <= value <= 32767:
        return 4
    if -8388608 <= value <= 8388607:
        return 5
    return 6 if -2147483648 <= value <= 2147483647 else 10


def element_bytes(value: bytes) -> int:
    """Bytes of a listpack element that holds ``value``: compact where it spells an integer."""
    length = len(value)
    if 0 < length <= 20 and (value[-1] - 48) in range(10):
        digits = value[1:] if value[0] == 0x2D else value
        if digits.isdigit() and (digits[0] != 48 or value == b"0"):
            number = int(value)
            if -(2**63) <= number < 2**63:
                return integer_bytes(number)
    if length < 64:
        return _with_backlen(length + 1)
    return _with_backlen(length + 2 if length < 4096 else length + 5)


class NodeIndex:
    """The nodes of one stream, oldest first.

    >>> nodes = NodeIndex()
    >>> wire = b"$1\\r\\na\\r\\n$1\\r\\nb\\r\\n"
    >>> nodes.opens(wire, max_bytes=4096, max_entries=100)
    True
    >>> nodes.add(5, 0, wire, opens=True)
    >>> len(nodes), nodes.live(0), nodes.last(0)
    (1, 1, (5, 0))
    """

    def __init__(self) -> None:
        self._words: array[int] = array("Q")
        """Seven a node: first ms and seq, last ms and seq, entries taken, entries alive, bytes."""
        self.names: list[tuple[bytes, ...]] = []
        """Field names that each node was opened with; nodes with the same names share them."""

    def __len__(self) -> int:
        return len(self._words) // _WORDS

    def copy(self) -> NodeIndex:
        """The same nodes."""
        made = NodeIndex()
        made._words, made.names = self._words[:], list(self.names)
        return made

    def live(self, node: int) -> int:
        return self._words[node * _WORDS + _LIVE]

    def taken(self, node: int) -> int:
        """How many entries the node took, alive or not."""
        return self._words[node * _WORDS + _TAKEN]

    def first(self, node: int) -> tuple[int, int]:
        """Id that the node was opened with, alive or not."""
        return self._words[node * _WORDS], self._words[node * _WORDS + 1]

    def last(self, node: int) -> tuple[int, int]:
        """Id of the last entry that the node took, alive or not."""
        return self._words[node * _WORDS + 2], self._words[node * _WORDS + 3]

    def size(self, node: int) -> int:
        """Bytes of the listpack that Redis would hold."""
        at = node * _WORDS
        taken, live = self._words[at + _TAKEN], self._words[at + _LIVE]
        rest = self._words[at + _WORDS - 1]
        return rest + integer_bytes(live) + integer_bytes(taken - live)

    def opens(self, wire: bytes, *, max_bytes: int, max_entries: int) -> bool:
        """Whether an entry of these fields would start a new node; 0 lifts a bound."""
        newest = len(self) - 1
        if newest < 0:
            return True
        if max_entries and self.taken(newest) >= max_entries:
            return True
        most = min(max_bytes, MAX_ENTRY_BYTES) if max_bytes else MAX_ENTRY_BYTES
        return self.size(newest) + _content_bytes(wire) >= most

    def add(self, ms: int, seq: int, wire: bytes, *, opens: bool) -> None:
        """An entry was appended."""
        fields = elements(wire)
        names = tuple(fields[0::2])
        words = self._words
        if opens:
            self._open(ms, seq, names)
        else:
            words[-5], words[-4] = ms, seq
            words[-3] += 1
            words[-2] += 1
        same = names == self.names[-1]
        stored = fields[1::2] if same else fields
        size = 2 + integer_bytes(_signed(ms - words[-7])) + integer_bytes(_signed(seq - words[-6]))
        size += sum(map(element_bytes, stored))
        if not same:
            size += integer_bytes(len(names))
        parts = 3 + len(stored) + (0 if same else 1)
        words[-1] += size + integer_bytes(parts)

    def _open(self, ms: int, seq: int, names: tuple[bytes, ...]) -> None:
        words = self._words
        if words and (words[-5], words[-4]) >= (ms, seq):
            # Only after XSETID went back below entries that are gone: ranges of nodes stay apart.
            words[-5], words[-4] = id_before(ms, seq)
        size = LISTPACK_FRAME + integer_bytes(len(names)) + 2 + sum(map(element_bytes, names))
        words.extend((ms, seq, ms, seq, 1, 1, size))
        known = self.names[-1] if self.names else None
        self.names.append(known if known is not None and known == names else names)

    def drop(self, ms: int, seq: int, *, stays: bool = False) -> None:
        """A live entry went away; its node ``stays`` when it was its last (rule 2)."""
        node = self._node_of(ms, seq)
        self._words[node * _WORDS + _LIVE] -= 1
        if self._words[node * _WORDS + _LIVE] == 0 and not stays:
            del self._words[node * _WORDS : (node + 1) * _WORDS]
            del self.names[node]

    def trim_through(self, ms: int, seq: int, gone: int) -> None:
        """The ``gone`` live entries up to ``ms-seq`` went away, and all nodes that end there."""
        node = 0
        words = self._words
        while node < len(self) and self.last(node) <= (ms, seq):
            gone -= words[node * _WORDS + _LIVE]
            node += 1
        if gone:
            words[node * _WORDS + _LIVE] -= gone
        del words[: node * _WORDS]
        del self.names[:node]

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
            at = middle * _WORDS + 2
            if (words[at], words[at + 1]) < (ms, seq):
                low = middle + 1
            else:
                high = middle
        return low


def _content_bytes(wire: bytes) -> int:
    return sum(map(len, elements(wire)))


def _signed(difference: int) -> int:
    """The difference as Redis stores it, in a signed 64-bit integer."""
    wrapped = difference % 2**64
    return wrapped - 2**64 if wrapped >= 2**63 else wrapped


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
