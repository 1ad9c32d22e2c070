"""Notices that the stream to which a query writes was emptied, created again, or restored from an older copy.

    after a batch ──▶ note: the marker gets the stream's counter and last id
    before the next ──▶ checked: the stream must have at least as much

Rule 1. Both numbers only grow, also when others write and trim. So less than the marker says is proof of a loss.
Rule 2. A user without the right to read the counters writes without this check.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import DataLoss
from headwater.messages.keys import sink_key
from headwater.model import MIN_ID
from headwater.spark.core.counters import state_of
from headwater.spark.sink.marker import Marker, Reached

if TYPE_CHECKING:
    import redis

    from headwater.spark.sink.options import SinkOptions

_log = logging.getLogger("headwater.spark")


class Destination:
    """The stream to which ``query`` writes."""

    def __init__(self, client: redis.Redis, options: SinkOptions, query: str) -> None:
        self._client = client
        self._options = options
        self._query = query
        self._key = sink_key(options.stream, query)

    def checked(self, before: Marker) -> Reached | None:
        """Return what the stream is known to have, before the next batch. Raises `DataLoss`, or logs a warning if the
        options accept it."""
        least = before.reached
        now = None if least is None else self._now(before.epoch)
        if least is None or now is None or (now.added >= least.added and now.last >= least.last):
            return least
        self._report(least, now)
        return now

    def note(self, epoch: int) -> None:
        """Record what the stream has, after ``epoch`` was published. Raises like `checked`."""
        import redis

        now = self._now(epoch)
        if now is None:
            return
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.watch(self._key)
            state = Marker.parse(self._key, pipeline.execute_command("HGETALL", self._key))
            if state is None or state.epoch != epoch or not state.done:
                return  # another driver goes on
            before = state.reached
            if before is not None and before.epoch == epoch:
                return  # another driver noted it
            if before is not None and now.added < before.added + state.entries:
                self._report(before._replace(epoch=epoch, added=before.added + state.entries), now)
            pipeline.multi()
            pipeline.hset(self._key, mapping=replace(state, reached=now).fields())
            try:
                pipeline.execute()
            except redis.WatchError:
                return

    def _now(self, epoch: int) -> Reached | None:
        """Return what the stream has, after ``epoch``; None if the user may not know."""
        import redis

        try:
            state = state_of(self._client, self._options.stream)
        except redis.exceptions.NoPermissionError:
            return None
        if state is None:
            return Reached(epoch, 0, MIN_ID)
        return Reached(epoch, state.entries_added, state.last_id)

    def _report(self, least: Reached, now: Reached) -> None:
        text = (
            f"{self._options.stream!r} was emptied, created again, or restored from an older copy: after batch "
            f"{least.epoch} of query {self._query} it had got {least.added} entries up to {least.last}, now it has "
            f"got {now.added} up to {now.last}. What this query wrote before is not all there"
        )
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{text}. Restore the stream; or start with a new checkpoint and another stream, because a new "
                "query writes everything again; or go on with failOnDataLoss=false."
            )
        _log.warning("%s.", text)
