"""The unread part of a source or a table: the number of entries, and the age of the oldest.

Rule. Only counters, ids and one entry are read: a group's lag and pending entries (XINFO GROUPS, XPENDING),
and the first entry after a query's position.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headwater.common.model import MIN_ID, StreamID
from headwater.errors import DeclarationError
from headwater.groups.protocol.operation import mapping
from headwater.groups.reports.pending import known_lag
from headwater.spark.core.options import SourceOptions, parse_options
from headwater.spark.core.positions import Position, StreamState
from headwater.spark.core.replies import as_text
from headwater.spark.core.store import SourceStore
from headwater.spark.log_mode.offsets import positions_of
from headwater.spark.pipeline.checkpoints import Offset
from headwater.spark.pipeline.declaration.model import Pipeline, Source, Table
from headwater.spark.pipeline.table_log.logs import checked, log_of
from headwater.spark.pipeline.table_log.positions import NOTHING, position_of


@dataclass(frozen=True)
class Lag:
    """The lag of one stream of one source, or of a table that another follows.

    ``length`` is the number of entries in the stream. ``entries`` is the number of unread entries, including those
    that a group has delivered but not settled; None if unknown. ``seconds`` is the age of the oldest unread entry
    by its id; None if every entry was read. For a table, ``entries`` counts rows, and ``stream``, ``length`` and
    ``seconds`` are None.
    """

    source: str
    stream: str | None
    length: int | None
    entries: int | None
    seconds: float | None


@contextmanager
def opened(source: Source) -> Iterator[SourceStore]:
    """Open a connection to the server of ``source``."""
    store = SourceStore(parse_options(source.options))
    try:
        yield store
    finally:
        store.close()


def lags_below(pipeline: Pipeline, name: str, offset: Offset | None) -> list[Lag]:
    """Return the lags of a query that has read ``name``, a source or a table, up to ``offset``."""
    if name in pipeline.sources:
        return lags_of(pipeline.sources[name], offset)
    return [lag_of_log(pipeline.tables[name], offset)]


def lag_of_log(table: Table, offset: Offset | None) -> Lag:
    """Return the lag of a query that has read the log of ``table`` up to ``offset`` (None: nothing yet).

    Raises `DataLoss` if the table is not the one that the query has read.
    """
    assert table.path is not None, "tables with a log have a path"
    log = log_of(table.target.sink, table.path)
    start = NOTHING if offset is None else position_of(offset)
    counts = [file.rows for file in log.added(start, checked(table.path, start, log.end()))]
    rows = None if None in counts else sum(filter(None, counts))
    return Lag(table.name, None, None, rows, None)


def lags_of(source: Source, offset: Offset | None) -> list[Lag]:
    """Return the lag, on each stream of ``source``, of a query that has read up to ``offset``.

    An ``offset`` of None means that the query has not begun. Raises `Disconnected`, and `DeclarationError` for
    a key that is not a stream.
    """
    with opened(source) as store:
        return [
            _lag(store, source, stream, state, offset)
            for stream in store.streams()
            if (state := store.state(stream)) is not None
        ]


def _lag(
    store: SourceStore, source: Source, stream: str, state: StreamState, offset: Offset | None
) -> Lag:
    options = store.options
    if options.group is not None:
        entries, first = _of_group(store, stream, options.group.name, state)
    else:
        entries, first = _of_log(store, stream, state, _position(options, stream, offset))
    seconds = None
    if first is not None:
        seconds = max(0.0, time.time() - first.ms / 1000)
    return Lag(source.name, stream, state.length, entries, seconds)


def _position(options: SourceOptions, stream: str, offset: Offset | None) -> Position | None:
    """Return the position up to which ``stream`` was read; None if the query will start at the stream's end."""
    if offset is not None:
        try:
            found = positions_of({stream: offset[stream]}) if stream in offset else {}
        except DeclarationError:
            found = {}
        return found.get(stream, Position(MIN_ID, 0))
    start = options.start_of(stream)
    if start == "latest":
        return None
    return Position(MIN_ID if start == "earliest" or isinstance(start, str) else start, 0)


def _of_log(
    store: SourceStore, stream: str, state: StreamState, at: Position | None
) -> tuple[int | None, StreamID | None]:
    if at is None:
        return 0, None
    first = _first_after(store, stream, at.id)
    if first is None:
        return 0, None
    if at.added:
        unread = max(0, state.entries_added - at.added)
        # With an archive, trimmed entries can still be read.
        return (unread if store.options.archive else min(state.length, unread)), first
    # The number of entries before this position is unknown. Before the first entry, all entries are unread.
    return (state.length if at.id < state.first_id else None), first


def _of_group(
    store: SourceStore, stream: str, group: str, state: StreamState
) -> tuple[int | None, StreamID | None]:
    # A bytes name: for a str, redis-py would turn the reply into objects of its own.
    for about in map(mapping, store.ask(b"XINFO", "GROUPS", stream)):
        if about[b"name"] != group.encode():
            continue
        pending, lag = int(about[b"pending"]), known_lag(about)
        entries = None if lag is None else lag + pending
        if pending:
            summary = store.ask(b"XPENDING", stream, group)
            if summary[1] is not None:
                return entries, StreamID.parse(as_text(summary[1]))
        after = StreamID.parse(as_text(about[b"last-delivered-id"]))
        return entries, _first_after(store, stream, after)
    return state.length, _first_after(store, stream, MIN_ID)


def _first_after(store: SourceStore, stream: str, after: StreamID) -> StreamID | None:
    found = store.ask("XRANGE", stream, f"({after}" if after > MIN_ID else "-", "+", "COUNT", 1)
    return StreamID.parse(as_text(found[0][0])) if found else None
