"""``spark.readStream.format("headwater").option("group", …)``: reads micro-batches of entries that the
group's members share.

    latestOffset(start)   settles what start names ──▶ own ──▶ claimed ──▶ new ──▶ an offset names them
    partitions(end)       renews what end names ──▶ tasks
    read(task)            reads the entries that it names

Rule 1. The entries that an offset names are settled when Spark passes that offset as ``start`` of the next
        batch, because their batch is committed then. No entry is settled earlier, nor by `commit` or `stop`.
        A crash at any point therefore causes redelivery and never loss.
Rule 2. A batch consists of the entries that its end offset names. A replay reads the same entries, including
        those that a worker has claimed since. The sink is exactly-once by batch id, the group at-least-once.
Rule 3. Fetched entries are renewed (lease_renewer.py) until they are settled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from headwater.common.model import MIN_ID
from headwater.groups.protocol.operation import GroupVanished
from headwater.messages.keys import reader_key
from headwater.spark.core.connection import connect, patiently
from headwater.spark.core.idle import IdlePauses
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.store import SourceStore
from headwater.spark.decoding.columns import RowShape
from headwater.spark.group_mode.fetch import MOST_ENTRIES, AvailableNow, BatchFetch, Limits
from headwater.spark.group_mode.lease_renewer import LeaseRenewer
from headwater.spark.group_mode.membership import Membership, naming_store
from headwater.spark.group_mode.name_lease import NameLease, lease_ms
from headwater.spark.group_mode.offsets import GroupBatch, Offset, Portion, batch_of
from headwater.spark.group_mode.partitions import ListedTask, tasks_of

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_log = logging.getLogger("headwater.spark")

ENTRIES_A_TRIGGER: Final = 50_000
"""Maximum number of entries in a batch if ``maxEntriesPerTrigger`` is not set. There must be a limit, because the
driver holds the ids, and renews and settles each entry."""


class GroupReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that is a member of the group in the driver. In executors it has only its options and its shape."""

    def __init__(self, options: SourceOptions, shape: RowShape) -> None:
        self._options = options
        self._shape = shape
        self._driver: _Driver | None = None
        self._pauses = IdlePauses()

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_shape": self._shape}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_options"], state["_shape"])  # type: ignore[misc]

    # --- called by Spark in the driver ------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Create the groups, so that ``latest`` means now; return the offset before the first batch."""
        return self._call(lambda driver: driver.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Limit a batch to ``maxEntriesPerTrigger`` entries, by default `ENTRIES_A_TRIGGER`."""
        return ReadMaxRows(self._options.max_entries_per_trigger or ENTRIES_A_TRIGGER)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit this run to the current new entries and one pass over other members' entries."""
        self._call(lambda driver: driver.only_now())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Settle the entries that ``start`` names and fetch the next batch; return ``start`` if that is empty."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else ENTRIES_A_TRIGGER
        self._pauses.wait()
        end = self._call(lambda driver: driver.next(start, min(most, MOST_ENTRIES)))
        self._pauses.polled(found=end is not start)
        return end

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        """Return the position and lag of each stream's group, for Spark's progress."""
        return self._call(lambda driver: driver.lag())

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:  # noqa: ARG002
        """Return the tasks of the batch that ``end`` names; ``start`` is not used."""
        return self._call(lambda driver: driver.tasks(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, in an executor."""
        from headwater.spark.decoding.merging import merged
        from headwater.spark.group_mode.reading import read_listed

        assert isinstance(partition, ListedTask), partition
        return merged(
            batch
            for part in partition.parts
            for batch in read_listed(self._options, self._shape, part)
        )

    def stop(self) -> None:
        """Give up the lease on the consumer's name and close the connections.

        This method does not settle or release entries, because Spark may call it for a driver that was killed
        during its batch.
        """
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _call(self, method: Callable[[_Driver], T]) -> T:
        with naming_store(self._options):
            return patiently(self._options.url, lambda: self._call_once(method))

    def _call_once(self, method: Callable[[_Driver], T]) -> T:
        if self._driver is None:
            self._driver = _Driver(self._options)
        return method(self._driver)


class _Driver:
    """The state in the driver. All methods can be repeated after a lost connection."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._store = SourceStore(options)
        self._membership = Membership(options, self._store)
        self._name_lease: NameLease | None = None
        self._renewer: LeaseRenewer | None = None
        self._planned: tuple[GroupBatch, GroupBatch] | None = None
        """The batch before the last fetched batch, and that last batch; None if it has to be fetched again."""
        self._ids: tuple[GroupBatch, dict[str, list[bytes]]] | None = None
        """The ids of the batch that is being renewed."""
        self._settled: GroupBatch | None = None
        self._understood: tuple[Offset, GroupBatch] | None = None
        self._owns_more = True
        """True if this consumer may own pending entries that no offset names."""
        self._run: AvailableNow | None = None

    def close(self) -> None:
        import redis

        if self._renewer is not None:
            self._renewer.end()
        try:
            # Release the name first: Spark ends this process a tenth of a second after announcing it.
            if self._name_lease is not None:
                self._name_lease.release(self._store.client)
        except (redis.RedisError, OSError):
            pass  # the lease expires
        if self._renewer is not None:
            self._renewer.join()
        self._store.close()

    # --- calls from Spark -------------------------------------------------------------------------

    def initial(self) -> Offset:
        streams = self._membership.streams()
        for stream in streams:
            self._join(stream, Portion(), begin=True)
        return self._batch(0, {stream: Portion() for stream in streams}).offset()

    def only_now(self) -> None:
        upto = {}
        for stream in self._membership.streams():
            state = self._store.state(stream)
            upto[stream] = MIN_ID if state is None else state.last_id
        self._run = AvailableNow(upto)
        self._membership.restart_passes()

    def next(self, start: Offset, most: int) -> Offset:
        before = self._read(start)
        self._check()
        if self._planned is not None and self._planned[0] == before:
            return self._planned[1].offset()  # Spark has not logged it yet: it is still the next
        streams = self._membership.streams() if self._run is None else list(self._run.upto)
        for stream in streams:
            known = before.streams.get(stream)
            self._join(stream, known or Portion(), begin=known is not None)
        if self._settled != before:
            self._settle(before)
        batch = self._take(before, streams, most) if streams else None
        return start if batch is None else batch.offset()

    def tasks(self, end: Offset) -> list[InputPartition]:
        batch = self._read(end)
        if self._ids is None or self._ids[0] != batch:
            self._renew_again(batch)
        self._check()
        return tasks_of(batch.streams, self._options)

    def lag(self) -> Offset | None:
        joined = filter(self._membership.joined, self._membership.streams())
        found = self._membership.lags(joined)
        return {"group": self._membership.group, "streams": found} if found else None

    def _take(self, before: GroupBatch, streams: list[str], most: int) -> GroupBatch | None:
        """Fetch the batch after ``before``; return None if there is nothing to read."""
        turns = self._turns(streams, before)
        limits = Limits(most, self._options.max_bytes_per_trigger, self._run)
        fetch = BatchFetch(self._membership, self._the_renewer(), limits)
        # If this fails halfway, the next attempt finds the entries fetched so far.
        self._planned, owns_more, self._owns_more = None, self._owns_more, True
        if owns_more:
            whole = [fetch.own(stream) for stream in turns]
            owns_more = not all(whole)
        fetch.others(turns)
        self._owns_more = owns_more
        portions = fetch.portions(streams)
        if not any(portion.entries for portion in portions.values()):
            return None
        batch = self._batch(before.number + 1, portions)
        self._planned, self._ids = (before, batch), (batch, fetch.ids())
        return batch

    # --- internals --------------------------------------------------------------------------------

    def _read(self, offset: Offset) -> GroupBatch:
        """Parse ``offset``, with a cache, because an idle query is polled ten times a second with the same
        offset, and an offset may name thousands of entries."""
        if self._understood is None or self._understood[0] != offset:
            self._understood = offset, batch_of(offset, self._options)
        return self._understood[1]

    def _batch(self, number: int, streams: dict[str, Portion]) -> GroupBatch:
        return GroupBatch(self._membership.group, self._membership.consumer, number, streams)

    def _turns(self, streams: list[str], before: GroupBatch) -> list[str]:
        """Return the streams, rotated by the batch's number, so that a small limit does not always skip some."""
        at = before.number % len(streams)
        return streams[at:] + streams[:at]

    def _join(self, stream: str, known: Portion, *, begin: bool) -> None:
        if not self._membership.joined(stream):
            self._membership.join(stream, seen=known.seen, begin=begin)
        elif known.seen is not None:
            self._membership.note_seen(
                stream, known.seen
            )  # the stream was joined before the checkpoint was read
        claim_after = self._membership.member(stream).claim_after_ms
        if self._name_lease is None or self._renewer is None:
            self._name_lease = NameLease(self._membership.consumer, lease_ms(claim_after))
            self._renewer = LeaseRenewer(lambda: connect(self._options.url), self._name_lease)
            self._renewer.start()
        self._renewer.expect(claim_after)
        key = reader_key(stream, self._membership.group, self._membership.consumer)
        self._name_lease.take(self._store.client, key)

    def _the_renewer(self) -> LeaseRenewer:
        assert self._renewer is not None, "a stream was joined"
        return self._renewer

    def _check(self) -> None:
        if self._name_lease is not None:
            self._name_lease.check(self._store.client)

    def _settle(self, batch: GroupBatch) -> None:
        """Acknowledge the entries that ``batch`` names, because it is committed."""
        known = self._ids[1] if self._ids is not None and self._ids[0] == batch else None
        for stream, portion in batch.streams.items():
            if not portion.entries:
                continue
            if self._renewer is not None:
                self._renewer.forget(
                    stream
                )  # first: renewing settled entries would look like a loss
            try:
                ids = self._membership.owned_of(stream, portion) if known is None else known[stream]
                self._membership.settle(stream, ids)
            except GroupVanished:
                _log.debug("group of %s is gone, so nothing of it needs settling", stream)
        self._settled = batch

    def _renew_again(self, batch: GroupBatch) -> None:
        """Renew the entries that this query still owns in a batch that Spark replays from an earlier process."""
        ids: dict[str, list[bytes]] = {}
        for stream, portion in batch.streams.items():
            ids[stream] = []
            if portion.entries:
                self._join(stream, portion, begin=True)
                ids[stream] = self._membership.renew(
                    stream, self._membership.owned_of(stream, portion)
                )
                self._the_renewer().hold(self._membership.member(stream), ids[stream])
        self._ids = (batch, ids)
