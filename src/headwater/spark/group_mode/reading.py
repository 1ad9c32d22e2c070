"""Reads the entries that one task names, in an executor.

Rule 1. A run is read by its ends, a single entry by its id, with many commands in one pipeline.
Rule 2. A missing entry was removed after it was delivered to this query and before it was read. Such data loss
        raises an error or logs a warning with the number of entries. Rows are never missing silently.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headwater.common.model import StreamID
from headwater.spark.core.completeness import Finding, report
from headwater.spark.core.connection import connect, patiently
from headwater.spark.core.options import GroupOptions, SourceOptions
from headwater.spark.decoding.columns import RowShape
from headwater.spark.decoding.gc_freeze import freeze_loaded_objects
from headwater.spark.decoding.page import Page
from headwater.spark.decoding.reply import page_of
from headwater.spark.decoding.rows import RowBuilder
from headwater.spark.group_mode.partitions import Listed

if TYPE_CHECKING:
    import pyarrow as pa
    import redis

_log = logging.getLogger("headwater.spark")

_FIRST_PAGE: Final = 500
_MOST_A_PAGE: Final = 5_000
_MOST_COMMANDS: Final = 500
"""Maximum number of commands in one pipeline, which are all sent before the first reply is read."""

_PAGE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class _Wanted:
    """The expected reply of one XRANGE: ``count`` entries that were delivered ``deliveries`` times."""

    first: StreamID
    last: StreamID
    count: int
    deliveries: int


def read_listed(options: SourceOptions, shape: RowShape, part: Listed) -> Iterator[pa.RecordBatch]:
    """Yield the entries of ``part`` as record batches of ``shape``.

    Raises `DataLoss` if entries are missing, and `DecodeError` for a bad row if ``mode`` is failfast.
    """
    assert options.group is not None, "group mode has a group"
    group = options.group
    freeze_loaded_objects()
    builder = RowBuilder(shape, part.stream)
    missing, wanted_in_all = 0, 0
    client = connect(options.url)
    try:
        for wanted, replies in _pages(options, client, part):
            page, deliveries = _together(wanted, replies)
            wanted_in_all += sum(one.count for one in wanted)
            missing += sum(one.count for one in wanted) - len(page)
            if not page:
                continue
            batch = builder.build(page, deliveries=deliveries, consumer=group.consumer)
            if batch.num_rows:
                yield batch
    finally:
        client.close()
    builder.log_unknown()
    if builder.bad_rows:
        _log.warning(
            "entries that did not fit the schema: %d; %s.", builder.bad_rows, builder.first_bad
        )
    if missing:
        report(_finding(group, part.stream, missing, wanted_in_all), options)


def _finding(group: GroupOptions, stream: str, missing: int, wanted: int) -> Finding:
    if missing < 0:
        text = (
            f"stream {stream!r} was recreated or set back (DEL, XSETID): {wanted} entries were "
            f"delivered to group {group.name!r}, but there are {wanted - missing} now"
        )
    else:
        text = (
            f"stream {stream!r}: {missing} of {wanted} entries that were delivered to "
            f"{group.consumer!r} of group {group.name!r} were deleted or trimmed (XDEL, "
            "XTRIM, ACKDEL, DEL) before they were read"
        )
    return Finding(stream, certain=True, text=text)


def _together(wanted: list[_Wanted], replies: list[Any]) -> tuple[Page, list[int]]:
    """Return one page from several replies, with the delivery count of each entry."""
    entries: list[Any] = []
    deliveries: list[int] = []
    for one, reply in zip(wanted, replies, strict=True):
        entries += reply
        deliveries += [one.deliveries] * len(reply)
    return page_of(entries), deliveries


def _pages(
    options: SourceOptions, client: redis.Redis, part: Listed
) -> Iterator[tuple[list[_Wanted], list[Any]]]:
    allowance = _FIRST_PAGE
    for wanted in _chunks(part, lambda: allowance):  # noqa: B023 - what it is then
        replies = patiently(options.url, lambda: _fetch(client, part.stream, wanted))  # noqa: B023
        yield wanted, replies
        found = sum(map(len, replies))
        weight = sum(len(word) for reply in replies for entry in reply for word in entry[1])
        if found:
            allowance = max(1, min(_MOST_A_PAGE, _PAGE_BYTES * found // max(1, weight)))


def _chunks(part: Listed, allowance: Callable[[], int]) -> Iterator[list[_Wanted]]:
    """Yield the reads of each pipeline. A run is never split, because it came in one reply of limited size."""
    wanted = [_Wanted(id_, id_, 1, count) for id_, count in part.singles]
    wanted += [_Wanted(run.first, run.last, run.count, 1) for run in part.runs]
    chunk: list[_Wanted] = []
    entries = 0
    for one in wanted:
        if chunk and (entries + one.count > allowance() or len(chunk) == _MOST_COMMANDS):
            yield chunk
            chunk, entries = [], 0
        chunk.append(one)
        entries += one.count
    if chunk:
        yield chunk


def _fetch(client: redis.Redis, stream: str, wanted: list[_Wanted]) -> list[Any]:
    pipeline: Any = client.pipeline(transaction=False)
    for one in wanted:
        # A bytes name: for a str, redis-py would turn the reply into objects of its own.
        pipeline.execute_command(
            b"XRANGE", stream, str(one.first), str(one.last), "COUNT", one.count + 1
        )
    replies: list[Any] = pipeline.execute()
    return replies
