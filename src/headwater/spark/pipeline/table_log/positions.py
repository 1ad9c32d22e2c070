"""The position up to which a query has read the log of a table, as the offset that Spark logs."""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class LogPosition(NamedTuple):
    """The position up to which a table's log was read. ``table`` is the table's id; None if nothing was read."""

    table: str | None
    to: int


NOTHING: Final = LogPosition(None, -1)
"""The position of a query that has read nothing."""


def position_of(offset: dict[str, Any]) -> LogPosition:
    """Return the position for an offset from Spark's log."""
    return LogPosition(offset["table"], offset["to"])


def offset_of(position: LogPosition) -> dict[str, Any]:
    """Return a position as an offset for Spark's log."""
    return position._asdict()


def is_position(offset: dict[str, Any] | None) -> bool:
    """Return whether an offset is a position in a table's log, and not one in a source.

    >>> is_position({"table": "8d1f", "to": 812}), is_position({"orders": {"from": "0-0"}}), is_position(None)
    (True, False, False)
    """
    return offset is not None and offset.keys() == set(LogPosition._fields)
