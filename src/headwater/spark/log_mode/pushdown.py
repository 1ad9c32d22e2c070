"""A batch read that accepts filters from Spark, which narrow the ids and streams to read.

Rule 1. A filter is fully handled (Spark does not apply it again) only if the remaining ids are exactly the rows
        that the filter keeps. Other filters narrow the read if possible, and Spark applies them too.
Rule 2. Ids are ordered as numbers, but the column ``id`` as text: "10-0" is before "9-0". On ``id``, therefore,
        only equality narrows. For ranges, use ``timestamp``, which is the id's milliseconds.

    stream      =, IN                     other streams are not read
    id          =, IN                     one id; for IN from the least to the greatest, filtered again
    timestamp   =, <, <=, >, >=, IN       ids of those milliseconds; IN as above

Spark accepts a reader that has `pushFilters` only with spark.sql.python.filterPushdown.enabled=true. Therefore
this reader is used only with ``pushdown=true``. Spark 4.3 also keeps the pushed filters in the loaded frame, for
later queries on that frame: use a frame with pushdown for one query only.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

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

from headwater.common.model import MAX_ID, MAX_U64, MIN_ID, IDRange, StreamID
from headwater.spark.decoding.page import MAX_TIMESTAMP_MS
from headwater.spark.log_mode.batch import BatchReader

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


_ALL: Final = IDRange(MIN_ID, MAX_ID)
NOTHING: Final = IDRange(MAX_ID, MIN_ID)
_LAST_TIMED: Final = StreamID(MAX_TIMESTAMP_MS, MAX_U64)
"""The last id with a timestamp. For later ids the column ``timestamp`` is null, and every comparison is too."""


class PushdownReader(BatchReader):
    """A `BatchReader` that is narrowed by the filters that Spark pushes down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Apply ``filters`` where possible; yield those that Spark must apply as well."""
        for one in filters:
            if not self._take(one):
                yield one

    def _take(self, one: Filter) -> bool:
        """Narrow the read by the filter ``one``; return whether the filter is then fully handled."""
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


def id_bounds(one: Filter) -> tuple[IDRange, bool]:
    """Return bounds on the ids that a filter on ``id`` keeps, and whether the filter keeps all ids within them."""
    if isinstance(one, IsNotNull):
        return _ALL, True
    values = _equal_to_one_of(one)
    if values is None:
        return _ALL, False
    ids = [id_ for id_ in map(_id, values) if id_ is not None]
    return (IDRange(min(ids), max(ids)) if ids else NOTHING), len(set(ids)) <= 1


def timestamp_bounds(one: Filter) -> tuple[IDRange, bool]:
    """Return the same as `id_bounds`, for a filter on ``timestamp``.

    A timestamp has microseconds and an id has milliseconds, so a timestamp between two milliseconds is above all
    ids of one and below all ids of the next.
    """
    if isinstance(one, IsNotNull):
        return IDRange(MIN_ID, _LAST_TIMED), True
    values = _equal_to_one_of(one)
    if values is not None:
        moments = [_microseconds(value) for value in values]
        if None in moments:
            return _ALL, False
        whole = {us // 1000 for us in moments if us is not None and us % 1000 == 0 and us >= 0}
        if not whole:
            return NOTHING, True
        return _milliseconds(min(whole), max(whole)), len(whole) == 1
    us = _microseconds(getattr(one, "value", None))
    if us is None:
        return _ALL, False
    floor, ceiling = us // 1000, -(-us // 1000)
    if isinstance(one, GreaterThan):
        return _milliseconds(floor + 1, MAX_TIMESTAMP_MS), True
    if isinstance(one, GreaterThanOrEqual):
        return _milliseconds(ceiling, MAX_TIMESTAMP_MS), True
    if isinstance(one, LessThan):
        return _milliseconds(0, ceiling - 1), True
    if isinstance(one, LessThanOrEqual):
        return _milliseconds(0, floor), True
    return _ALL, False


def _milliseconds(first: int, last: int) -> IDRange:
    """Return the ids from one millisecond to another, both included."""
    if last < 0 or first > last:
        return NOTHING
    return IDRange(StreamID(max(0, first), 0), min(StreamID(last, MAX_U64), _LAST_TIMED))


def _equal_to_one_of(one: Filter) -> tuple[Any, ...] | None:
    if isinstance(one, (EqualTo, EqualNullSafe)):
        return None if one.value is None else (one.value,)
    return tuple(one.value) if isinstance(one, In) else None


def _id(text: Any) -> StreamID | None:
    """Return the id that is written as ``text``; None if it is not the text of an id."""
    try:
        found = StreamID.parse(text)
    except (ValueError, AttributeError):
        return None
    return found if str(found) == text else None


def _microseconds(value: Any) -> int | None:
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND
