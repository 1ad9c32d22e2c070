"""What workers note of their group, so that it can be created again.

    {stream}:hw:noted:<group>   at       when, in Unix milliseconds of the server
                                last     the last-delivered id
                                floor    the smallest pending id, where there are too many to note
                                pending  the pending entries, as JSON: owners, and rows
                                signed   1 if the group has the consumer ``hw.sign``

Rule 1. Everything noted was true at one moment: it is read in one MULTI.
Rule 2. The text changes only when the pending list does: of a waiting entry it says when it is due,
        not for how long it has been idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headwater.messages import PARKED_CONSUMER
from headwater.model import StreamID, id_before

FIELDS: Final = ("at", "last", "floor", "pending")

SIGNED: Final = "signed"

MOST: Final = 10_000
"""Pending entries that are noted one by one; of more only the smallest id is."""

PARKED: Final = PARKED_CONSUMER.encode()


class Row(NamedTuple):
    """A pending entry. ``owner`` is empty for a released or delayed one; ``ripe_ms`` is 0 unless it
    waits for its time."""

    id: bytes
    deliveries: int
    owner: bytes
    ripe_ms: int


class GroupBackup(NamedTuple):
    """A group at the moment ``at_ms``."""

    at_ms: int
    last: StreamID
    floor: StreamID | None
    rows: Sequence[Row]

    @property
    def position(self) -> StreamID:
        """Behind which id the group goes on."""
        if self.floor is None or self.floor > self.last:
            return self.last
        return StreamID(*id_before(*self.floor))

    def words(self) -> list[str | bytes | int]:
        """Fields and values of the hash."""
        floor = "" if self.floor is None else str(self.floor)
        return ["at", self.at_ms, "last", str(self.last), "floor", floor, "pending", self.text()]

    def text(self) -> bytes:
        """The rows as they are kept."""
        owners = sorted({row.owner for row in self.rows})
        place = {owner: n for n, owner in enumerate(owners)}
        rows = [
            (row.id.decode(), row.deliveries, place[row.owner], row.ripe_ms) for row in self.rows
        ]
        return msgspec.json.encode(
            {"owners": [owner.decode("utf-8", "surrogateescape") for owner in owners], "rows": rows}
        )


class _Text(msgspec.Struct):
    owners: list[str]
    rows: list[tuple[str, int, int, int]]


def parse(values: Sequence[Any]) -> GroupBackup | None:
    """The note that HMGET of `FIELDS` returned; None where there is none that can be read."""
    at, last, floor, pending = values
    if at is None or last is None:
        return None
    try:
        text = msgspec.json.decode(pending or b'{"owners":[],"rows":[]}', type=_Text)
        owners = [owner.encode("utf-8", "surrogateescape") for owner in text.owners]
        rows = [Row(one.encode(), count, owners[n], ripe) for one, count, n, ripe in text.rows]
        smallest = StreamID.parse(floor) if floor else None
        return GroupBackup(int(at), StreamID.parse(last), smallest, rows)
    except (ValueError, IndexError, msgspec.MsgspecError):
        return None
