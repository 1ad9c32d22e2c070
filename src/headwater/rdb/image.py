"""Values in a neutral form between the RDB format and the engine.

An id is ``(ms, seq)``. Times are Unix ms.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

ID = tuple[int, int]

UNKNOWN = -1
"""Value of ``entries_read`` if it is unknown."""

NEVER = -1
"""``active_time`` of a consumer that no entry was delivered to."""


def _words() -> array[int]:
    return array("Q")


def _numbers() -> array[int]:
    return array("I")


@dataclass(slots=True)
class NodeImage:
    """The entries of one listpack, in columns, including deleted entries. ``first`` is the id of the node: the id
    of the entry with which the node was created."""

    first: ID
    ids: array[int] = field(default_factory=_words)
    """Two words for each entry."""
    wire: bytearray = field(default_factory=bytearray)
    """Fields and values of all entries, alternating, as RESP bulk strings."""
    ends: array[int] = field(default_factory=_words)
    """Offset in ``wire`` after the fields and values of each entry."""
    pairs: array[int] = field(default_factory=_numbers)
    """Number of fields of each entry."""
    dead: bytearray = field(default_factory=bytearray)
    """1 for each deleted entry, otherwise 0."""


NOBODY = 0
"""Owner of a released entry."""

UNCLAIMED = 2**32 - 1
"""Owner of an entry whose owner has not been read yet."""


@dataclass(slots=True)
class PendingImage:
    """The pending entries of a group in columns, with ascending ids."""

    words: array[int] = field(default_factory=_words)
    """Four words for each entry: ms and seq of its id, its delivery time, its delivery count."""
    owners: array[int] = field(default_factory=_numbers)
    """Number of each entry's consumer in the group, starting at 1, or `NOBODY`."""


@dataclass(slots=True)
class ConsumerImage:
    """A consumer. ``active_time`` may be `NEVER`."""

    name: bytes
    seen_time: int
    active_time: int


@dataclass(slots=True)
class GroupImage:
    """A consumer group.

    ``entries_read`` is None if the form does not contain it; it can then be estimated from the stream. Each
    pending entry is either owned by a consumer or in ``released``, which has ids of two words in the order
    in which the entries will be delivered. If the delivery time of a released entry is not 0, the entry is
    delayed until that time; Redis writes 0 and ignores other values.
    """

    name: bytes
    last_id: ID
    entries_read: int | None
    pending: PendingImage = field(default_factory=PendingImage)
    consumers: list[ConsumerImage] = field(default_factory=list)
    released: array[int] = field(default_factory=_words)


class ProducerImage(NamedTuple):
    """An idempotent producer: its idempotent ids, oldest first, and the entry added for each."""

    pid: bytes
    iids: list[tuple[bytes, ID]]


@dataclass(slots=True)
class IdempotencyImage:
    """The idempotent producers of a stream."""

    duration_s: int
    max_size: int
    producers: list[ProducerImage]
    added: int
    duplicates: int


@dataclass(slots=True)
class StreamImage:
    """A stream of ``length`` live entries. ``first_id`` is the id of the first live entry, 0-0 if ``length`` is
    0. Ids are ascending within each node and from node to node. Iterating over ``nodes`` may create them."""

    nodes: Collection[NodeImage]
    length: int
    first_id: ID
    last_id: ID
    max_deleted_id: ID
    entries_added: int
    groups: list[GroupImage] = field(default_factory=list)
    idempotency: IdempotencyImage | None = None


class ListImage(NamedTuple):
    """A list. Its head is the first item."""

    items: list[bytes]


class SetImage(NamedTuple):
    """A set. No member occurs twice."""

    members: list[bytes]


class HashImage(NamedTuple):
    """A hash. No field occurs twice."""

    pairs: list[tuple[bytes, bytes]]


Image = bytes | StreamImage | ListImage | SetImage | HashImage
