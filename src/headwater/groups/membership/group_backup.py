"""The backup of a group, from which workers create the group again if it is destroyed.

    {stream}:hw:noted:<group>   at       time of the backup, in Unix milliseconds of the server
                                last     the last-delivered id
                                floor    the smallest pending id, if there are too many to list
                                pending  the pending entries, as JSON: owners, and rows; names, the owners in
                                         base64, if the name of one is not UTF-8
                                signed   1 if the group has the consumer ``hw.sign``

Rule 1. A backup is consistent, because all of it is read in one MULTI.
Rule 2. Its text changes only if the pending entries change. So a delayed entry is listed with its due time,
        not with its idle time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NotRequired, TypedDict

from headwater.common.model import StreamID, id_before
from headwater.common.names import bytes_of, printable, text_of
from headwater.messages.keys import PARKED_CONSUMER

FIELDS: Final = ("at", "last", "floor", "pending")

SIGNED: Final = "signed"

MOST: Final = 10_000
"""Maximum number of pending entries that a backup lists. With more, the backup has only the smallest id."""

PARKED: Final = PARKED_CONSUMER.encode()


class Row(NamedTuple):
    """A pending entry. For a released or delayed entry, ``owner`` is empty (Headwater) or `PARKED` (other servers).
    ``ripe_ms`` is the due time, 0 if the entry is not delayed."""

    id: bytes
    deliveries: int
    owner: bytes
    ripe_ms: int


class GroupBackup(NamedTuple):
    """The state of a group at the time ``at_ms``."""

    at_ms: int
    last: StreamID
    floor: StreamID | None
    rows: Sequence[Row]

    @property
    def position(self) -> StreamID:
        """The id after which a group that is created from this backup continues."""
        if self.floor is None or self.floor > self.last:
            return self.last
        return StreamID(*id_before(*self.floor))

    def words(self) -> list[str | bytes | int]:
        """Return fields and values of the hash."""
        floor = "" if self.floor is None else str(self.floor)
        return ["at", self.at_ms, "last", str(self.last), "floor", floor, "pending", self.text()]

    def text(self) -> bytes:
        """Return the rows as the text that is stored."""
        owners = sorted({row.owner for row in self.rows})
        place = {owner: n for n, owner in enumerate(owners)}
        rows = [
            (row.id.decode(), row.deliveries, place[row.owner], row.ripe_ms) for row in self.rows
        ]
        import msgspec  # imported here, because every report on a group imports this module

        names = [*map(text_of, owners)]
        text: _Text = {"owners": [*map(printable, names)], "rows": rows}
        if text["owners"] != names:
            text["names"] = owners
        return msgspec.json.encode(text)


class _Text(TypedDict):
    owners: list[str]
    rows: list[tuple[str, int, int, int]]
    names: NotRequired[list[bytes]]
    """The owners, if one is not UTF-8. JSON has only text, so ``owners`` is not exact then."""


def parse(values: Sequence[Any]) -> GroupBackup | None:
    """Return the backup from HMGET's reply for `FIELDS`; None if it is missing or cannot be parsed."""
    import msgspec

    at, last, floor, pending = values
    if at is None or last is None:
        return None
    try:
        text = msgspec.json.decode(pending or b'{"owners":[],"rows":[]}', type=_Text)
        owners = text.get("names") or [*map(bytes_of, text["owners"])]
        rows = [Row(one.encode(), count, owners[n], ripe) for one, count, n, ripe in text["rows"]]
        smallest = StreamID.parse(floor) if floor else None
        return GroupBackup(int(at), StreamID.parse(last), smallest, rows)
    except (ValueError, IndexError, msgspec.MsgspecError):
        return None
