"""Converts between images of streams entry by entry, as tests write them, and the columns of
`headwater.rdb`. Writes listpacks element by element, as a simple reference for the compiled code."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headwater.common.steps import do_all
from headwater.rdb.image import GroupImage, Image, NodeImage, PendingImage
from headwater.rdb.values import dump, load

ID = tuple[int, int]


class Entry(NamedTuple):
    """One entry: fields and values, alternating."""

    id: ID
    elements: tuple[bytes, ...]
    live: bool = True


class Owned(NamedTuple):
    """A pending entry and the number of its consumer, from 1, or 0 for none."""

    id: ID
    time: int
    deliveries: int
    owner: int


def node_of(first: ID, entries: Iterable[Entry]) -> NodeImage:
    node = NodeImage(first)
    for entry in entries:
        node.ids.extend(entry.id)
        node.wire += b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in entry.elements)
        node.ends.append(len(node.wire))
        node.pairs.append(len(entry.elements) // 2)
        node.dead.append(not entry.live)
    return node


def entries_of(node: NodeImage) -> list[Entry]:
    found, start = [], 0
    for number, end in enumerate(node.ends):
        elements = tuple(bulks(bytes(node.wire[start:end])))
        assert len(elements) == 2 * node.pairs[number]
        entry_id = (node.ids[2 * number], node.ids[2 * number + 1])
        found.append(Entry(entry_id, elements, not node.dead[number]))
        start = end
    return found


def bulks(wire: bytes) -> list[bytes]:
    found = []
    while wire:
        head, _, rest = wire.partition(b"\r\n")
        size = int(head[1:])
        found.append(rest[:size])
        wire = rest[size + 2 :]
    return found


def pending_of(owned: Sequence[Owned]) -> PendingImage:
    return PendingImage(
        array("Q", [word for one in owned for word in (*one.id, one.time, one.deliveries)]),
        array("I", [one.owner for one in owned]),
    )


def ids(*found: ID) -> array[int]:
    return array("Q", [word for entry_id in found for word in entry_id])


def owned_by(group: GroupImage, name: bytes) -> list[ID]:
    """Return the ids that a consumer owns."""
    number = [consumer.name for consumer in group.consumers].index(name) + 1
    words = group.pending.words
    return [
        (words[4 * at], words[4 * at + 1])
        for at, owner in enumerate(group.pending.owners)
        if owner == number
    ]


def read_payload(payload: bytes) -> Image:
    """Read the value of a payload in one step."""
    return do_all(load(bytearray(payload), 0, len(payload)))


def write_payload(image: Image, form: str) -> bytes:
    return bytes(do_all(dump(image, form)))


# --- listpacks ------------------------------------------------------------------------------------

Element = int | bytes

_INTEGER_BYTES = {0xF1: 3, 0xF2: 4, 0xF3: 5, 0xF4: 9}


def plain_listpack(elements: Sequence[Element]) -> bytes:
    """Encode a listpack. Bytes that spell an integer are written as an integer."""
    out = bytearray(6)
    for element in elements:
        number = element if isinstance(element, int) else spelled(element)
        if number is None:
            assert isinstance(element, bytes)
            body = _string(element)
        else:
            body = _integer(number)
        out += body + backlen(len(body))
    out.append(0xFF)
    out[:4] = len(out).to_bytes(4, "little")
    out[4:6] = min(len(elements), 0xFFFF).to_bytes(2, "little")
    return bytes(out)


def plain_node(first: ID, entries: Sequence[Entry]) -> bytes:
    """Encode the listpack of a node."""
    names = entries[0].elements[0::2]
    alive = sum(entry.live for entry in entries)
    elements: list[Element] = [alive, len(entries) - alive, len(names), *names, 0]
    for entry in entries:
        same = entry.elements[0::2] == names
        stored = entry.elements[1::2] if same else entry.elements
        parts: list[Element] = [(2 if same else 0) | (not entry.live)]
        for value, master in zip(entry.id, first, strict=True):
            parts.append((value - master + 2**63) % 2**64 - 2**63)
        if not same:
            parts.append(len(stored) // 2)
        elements += [*parts, *stored, len(parts) + len(stored)]
    return plain_listpack(elements)


def spelled(value: bytes) -> int | None:
    """Return the 64-bit integer whose canonical spelling is ``value``, or None."""
    try:
        number = int(value)
    except ValueError:
        return None
    return number if b"%d" % number == value and -(2**63) <= number < 2**63 else None


def backlen(size: int) -> bytes:
    """Encode seven bits per byte, the lowest last. Redis's bounds are one below what that allows."""
    count = 1 + sum(size >= bound for bound in (128, 16383, 2097151, 268435455))
    groups = [size >> 7 * at & 127 for at in range(count)][::-1]
    return bytes([groups[0], *(one | 128 for one in groups[1:])])


def _integer(number: int) -> bytes:
    if 0 <= number <= 127:
        return bytes((number,))
    if -4096 <= number <= 4095:
        number &= 0x1FFF
        return bytes((0xC0 | number >> 8, number & 0xFF))
    for head, size in _INTEGER_BYTES.items():
        if -(1 << (8 * size - 9)) <= number < 1 << (8 * size - 9):
            return bytes((head,)) + number.to_bytes(size - 1, "little", signed=True)
    raise AssertionError(f"{number} has more than 64 bits")


def _string(value: bytes) -> bytes:
    length = len(value)
    if length < 64:
        return bytes((0x80 | length,)) + value
    if length < 4096:
        return bytes((0xE0 | length >> 8, length & 0xFF)) + value
    return b"\xf0" + length.to_bytes(4, "little") + value
