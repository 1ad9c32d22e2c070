"""The listpack that contains the entries of one node of a stream.

    live │ deleted │ n │ name * n │ 0           the master entry: the first entry's field names
    flags │ ms │ seq │ value * n │ parts        an entry with those names (flag 2)
    flags │ ms │ seq │ n │ (name │ value) * n │ parts      an entry with other names

ms and seq are differences from the node's id. parts is the number of the entry's elements before it. Flag 1
marks a deleted entry, which remains until its node is removed.

Reader and writer process a node in steps of a given number of entries, because a node may have any number.

Source: Redis, t_stream.c (streamAppendItem, streamIteratorGetID, streamValidateListpackIntegrity).
"""

from __future__ import annotations

from array import array

from headwater.rdb import listpack
from headwater.rdb.errors import BadPayload, ValueTooLarge
from headwater.rdb.image import ID, NodeImage
from headwater.rdb.listpack import Cursor

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd and listpack.pxd have them in C
    from headwater.native.memory import (
        append_part,
        offset_at,
        push_id,
        push_offset,
        push_word,
        put_u8,
        word_at,
    )
    from headwater.rdb.listpack import put_integer, put_text

_DELETED = 1
_SAME_FIELDS = 2
_ALL = 2**64 - 1

_ENTRY_BYTES = 48
_ELEMENT_BYTES = 8
"""Memory that is counted for each entry, name and value in addition to its bytes, for RESP and the journal."""


class NodeReader:
    """Reads the node whose id is ``first`` from its listpack of at most ``most`` elements. ``size`` is the
    size of the entries of all earlier nodes. Together with this node's, it must not exceed ``most_bytes``.

    Raises `BadPayload`.
    """

    def __init__(
        self, first: ID, pack: bytearray, *, most: int, size: int, most_bytes: int
    ) -> None:
        self._cursor = Cursor(pack, most)
        self._first_ms, self._first_seq = first
        self.size = size
        self._most_bytes = most_bytes
        self._node = NodeImage(first)
        self._ids, self._ends, self._pairs = self._node.ids, self._node.ends, self._node.pairs
        self._wire, self._dead = self._node.wire, self._node.dead
        self._names = bytearray()
        """The field names of the master entry, in RESP."""
        self._name_ends: array[int] = array("Q")
        self._names_bytes = 0
        """Number of bytes of the field names."""
        self._alive = 0
        self._said_live = self._cursor.integer()
        self._said_deleted = self._cursor.integer()
        self._read_names(self._cursor.integer())
        if self._cursor.integer() != 0:
            raise BadPayload("a node's master entry does not end with 0")

    def step(self, most: int) -> bool:
        """Read up to ``most`` more entries. Return False if there are no more."""
        while most > 0 and self._cursor.left():
            self._read_entry()
            most -= 1
        return self._cursor.left()

    def node(self) -> NodeImage:
        """Return the node. `step` must have returned False before."""
        self._cursor.finish()
        count = len(self._dead)
        if (self._said_live, self._said_deleted) != (self._alive, count - self._alive):
            raise BadPayload(
                f"a node has the counts {self._said_live} live and {self._said_deleted} deleted, "
                f"{self._alive} of its {count} entries are live"
            )
        return self._node

    def elements(self) -> int:
        """Return the number of elements that were read."""
        return self._cursor.taken

    def _read_names(self, count: int) -> None:
        if count < 0:
            raise BadPayload(f"a node's master entry has {count} field names")
        for _ in range(count):
            self._cursor.next()
            self._names_bytes += self._cursor.put_bulk(self._names)
            push_word(self._name_ends, len(self._names))

    def _read_entry(self) -> None:
        cursor = self._cursor
        taken = cursor.taken
        flags = cursor.integer()
        if not 0 <= flags <= _DELETED | _SAME_FIELDS:
            raise BadPayload(f"an entry has the unknown flags {flags}")
        ms = (self._first_ms + cursor.integer()) & _ALL
        seq = (self._first_seq + cursor.integer()) & _ALL
        if flags & _SAME_FIELDS:
            pairs = len(self._name_ends)
            self._charge(pairs, self._names_bytes)
            self._take_values()
        else:
            pairs = cursor.integer()
            if pairs < 0:
                raise BadPayload(f"an entry has {pairs} fields")
            self._charge(min(pairs, len(cursor.pack)), 0)
            self._take_pairs(pairs)
        if not pairs:
            raise BadPayload("an entry has no fields")
        before = cursor.taken - taken
        if cursor.integer() != before:
            raise BadPayload("an entry has a wrong number of parts")
        push_id(self._ids, ms, seq)
        push_word(self._ends, len(self._wire))
        push_offset(self._pairs, pairs)
        put_u8(self._dead, flags & _DELETED)
        if not flags & _DELETED:
            self._alive += 1

    def _charge(self, pairs: int, more: int) -> None:
        """Count an entry of ``pairs`` fields towards the size, including ``more`` bytes of names that the master
        entry stores. The bytes of its own elements are counted when they are read."""
        self.size += _ENTRY_BYTES + 2 * _ELEMENT_BYTES * pairs + more
        if self.size > self._most_bytes:
            raise ValueTooLarge(self._most_bytes)

    def _take_values(self) -> None:
        """Read the values of an entry, each after its name from the master entry."""
        cursor, wire, start = self._cursor, self._wire, 0
        for number in range(len(self._name_ends)):
            end = word_at(self._name_ends, number)
            append_part(wire, self._names, start, end)
            start = end
            cursor.next()
            self.size += cursor.put_bulk(wire)

    def _take_pairs(self, pairs: int) -> None:
        cursor, wire = self._cursor, self._wire
        for _ in range(2 * pairs):
            cursor.next()
            self.size += cursor.put_bulk(wire)


class NodeWriter:
    """Writes the listpack of a node to ``pack``. The id of the node must be that of its first entry."""

    def __init__(self, node: NodeImage) -> None:
        assert (node.ids[0], node.ids[1]) == node.first, (
            "the id of a node is that of its first entry"
        )
        self.pack = bytearray()
        self._ids, self._ends, self._pairs = node.ids, node.ends, node.pairs
        self._wire, self._dead = node.wire, node.dead
        self._first_ms, self._first_seq = node.first
        self._names = bytearray()
        """The field names of the first entry, in RESP."""
        self._at = self._elements = 0
        self._start = self._stop = 0
        listpack.begin(self.pack)
        deleted = node.dead.count(1)
        self._put_number(len(node.dead) - deleted)
        self._put_number(deleted)
        self._put_number(offset_at(node.pairs, 0))
        at, end = 0, word_at(node.ends, 0)
        while at < end:
            behind = self._bulk(at)
            append_part(self._names, self._wire, at, behind)
            self._put_bulk()
            at = self._bulk(behind)
        self._put_number(0)

    def step(self, most: int) -> bool:
        """Write up to ``most`` more entries. Return False if there are no more; then ``pack`` is complete."""
        count = len(self._dead)
        while most > 0 and self._at < count:
            self._write_entry(self._at)
            self._at += 1
            most -= 1
        if self._at < count:
            return True
        listpack.end(self.pack, self._elements)
        return False

    def _write_entry(self, number: int) -> None:
        at = word_at(self._ends, number - 1) if number else 0
        end = word_at(self._ends, number)
        same = self._has_names(at, end)
        before = self._elements
        self._put_number((_SAME_FIELDS if same else 0) | self._dead[number])
        self._put_difference(word_at(self._ids, 2 * number), self._first_ms)
        self._put_difference(word_at(self._ids, 2 * number + 1), self._first_seq)
        if not same:
            self._put_number(offset_at(self._pairs, number))
        named = True
        while at < end:
            at = self._bulk(at)
            if not (named and same):
                self._put_bulk()
            named = not named
        self._put_number(self._elements - before)

    def _has_names(self, at: int, end: int) -> bool:
        """Return whether the fields from ``at`` on have the same names as the first entry."""
        wire, names, done = self._wire, self._names, 0
        while at < end:
            behind = self._bulk(at)
            if behind - at > len(names) - done:
                return False
            while at < behind:
                if wire[at] != names[done]:
                    return False
                at += 1
                done += 1
            at = self._bulk(behind)
        return done == len(names)

    def _bulk(self, at: int) -> int:
        """Locate the value of the bulk string at ``at``. Return the start of the next one."""
        wire, size = self._wire, 0
        at += 1
        while wire[at] != 13:
            size = size * 10 + (wire[at] - 48)
            at += 1
        self._start = at + 2
        self._stop = self._start + size
        return self._stop + 2

    def _put_bulk(self) -> None:
        put_text(self.pack, self._wire, self._start, self._stop)
        self._elements += 1

    def _put_number(self, number: int) -> None:
        put_integer(self.pack, False, number)
        self._elements += 1

    def _put_difference(self, value: int, master: int) -> None:
        """Write a difference in Redis's form, a signed 64-bit integer."""
        wrapped = (value - master) & _ALL
        negative = wrapped >> 63 == 1
        put_integer(self.pack, negative, (~wrapped + 1) & _ALL if negative else wrapped)
        self._elements += 1


def keep(node: NodeImage, numbers: list[int]) -> NodeImage:
    """Return a copy of the node with only the entries ``numbers``."""
    kept = NodeImage(node.first)
    for number in numbers:
        start = node.ends[number - 1] if number else 0
        append_part(kept.wire, node.wire, start, node.ends[number])
        kept.ids.extend(node.ids[2 * number : 2 * number + 2])
        kept.ends.append(len(kept.wire))
        kept.pairs.append(node.pairs[number])
        kept.dead.append(node.dead[number])
    return kept


def rises(ids: array[int], ms: int, seq: int) -> bool:
    """Return whether ids are ascending, starting above ``ms-seq``."""
    for at in range(0, len(ids), 2):
        next_ms, next_seq = word_at(ids, at), word_at(ids, at + 1)
        if next_ms < ms or (next_ms == ms and next_seq <= seq):
            return False
        ms, seq = next_ms, next_seq
    return True
