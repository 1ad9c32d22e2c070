"""Values as neither the RDB format nor the engine keeps them: what stands between the two.

An id is ``(ms, seq)``. Times are Unix ms.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

ID = tuple[int, int]

UNKNOWN = -1
"""``entries_read`` that cannot be told."""

NEVER = -1
"""``active_time`` of a consumer that has never been given an entry."""


def _words() -> array[int]:
    return array("Q")


def _numbers() -> array[int]:
    return array("I")


@dataclass(slots=True)
class NodeImage:
    """The entries of one listpack, in columns. ``first`` is the id that the node is known by: that of
    the entry that it was opened with. A deleted entry still counts for its node."""

    first: ID
    ids: array[int] = field(default_factory=_words)
    """Two words an entry."""
    wire: bytearray = field(default_factory=bytearray)
    """Fields and values, alternating, of one entry after the other, as RESP's bulk strings."""
    ends: array[int] = field(default_factory=_words)
    """Where those of each entry end."""
    pairs: array[int] = field(default_factory=_numbers)
    """How many fields each has."""
    dead: bytearray = field(default_factory=bytearray)
    """1 for each that is deleted, else 0."""


NOBODY = 0
"""Owner of a released entry."""

UNCLAIMED = 2**32 - 1
"""Owner of an entry of which it is not known yet."""


@dataclass(slots=True)
class PendingImage:
    """The pending entries of a group, whose ids rise, in columns."""

    words: array[int] = field(default_factory=_words)
    """Four an entry: ms and seq of its id, its delivery time, how often it was delivered."""
    owners: array[int] = field(default_factory=_numbers)
    """The number of each one's consumer among those of its group, the first is 1, or `NOBODY`."""


@dataclass(slots=True)
class ConsumerImage:
    """A consumer."""

    name: bytes
    seen_time: int
    active_time: int


@dataclass(slots=True)
class GroupImage:
    """A consumer group.

    ``entries_read`` is None where the form does not say; whoever knows the stream can estimate it.
    Each pending entry is owned by one consumer or stands in ``released``, ids of two words each in the
    order in which released entries are to be given out. A released one with a time is delayed until
    then: Redis writes 0 there, and passes over what else stands in it.
    """

    name: bytes
    last_id: ID
    entries_read: int | None
    pending: PendingImage = field(default_factory=PendingImage)
    consumers: list[ConsumerImage] = field(default_factory=list)
    released: array[int] = field(default_factory=_words)


class ProducerImage(NamedTuple):
    """An idempotent producer: its idempotent ids, oldest first, and the entry that each made."""

    pid: bytes
    iids: list[tuple[bytes, ID]]


@dataclass(slots=True)
class IdempotencyImage:
    """What a stream knows of idempotent producers."""

    duration_s: int
    max_size: int
    producers: list[ProducerImage]
    added: int
    duplicates: int


@dataclass(slots=True)
class StreamImage:
    """A stream of ``length`` live entries, the first of them ``first_id``, 0-0 when there is none. Their
    ids rise from node to node and within each. ``nodes`` may be made while they are gone over."""

    nodes: Collection[NodeImage]
    length: int
    first_id: ID
    last_id: ID
    max_deleted_id: ID
    entries_added: int
    groups: list[GroupImage] = field(default_factory=list)
    idempotency: IdempotencyImage | None = None


class ListImage(NamedTuple):
    """A list, head first."""

    items: list[bytes]


class SetImage(NamedTuple):
    """A set; no member twice."""

    members: list[bytes]


class HashImage(NamedTuple):
    """A hash; no field twice."""

    pairs: list[tuple[bytes, bytes]]


Image = bytes | StreamImage | ListImage | SetImage | HashImage
