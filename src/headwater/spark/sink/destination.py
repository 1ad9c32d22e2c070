"""Notices that the stream to which a query writes was deleted, created again, or restored from an older copy.

    after a batch ──▶ note: the marker gets the stream's counter and last id
    before the next ──▶ checked: the marker must name the batch before; counter and last id must not be lower

Rule 1. The counter and the last id never decrease in a stream, even if others write or trim. They are lower if
        the entries were copied to a new stream by XADD, or XSETID was used; the error says what to do then.
Rule 2. A loss is reported at each attempt until the options accept it.
Rule 3. A user without the right to read the counters writes without this check.
Rule 4. Each batch is recorded, because Spark runs a task even for a batch without partitions. A marker that is
        missing or older was therefore lost, for example by FLUSHALL or an older copy of the store. Writes with
        named transactions, or to streams that a column names, may skip batch numbers, which are not checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.client.redaction import redacted
from headwater.common.model import MIN_ID
from headwater.errors import DataLoss, HeadwaterError
from headwater.messages.keys import sink_key
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.store import SourceStore
from headwater.spark.sink.marker import Marker, Reached

if TYPE_CHECKING:
    import redis

    from headwater.spark.sink.options import SinkOptions

_log = logging.getLogger("headwater.spark")


class Destination:
    """The stream to which ``query`` writes. ``name_of`` returns the name of a batch for error messages."""

    def __init__(
        self,
        client: redis.Redis,
        options: SinkOptions,
        query: str,
        name_of: Callable[[int], str],
    ) -> None:
        self._client = client
        self._options = options
        self._query = query
        self._name_of = name_of
        self._key = sink_key(options.stream, query)
        self._store = SourceStore(SourceOptions(options.url, (options.stream,)), client)

    def checked(self, before: Marker | None, epoch: int) -> Reached | None:
        """Check the stream before batch ``epoch``; ``before`` is the marker. Return the count and last id to
        record, None if unknown. Raises `DataLoss`, or logs a warning if the options accept the loss."""
        if self._options.transaction is None and self._options.stream_column is None:
            check_recorded(self._options, self._query, before, epoch)
        if before is None or before.reached is None:
            return None
        least, now = before.reached, self._now(before.epoch)
        if now is None or (now.added >= least.added and now.last >= least.last):
            return least
        self._report(least, now)
        return now

    def note(self, epoch: int) -> bool:
        """Record the stream's count and last id, after ``epoch`` was published. Return False if the caller must
        try again. Raises the errors of `checked`."""
        import redis

        now = self._now(epoch)
        if now is None:
            return True
        least = now
        try:
            with self._client.pipeline(transaction=True) as pipeline:
                pipeline.watch(self._key)
                state = Marker.parse(self._key, pipeline.execute_command("HGETALL", self._key))
                if state is None or state.epoch != epoch or not state.done:
                    return True  # another driver has continued
                before = state.reached
                if before is not None and before.epoch == epoch:
                    return True  # another driver has recorded them
                if before is not None:
                    least = max(
                        now, before._replace(epoch=epoch, added=before.added + state.entries)
                    )
                kept = now if self._options.fail_on_data_loss is False else least
                pipeline.multi()
                pipeline.hset(self._key, mapping=replace(state, reached=kept).fields())
                pipeline.execute()
        except redis.WatchError:  # also if the connection was lost
            return False
        if now.added < least.added:
            self._report(least, now)
        return True

    def _now(self, epoch: int) -> Reached | None:
        """Return the stream's count and last id, after ``epoch``; None if the user may not read them."""
        import redis

        try:
            (state,) = self._store.states([self._options.stream]).values()
        except HeadwaterError as error:
            if isinstance(error.__cause__, redis.exceptions.NoPermissionError):
                return None
            raise
        if state is None:
            return Reached(epoch, 0, MIN_ID)
        return Reached(epoch, state.entries_added, state.last_id)

    def _report(self, least: Reached, now: Reached) -> None:
        text = (
            f"{self._options.stream!r} was deleted, created again, or restored from an older copy: after "
            f"{self._name_of(least.epoch)} {least.added} entries had been added, up to {least.last}; now {now.added}, up to "
            f"{now.last}. Some of what was written before is missing"
        )
        _fail_or_warn(self._options, text, "entries were copied there one by one")


def check_recorded(options: SinkOptions, query: str, before: Marker | None, epoch: int) -> None:
    """Check that the marker ``before`` names batch ``epoch`` or the one before. Raises `DataLoss`, or logs a
    warning if the options accept the loss."""
    last = -1 if before is None else before.epoch
    if last >= epoch - 1:
        return
    found = "no batch" if before is None else f"no batch after {last}"
    text = (
        f"{options.stream!r} at {redacted(options.url)} has {found} of query {query} on record "
        f"({sink_key(options.stream, query)}), and this is batch {epoch}: the store was emptied, was restored from an "
        "older copy, or has evicted the record. Entries written before may be missing; if only the record is "
        "missing, rows of this batch may be there already"
    )
    _fail_or_warn(options, text, "the query wrote elsewhere before, or with delivery=atLeastOnce")


def _fail_or_warn(options: SinkOptions, text: str, harmless: str) -> None:
    """Raise `DataLoss` with the remedies, or log a warning if the options accept the loss."""
    if options.fail_on_data_loss is False:
        _log.warning("%s.", text)
        return
    raise DataLoss(
        f"{text}. Restore the store; or start with a new checkpoint and another stream, because a new query writes "
        f"everything again; or continue with failOnDataLoss=false, which is also right if {harmless}."
    )
