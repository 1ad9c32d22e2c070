"""Values as neither the RDB format nor the engine keeps them: what stands between the two.

An id is ``(ms, seq)``. Times are Unix ms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

ID = tuple[int, int]

UNKNOWN = -1
"""``entries_read`` that cannot be told."""

NEVER = -1
"""``active_time`` of a consumer that has never been given an entry."""


class EntryImage(NamedTuple):
    """One entry: fields and values, alternating. A deleted one still counts for its node."""

    id: ID
    elements: tuple[bytes, ...]
    live: bool = True


class NodeImage(NamedTuple):
    """The entries of one listpack. ``first`` is the id that the node is known by: that of the entry
    that it was opened with."""

    first: ID
    entries: list[EntryImage]


class PendingImage(NamedTuple):
    """A pending entry of a group: its delivery time and how often it was delivered."""

    id: ID
    time: int
    deliveries: int


@dataclass(slots=True)
class ConsumerImage:
    """A consumer and the ids that it owns, which rise."""

    name: bytes
    seen_time: int
    active_time: int
    pending: list[ID] = field(default_factory=list)


@dataclass(slots=True)
class GroupImage:
    """A consumer group.

    ``entries_read`` is None where the form does not say; whoever knows the stream can estimate it.
    ``pending`` rises by id. Each of its entries is owned by one consumer or stands in ``released``,
    in the order in which released entries are to be given out. A released one with a time is delayed
    until then: Redis writes 0 there, and passes over what else stands in it.
    """

    name: bytes
    last_id: ID
    entries_read: int | None
    pending: list[PendingImage] = field(default_factory=list)
    consumers: list[ConsumerImage] = field(default_factory=list)
    released: list[ID] = field(default_factory=list)


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
    """A stream. Ids of live entries rise from node to node and within each."""

    nodes: list[NodeImage]
    last_id: ID
    max_deleted_id: ID
    entries_added: int
    groups: list[GroupImage] = field(default_factory=list)
    idempotency: IdempotencyImage | None = None

    def live(self) -> list[EntryImage]:
        """The entries that are there."""
        return [entry for node in self.nodes for entry in node.entries if entry.live]


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
