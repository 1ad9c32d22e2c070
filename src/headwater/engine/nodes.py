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

from headwater.limits import MAX_ENTRY_BYTES
from headwater.model import id_before

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.memory import (
        add_word,
        cut,
        length_at,
        push_word,
        same_part,
        set_word,
        signed_difference,
        word_at,
    )

_WORDS = 7
_TAKEN = 4
_LIVE = 5
_SIZE = 6
_CR = 13
_MINUS = 45
_TEN = 10
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
    return _part_bytes(bytearray(value), 0, len(value))


def _part_bytes(wire: bytearray, start: int, length: int) -> int:
    """The same for ``length`` bytes of ``wire`` from ``start`` on."""
    if 0 < length <= 20 and 48 <= wire[start + length - 1] <= 57:
        first = wire[start]
        if 48 <= first <= 57 or first == _MINUS:
            size = _spelled_bytes(wire, start, length)
            if size:
                return size
    if length < 64:
        return _with_backlen(length + 1)
    return _with_backlen(length + 2 if length < 4096 else length + 5)


def _spelled_bytes(wire: bytearray, start: int, length: int) -> int:
    """Bytes of the integer that a text spells as Redis would print it; 0 when it spells none."""
    at, end, value = start, start + length, 0
    if wire[at] == _MINUS:
        at += 1
    if wire[at] == 48 and length > 1:
        return 0
    if end - at > 18:
        return _long_spelled_bytes(cut(wire, start, end), at - start)
    while at < end:
        digit = wire[at] - 48
        if digit < 0 or digit > 9:
            return 0
        value = value * 10 + digit
        at += 1
    return integer_bytes(-value if wire[start] == _MINUS else value)


def _long_spelled_bytes(text: bytes, signs: int) -> int:
    """The same for 19 digits or more, behind ``signs`` bytes of sign: some are no 64-bit integers."""
    if text[signs:].isdigit():
        number = int(text)
        if -(2**63) <= number < 2**63:
            return integer_bytes(number)
    return 0


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

    def __init__(self) -> None:
        self._words: array[int] = array("Q")
        """Seven a node: first ms and seq, last ms and seq, entries taken, entries alive, bytes."""
        self.names: list[bytes] = []
        """Field names that each node was opened with, in RESP; nodes with the same names share them."""
        self.gone = 0
        """Nodes in front, less than half, that are gone and still take their place: a trim of the
        first of many must not move all others."""
        # What `opens` found of the entry at these bytes, for `add` to use.
        self._source: bytearray | None = None
        self._start = self._end = 0
        self._content = 0  # bytes of names and values
        self._pairs = 0
        self._names_size = 0  # in a listpack
        self._values_size = 0
        self._same = False  # the names are those of the newest node

    def __len__(self) -> int:
        return len(self._words) // _WORDS - self.gone

    def copy(self) -> NodeIndex:
        """The same nodes."""
        made = NodeIndex()
        made._words, made.names = self._words[self.gone * _WORDS :], self.names[self.gone :]
        return made

    def _at(self, node: int) -> int:
        """Where the words of a node begin."""
        return (self.gone + node) * _WORDS

    def live(self, node: int) -> int:
        return self._words[self._at(node) + _LIVE]

    def taken(self, node: int) -> int:
        """How many entries the node took, alive or not."""
        return word_at(self._words, self._at(node) + _TAKEN)

    def first(self, node: int) -> tuple[int, int]:
        """Id that the node was opened with, alive or not."""
        at = self._at(node)
        return self._words[at], self._words[at + 1]

    def last(self, node: int) -> tuple[int, int]:
        """Id of the last entry that the node took, alive or not."""
        at = self._at(node)
        return self._words[at + 2], self._words[at + 3]

    def names_of(self, node: int) -> bytes:
        """The field names that the node was opened with, in RESP."""
        return self.names[self.gone + node]

    def size(self, node: int) -> int:
        """Bytes of the listpack that Redis would hold."""
        at = self._at(node)
        taken, live = word_at(self._words, at + _TAKEN), word_at(self._words, at + _LIVE)
        rest = word_at(self._words, at + _SIZE)
        return rest + integer_bytes(live) + integer_bytes(taken - live)

    def opens(
        self, wire: bytearray, start: int, end: int, max_bytes: int, max_entries: int
    ) -> bool:
        """Whether an entry of these fields would start a new node; 0 lifts a bound."""
        newest = len(self.names) - 1 - self.gone
        self._source = None
        if newest < 0:
            return True
        if max_entries and self.taken(newest) >= max_entries:
            return True
        most = min(max_bytes, MAX_ENTRY_BYTES) if max_bytes else MAX_ENTRY_BYTES
        self._weigh(wire, start, end)
        return self.size(newest) + self._content >= most

    def add(
        self, ms: int, seq: int, wire: bytearray, start: int, end: int, opens_node: bool
    ) -> None:
        """An entry was appended; its fields are the bytes of ``wire`` from ``start`` to ``end``-1."""
        if wire is not self._source or start != self._start or end != self._end:
            self._weigh(wire, start, end)
        self._source = None
        words = self._words
        if opens_node:
            self._open(ms, seq, wire, start, end)
        base = len(words) - _WORDS
        if not opens_node:
            set_word(words, base + 2, ms)
            set_word(words, base + 3, seq)
            add_word(words, base + _TAKEN, 1)
            add_word(words, base + _LIVE, 1)
        size = 2 + integer_bytes(signed_difference(ms, word_at(words, base)))
        size += integer_bytes(signed_difference(seq, word_at(words, base + 1)))
        size += self._values_size
        parts = 3 + self._pairs
        if not self._same:
            size += self._names_size + integer_bytes(self._pairs)
            parts += self._pairs + 1
        add_word(words, base + _SIZE, size + integer_bytes(parts))

    def _open(self, ms: int, seq: int, wire: bytearray, start: int, end: int) -> None:
        words = self._words
        newest = len(self.names) - 1
        if newest >= 0 and self.last(newest - self.gone) >= (ms, seq):
            # Only after XSETID went back below entries that are gone: ranges of nodes stay apart.
            before = id_before(ms, seq)
            set_word(words, newest * _WORDS + 2, before[0])
            set_word(words, newest * _WORDS + 3, before[1])
        for word in (ms, seq, ms, seq, 1, 1):
            push_word(words, word)
        push_word(words, LISTPACK_FRAME + integer_bytes(self._pairs) + 2 + self._names_size)
        self.names.append(self.names[newest] if self._same else _names_of(wire, start, end))
        self._same = True

    def _weigh(self, wire: bytearray, start: int, end: int) -> None:
        """What an entry of these fields would take, in one pass."""
        names = self.names[len(self.names) - 1] if self.names else b""
        ahead = content = pairs = names_size = values_size = 0
        same = True
        at = start
        while at < end:
            name = at
            length = length_at(wire, at)
            at += _header_bytes(length)
            names_size += _part_bytes(wire, at, length)
            content += length
            at += length + 2
            if same:
                same = same_part(names, ahead, wire, name, at - name)
                ahead += at - name
            length = length_at(wire, at)
            at += _header_bytes(length)
            values_size += _part_bytes(wire, at, length)
            content += length
            at += length + 2
            pairs += 1
        self._source, self._start, self._end = wire, start, end
        self._content, self._pairs = content, pairs
        self._names_size, self._values_size = names_size, values_size
        self._same = same and ahead == len(names) and pairs > 0

    def drop(self, ms: int, seq: int, *, stays: bool = False) -> None:
        """A live entry went away; its node ``stays`` when it was its last (rule 2)."""
        node = self._node_of(ms, seq)
        at = self._at(node)
        self._words[at + _LIVE] -= 1
        if self._words[at + _LIVE] == 0 and not stays:
            if node == 0:
                self._leave(1)
            else:
                del self._words[at : at + _WORDS]
                del self.names[self.gone + node]

    def trim_through(self, ms: int, seq: int, gone: int) -> None:
        """The ``gone`` live entries up to ``ms-seq`` went away, and all nodes that end there."""
        node = 0
        words = self._words
        while node < len(self) and self.last(node) <= (ms, seq):
            gone -= words[self._at(node) + _LIVE]
            node += 1
        if gone:
            words[self._at(node) + _LIVE] -= gone
        self._leave(node)

    def _leave(self, nodes: int) -> None:
        """So many of the first are gone."""
        self.gone += nodes
        if 2 * self.gone >= len(self.names):
            del self._words[: self.gone * _WORDS]
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
            at = self._at(middle) + 2
            found = word_at(words, at)
            if found < ms or (found == ms and word_at(words, at + 1) < seq):
                low = middle + 1
            else:
                high = middle
        return low


def _header_bytes(length: int) -> int:
    """Bytes of the header that says ``length``."""
    size = 4  # $, one digit, CR LF
    while length >= _TEN:
        length //= _TEN
        size += 1
    return size


def _names_of(wire: bytearray, start: int, end: int) -> bytes:
    """Every other element, as it stands."""
    found, at = bytearray(), start
    while at < end:
        length = length_at(wire, at)
        behind = at + _header_bytes(length) + length + 2
        found += wire[at:behind]
        length = length_at(wire, behind)
        at = behind + _header_bytes(length) + length + 2
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
