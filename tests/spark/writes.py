"""Calls a writer as Spark does, for tests that check each step without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any
from weakref import WeakSet

import pyarrow as pa
import redis
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from redis.connection import AbstractConnection

from headwater.spark.core.ddl import parse_schema
from headwater.spark.source import HeadwaterSource
from tests.spark.stores import Shop

Rows = Sequence[Mapping[str, Any]]
Messages = list[WriterCommitMessage | None]

NUMBERS = "n bigint"


def numbers(*counts: int, start: int = 1) -> list[Rows]:
    """Return partitions with that many rows each, numbered consecutively."""
    found, at = list[Rows](), start
    for size in counts:
        found.append([{"n": number} for number in range(at, at + size)])
        at += size
    return found


class Writing:
    """Calls a writer as Spark does: everything is pickled on its way, and each process has its own
    writer."""

    def __init__(
        self, shop: Shop, schema: str = NUMBERS, *, query: str = "q", **options: str
    ) -> None:
        self.options = {"url": shop.url, "stream": "s"} | options
        self.schema = parse_schema(schema)
        self.query = query
        arrow = {
            "bigint": pa.int64(),
            "string": pa.string(),
        }
        self.arrow = pa.schema(
            [(f.name, arrow[f.dataType.simpleString()]) for f in self.schema.fields]
        )

    def _source(self) -> HeadwaterSource:
        source: HeadwaterSource = pickle.loads(pickle.dumps(HeadwaterSource(self.options)))
        return source

    def _batches(self, rows: Rows) -> list[pa.RecordBatch]:
        table = pa.Table.from_pylist(list(rows), self.arrow)
        batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=7)
        return batches

    def tasks(self, writer: Any, partitions: Sequence[Rows]) -> Messages:
        found: Messages = []
        for rows in partitions:
            mine = pickle.loads(pickle.dumps(writer))
            with task_of(self.query):
                message = mine.write(iter(self._batches(rows)))
            found.append(pickle.loads(pickle.dumps(message)))
        return found

    def stage(self, partitions: Sequence[Rows]) -> Messages:
        return self.tasks(self._source().streamWriter(self.schema, overwrite=False), partitions)

    def commit(self, messages: Messages, epoch: int) -> None:
        try:
            self._source().streamWriter(self.schema, overwrite=False).commit(messages, epoch)
        except Exception:  # not after `Killed`: a killed driver does nothing more
            self.abort(messages, epoch)
            raise

    def abort(self, messages: Messages, epoch: int) -> None:
        self._source().streamWriter(self.schema, overwrite=False).abort(messages, epoch)

    def epoch(self, number: int, partitions: Sequence[Rows]) -> None:
        """Write a complete micro-batch."""
        self.commit(self.stage(partitions), number)

    def batch(self, partitions: Sequence[Rows]) -> None:
        """Do the same as ``df.write.mode("append").save()``."""
        writer = self._source().writer(self.schema, overwrite=False)
        messages = self.tasks(writer, partitions)
        again = pickle.loads(pickle.dumps(writer))
        try:
            again.commit(messages)
        except Exception:
            again.abort(messages)
            raise


@contextmanager
def task_of(query: str) -> Iterator[None]:
    """Simulate a Spark task that works for ``query``."""
    before = TaskContext._taskContext
    TaskContext._taskContext = None  # the next line sets it: there is one per process
    TaskContext()._localProperties = {"sql.streaming.queryId": query}
    try:
        yield
    finally:
        TaskContext._taskContext = before


class Killed(BaseException):
    """The process was killed: no `except Exception` handles it."""


_dead: WeakSet[Any] = WeakSet()
"""Connections of killed processes, which send nothing when they are garbage-collected later."""


@contextmanager
def killed_when(due: Callable[[], object], *, torn: bool = False) -> Iterator[None]:
    """Kill the sender of the next request when it is ``due``; with ``torn`` half of it is sent."""
    send: Any = AbstractConnection.send_packed_command
    used: list[Any] = []
    looking = False

    def guarded(self: Any, command: Any, check_health: bool = True) -> None:  # noqa: FBT002
        nonlocal looking
        if self in _dead:
            raise redis.ConnectionError("killed")
        if looking:
            send(self, command, check_health)
            return
        if self._sock is None:
            self.connect()
        used.append(self)
        looking = True
        try:
            is_due = due()
        finally:
            looking = False
        if not is_due:
            send(self, command, check_health)
            return
        if torn:
            whole = b"".join([command] if isinstance(command, bytes) else command)
            self._sock.sendall(whole[: len(whole) // 2])
        self.disconnect()
        _dead.update(used)
        raise Killed

    AbstractConnection.send_packed_command = guarded  # type: ignore[method-assign]
    try:
        yield
    finally:
        AbstractConnection.send_packed_command = send  # type: ignore[method-assign]


def killed_after(sends: int, *, torn: bool = False) -> AbstractContextManager[None]:
    """Kill the sender of the request after the next ``sends`` ones."""
    counter = count()
    return killed_when(lambda: next(counter) >= sends, torn=torn)


def stages(shop: Shop) -> dict[str, int]:
    """Return the existing stages with the seconds until they expire; -1 for never."""
    client: Any = shop.client
    return {key.decode(): client.ttl(key) for key in client.keys("*:hw:stage:*")}
