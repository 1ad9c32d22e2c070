"""The listpack in which a stream keeps the entries of one node.

    live │ deleted │ n │ name * n │ 0           the master entry: field names of the first
    flags │ ms │ seq │ value * n │ parts        an entry with those names (flag 2)
    flags │ ms │ seq │ n │ (name │ value) * n │ parts

ms and seq are differences to the node's id; parts counts the elements before it; flag 1 marks a
deleted entry, which stays until its node goes.

Source: Redis, t_stream.c (streamAppendItem, streamIteratorGetID, streamValidateListpackIntegrity).
"""

from __future__ import annotations

from headwater.rdb import listpack
from headwater.rdb.image import ID, EntryImage, NodeImage
from headwater.rdb.listpack import Element, text
from headwater.rdb.payload import BadPayload

_DELETED = 1
_SAME_FIELDS = 2
_WRAP = 2**64


class _Elements:
    """Takes elements off a listpack."""

    def __init__(self, elements: list[Element]) -> None:
        self.elements = elements
        self.at = 0

    def left(self) -> int:
        return len(self.elements) - self.at

    def number(self) -> int:
        """The next element, which must be an integer."""
        found = self.take(1)[0]
        if not isinstance(found, int):
            raise BadPayload("a node holds text where a number should be")
        return found

    def take(self, count: int) -> list[Element]:
        if not 0 <= count <= self.left():
            raise BadPayload(f"a node promises {count} elements and has {self.left()}")
        self.at += count
        return self.elements[self.at - count : self.at]


def read(first: ID, packed: list[Element]) -> NodeImage:
    """The node whose id is ``first``, of the elements of its listpack. Raises `BadPayload`."""
    elements = _Elements(packed)
    live, deleted = elements.number(), elements.number()
    names = tuple(map(text, elements.take(elements.number())))
    if elements.number() != 0:
        raise BadPayload("a node's first entry does not end with 0")
    entries = []
    while elements.left():
        entries.append(_entry(first, names, elements))
    alive = sum(entry.live for entry in entries)
    if (live, deleted) != (alive, len(entries) - alive):
        raise BadPayload(
            f"a node says {live} live and {deleted} deleted, of {len(entries)} live {alive}"
        )
    return NodeImage(first, entries)


def _entry(first: ID, names: tuple[bytes, ...], elements: _Elements) -> EntryImage:
    start = elements.at
    flags = elements.number()
    if not 0 <= flags <= _DELETED | _SAME_FIELDS:
        raise BadPayload(f"an entry has the unknown flags {flags}")
    entry_id = (
        (first[0] + elements.number()) % _WRAP,
        (first[1] + elements.number()) % _WRAP,
    )
    if flags & _SAME_FIELDS:
        count = len(names)
        found = [b""] * (2 * count)
        found[0::2] = names
        found[1::2] = map(text, elements.take(count))
    else:
        count = elements.number()
        found = list(map(text, elements.take(2 * count)))
    if not count:
        raise BadPayload("an entry has no fields")
    if elements.number() != elements.at - 1 - start:
        raise BadPayload("an entry miscounts its parts")
    return EntryImage(entry_id, tuple(found), not flags & _DELETED)


def write(node: NodeImage) -> bytes:
    """The listpack of a node, whose first entry has its id."""
    names = node.entries[0].elements[0::2]
    assert node.entries[0].id == node.first, "a node is known by its first entry"
    alive = sum(entry.live for entry in node.entries)
    elements: list[Element] = [alive, len(node.entries) - alive, len(names), *names, 0]
    for entry in node.entries:
        same = entry.elements[0::2] == names
        flags = (_SAME_FIELDS if same else 0) | (0 if entry.live else _DELETED)
        stored = entry.elements[1::2] if same else entry.elements
        parts: list[Element] = [
            flags,
            _difference(entry.id[0], node.first[0]),
            _difference(entry.id[1], node.first[1]),
        ]
        if not same:
            parts.append(len(stored) // 2)
        parts += stored
        elements += parts
        elements.append(len(parts))
    return listpack.write(elements)


def _difference(value: int, master: int) -> int:
    """As Redis keeps it, in a signed integer of 64 bits."""
    wrapped = (value - master) % _WRAP
    return wrapped - _WRAP if wrapped >= _WRAP // 2 else wrapped
