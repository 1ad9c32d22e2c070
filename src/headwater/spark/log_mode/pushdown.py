"""A batch read that takes filters from Spark: they narrow which ids and which streams are read.

Rule 1. A filter is answered for (Spark does not look again) only where the ids that are left are
        exactly the rows that it keeps. Otherwise it narrows, if it can, and Spark looks again.
Rule 2. Ids order as numbers and the column ``id`` as text, "10-0" before "9-0". So only equality on
        ``id`` narrows; a range is asked for on ``timestamp``, which is the id's milliseconds.

    stream      =, IN                     the other streams are not asked
    id          =, IN                     one id; from the least to the greatest, looked at again
    timestamp   =, <, <=, >, >=, IN       ids of those milliseconds; IN as above

Spark calls a reader that has `pushFilters` only with spark.sql.python.filterPushdown.enabled=true, and
refuses it without. So this one is made for ``pushdown=true`` alone. And Spark 4.3 keeps what it left in
the loaded frame, for the next query on it too: a frame with pushdown is for one query.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from headwater.model import MAX_ID, MAX_U64, MIN_ID, StreamID
from headwater.spark.decoding.page import MAX_TIMESTAMP_MS
from headwater.spark.log_mode.batch import BatchReader

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


class Bounds(NamedTuple):
    """Ids between two, both included; none where ``first > last``."""

    first: StreamID = MIN_ID
    last: StreamID = MAX_ID


NOTHING: Final = Bounds(MAX_ID, MIN_ID)
_LAST_TIMED: Final = StreamID(MAX_TIMESTAMP_MS, MAX_U64)
"""Beyond it the column is null, as is every comparison with it."""


class PushdownReader(BatchReader):
    """`BatchReader`, narrowed by what Spark pushes down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what can be taken; yields the filters that Spark is to apply as well."""
        for one in filters:
            if not self._take(one):
                yield one

    def _take(self, one: Filter) -> bool:
        """Narrow by ``one``; whether that is all it says."""
        column = getattr(one, "attribute", ())
        if column == ("stream",):
            return self._take_stream(one)
        if column == ("id",):
            bounds, exact = id_bounds(one)
        elif column == ("timestamp",):
            bounds, exact = timestamp_bounds(one)
        else:
            return False
        self._window = self._window.narrowed(*bounds)
        return exact

    def _take_stream(self, one: Filter) -> bool:
        if isinstance(one, IsNotNull):
            return True
        values = _equal_to_one_of(one)
        if values is None:
            return False
        named = frozenset(value for value in values if isinstance(value, str))
        wanted = self._window.streams
        self._window = replace(self._window, streams=named if wanted is None else wanted & named)
        return True


def id_bounds(one: Filter) -> tuple[Bounds, bool]:
    """Where the rows are that a filter on ``id`` keeps, and whether all that are there are kept."""
    if isinstance(one, IsNotNull):
        return Bounds(), True
    values = _equal_to_one_of(one)
    if values is None:
        return Bounds(), False
    ids = [id_ for id_ in map(_id, values) if id_ is not None]
    return (Bounds(min(ids), max(ids)) if ids else NOTHING), len(set(ids)) <= 1


def timestamp_bounds(one: Filter) -> tuple[Bounds, bool]:
    """The same for a filter on ``timestamp``.

    A timestamp has microseconds and an id has milliseconds: what lies between two milliseconds is
    above the one and below the next.
    """
    if isinstance(one, IsNotNull):
        return Bounds(MIN_ID, _LAST_TIMED), True
    values = _equal_to_one_of(one)
    if values is not None:
        moments = [_microseconds(value) for value in values]
        if None in moments:
            return Bounds(), False
        whole = {us // 1000 for us in moments if us is not None and us % 1000 == 0 and us >= 0}
        if not whole:
            return NOTHING, True
        return _milliseconds(min(whole), max(whole)), len(whole) == 1
    us = _microseconds(getattr(one, "value", None))
    if us is None:
        return Bounds(), False
    floor, ceiling = us // 1000, -(-us // 1000)
    if isinstance(one, GreaterThan):
        return _milliseconds(floor + 1, MAX_TIMESTAMP_MS), True
    if isinstance(one, GreaterThanOrEqual):
        return _milliseconds(ceiling, MAX_TIMESTAMP_MS), True
    if isinstance(one, LessThan):
        return _milliseconds(0, ceiling - 1), True
    if isinstance(one, LessThanOrEqual):
        return _milliseconds(0, floor), True
    return Bounds(), False


def _milliseconds(first: int, last: int) -> Bounds:
    """The ids from one millisecond to another, both included."""
    if last < 0 or first > last:
        return NOTHING
    return Bounds(StreamID(max(0, first), 0), min(StreamID(last, MAX_U64), _LAST_TIMED))


def _equal_to_one_of(one: Filter) -> tuple[Any, ...] | None:
    if isinstance(one, (EqualTo, EqualNullSafe)):
        return None if one.value is None else (one.value,)
    return tuple(one.value) if isinstance(one, In) else None


def _id(text: Any) -> StreamID | None:
    """The id that is shown as ``text``; None where no id is."""
    try:
        found = StreamID.parse(text)
    except (ValueError, AttributeError):
        return None
    return found if str(found) == text else None


def _microseconds(value: Any) -> int | None:
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND
