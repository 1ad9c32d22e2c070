"""Publishes stages to the stream, each entry once, whichever process is killed; runs in the driver.

Rule 1. Every step starts from the marker, and does nothing if the marker has changed by then. So if a
        step's reply is lost, the marker is read again; the outcome is never guessed.
Rule 2. A recorded stage that is gone, or has fewer entries than were counted, raises an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from headwater.client.redaction import redacted
from headwater.common.model import StreamID
from headwater.errors import DataLoss, DeclarationError, HeadwaterError
from headwater.messages.keys import sink_key, stage_key
from headwater.spark.core.connection import patiently
from headwater.spark.sink.chunks import Mover, after, last_id, type_of
from headwater.spark.sink.destination import Destination
from headwater.spark.sink.marker import Marker
from headwater.spark.sink.wire import OwnerConnections

if TYPE_CHECKING:
    from headwater.spark.sink.appending import Staged
    from headwater.spark.sink.options import SinkOptions


class EpochPublisher:
    """Writes the epochs of one query. One driver uses it; a second one does no harm."""

    def __init__(self, options: SinkOptions, query: str, connections: OwnerConnections) -> None:
        self._options = options
        self._query = query
        self._dest = options.stream
        self._key = sink_key(options.stream, query)
        self._client = connections.client(options.stream)
        self._mover = Mover(options, query, connections.wire(options.stream), self._stage)
        self._destination: Destination | None = None
        # Writes with named transactions may start over with a new stream, unless failOnDataLoss is set.
        if options.transaction is None or options.fail_on_data_loss is not None:
            self._destination = Destination(self._client, options, query, self._name)
        self._known: Marker | None = None

    def recorded(self) -> Marker | None:
        """Return the marker of this query; None if the server has none."""
        return patiently(self._options.url, self._read)

    def publish(self, epoch: int, staged: list[Staged]) -> None:
        """Write the entries of ``staged`` once.

        Their entries are not written if the epoch was already written, or continues with other recorded stages.
        Raises `HeadwaterError` for an epoch below the last one, and `DataLoss` for a stage that is gone.
        """
        wrote = False
        while not patiently(self._options.url, lambda: self._step(epoch, staged)):
            wrote = True
        if wrote:
            while not patiently(self._options.url, lambda: self._noted(epoch)):
                pass
        self._drop({one.uuid for one in staged})

    def abort(self, staged: list[Staged]) -> None:
        """Remove the staged entries, except for stages that the marker names."""
        state = self.recorded()
        named = state.uuids if state is not None and not state.done else set()
        self._drop({one.uuid for one in staged} - named)

    # --- steps ------------------------------------------------------------------------------------

    def _step(self, epoch: int, staged: list[Staged]) -> bool:
        """Do one step of the epoch; return whether the epoch was already complete."""
        state, self._known = self._known or self._read(), None
        if state is not None and state.epoch > epoch:
            raise HeadwaterError(self._too_late(epoch, state.epoch))
        if state is None or (state.done and state.epoch < epoch):
            self._record(state, epoch, staged)
        elif state.done:
            return True
        elif self._may_restart(state, epoch, staged):
            self._record(state, epoch, staged)
        else:
            self._chunk(state)
        return False

    def _noted(self, epoch: int) -> bool:
        return self._destination is None or self._destination.note(epoch)

    def _read(self) -> Marker | None:
        return Marker.parse(self._key, self._client.execute_command("HGETALL", self._key))

    def _may_restart(self, state: Marker, epoch: int, staged: list[Staged]) -> bool:
        """Return whether a recorded stage was lost before any entry of this epoch was published."""
        if state.epoch != epoch or state.published or state.uuids == {one.uuid for one in staged}:
            return False
        return self._lengths([uuid for uuid, _count, _packs in state.stages]) != [
            packs for _uuid, _count, packs in state.stages
        ]

    def _record(self, before: Marker | None, epoch: int, staged: list[Staged]) -> None:
        """Record the stages before any of their entries are visible."""
        import redis

        full = [one for one in staged if one.count]
        for one, found in zip(full, self._lengths([one.uuid for one in full]), strict=True):
            if found != one.packs:
                raise DataLoss(
                    f"the stage {self._stage(one.uuid)} has {found} of {one.packs} packs of rows that a "
                    "task just wrote: it was evicted, or the store lost data that it had "
                    "acknowledged. No row of this batch was published; run it again, with a maxmemory "
                    "policy that does not evict."
                )
        self._check_target(full)
        reached = None
        if self._destination is not None:
            reached = self._destination.checked(before, epoch)
        made = Marker.begin(epoch, [(one.uuid, one.count, one.packs) for one in full], reached)
        old = before.uuids - made.uuids if before is not None else set()
        try:
            with self._client.pipeline(transaction=True) as pipeline:
                pipeline.watch(self._key)
                reply: Any = pipeline.execute_command("HGETALL", self._key)
                if Marker.parse(self._key, reply) != before:
                    return
                pipeline.multi()
                pipeline.delete(self._key)
                pipeline.hset(self._key, mapping=made.fields())
                for uuid, _count, _packs in made.stages:
                    pipeline.persist(self._stage(uuid))
                if old:
                    pipeline.unlink(*map(self._stage, old))
                pipeline.execute()
        except redis.WatchError:  # another driver changed the marker, or the connection was lost
            return
        self._known = made

    def _check_target(self, staged: list[Staged]) -> None:
        """Raise for a key that is not a stream, and for ids that the stream would refuse during publishing."""
        kind = type_of(self._client, self._dest)
        if kind not in ("none", "stream"):
            raise DeclarationError(f"stream: the key {self._dest!r} holds a {kind}, not a stream")
        given = [one for one in staged if one.first is not None]
        if not given:
            return
        last = last_id(self._client, self._dest) if kind == "stream" else StreamID(0, 0)
        where = "the last one in the stream"
        for one in given:
            assert one.first is not None
            assert one.last is not None
            if one.first <= last:
                raise HeadwaterError(
                    f"{self._dest!r}: the column 'id' sets {one.first}, which is not above {last}, "
                    f"{where}. No row of this batch was published. Ids of a stream only increase: sort the "
                    "rows by id into one partition, or remove the column and let the server generate ids."
                )
            last, where = one.last, "the last one of the previous task"

    def _chunk(self, state: Marker) -> None:
        status, added, text = self._mover.move(state)
        if status == "ok":
            self._known = after(state, added)
        elif status == "type":
            raise DeclarationError(f"stream: the key {self._dest!r} holds a {text}, not a stream")
        elif status == "missing":
            raise DataLoss(self._gone(state))
        elif status == "refused":
            raise HeadwaterError(
                f"{redacted(self._options.url)} refused an entry for {self._dest!r}: {text}. "
                f"{state.published + added} of {state.entries} entries of {self._name(state.epoch)} "
                "are written; the next run continues after them."
            )

    # --- messages ---------------------------------------------------------------------------------

    def _stage(self, uuid: str) -> str:
        return stage_key(self._dest, self._query, uuid)

    def _lengths(self, uuids: list[str]) -> list[int]:
        with self._client.pipeline(transaction=False) as pipeline:
            for uuid in uuids:
                pipeline.xlen(self._stage(uuid))
            return list(map(int, pipeline.execute()))

    def _drop(self, uuids: set[str]) -> None:
        if uuids:
            keys = [self._stage(uuid) for uuid in sorted(uuids)]
            patiently(self._options.url, lambda: self._client.unlink(*keys))

    def _name(self, epoch: int) -> str:
        if self._options.transaction is not None:
            return f"txnVersion {epoch} of txnAppId {self._query!r}"
        return f"batch {epoch} of query {self._query}"

    def _too_late(self, epoch: int, last: int) -> str:
        if self._options.transaction is not None:
            return (
                f"{self._name(epoch)} cannot be written, because {self._dest!r} already has version {last}: "
                "versions must increase. Write with a higher version, or with another txnAppId."
            )
        at = f" ({self._options.checkpoint})" if self._options.checkpoint else ""
        return (
            f"{self._name(epoch)} cannot be written, because {self._dest!r} already has batch {last}: the "
            f"query's checkpoint{at} was set back. Restore it as it was; or start with a new checkpoint "
            "and another stream, because a new query writes everything again."
        )

    def _gone(self, state: Marker) -> str:
        uuid, count, _packs = state.stages[state.stage]
        return (
            f"the stage {self._stage(uuid)} is gone, or does not have the {count} entries that were "
            f"recorded: it was evicted, or the store was emptied or restored. "
            f"{state.published} of {state.entries} entries of {self._name(state.epoch)} are in "
            f"{self._dest!r}, and the others are lost. To continue without them: "
            f"HSET {self._key} done 1"
        )


def publish_all(
    options: SinkOptions, query: str, epoch: int, staged: Mapping[str, list[Staged]]
) -> None:
    """Write the entries of an epoch to each stream, once. Each stream has its own marker; a replayed epoch
    continues with the streams whose marker lacks it."""
    with closing(OwnerConnections(options.url)) as connections:
        for stream, stages in staged.items():
            EpochPublisher(options.to(stream), query, connections).publish(epoch, stages)


def abort_all(options: SinkOptions, query: str, staged: Mapping[str, list[Staged]]) -> None:
    """Remove the staged entries, except for stages that a marker names."""
    with closing(OwnerConnections(options.url)) as connections:
        for stream, stages in staged.items():
            EpochPublisher(options.to(stream), query, connections).abort(stages)


def recorded_of(options: SinkOptions, query: str) -> Marker | None:
    """Return the marker of ``query`` for the stream of ``options``; None if the server has none."""
    with closing(OwnerConnections(options.url)) as connections:
        return EpochPublisher(options, query, connections).recorded()
