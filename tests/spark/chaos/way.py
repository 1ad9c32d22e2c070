"""What a way from a stream into a sink must have (ways.py)."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from tests.spark.chaos.driver_options import ENTRIES_A_BATCH, STREAM, DriverOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id string, n bigint, text string"


class Way(ABC):
    """A way from the stream into one kind of sink."""

    name: str
    kinds: tuple[str, ...] = ("driver", "executor", "commit", "store", "restored", "twice")
    """The kinds of lives (lives.py) in which it is tried."""

    @abstractmethod
    def follow(
        self, spark: SparkSession, options: DriverOptions, finish: threading.Event | None
    ) -> None:
        """Follow the stream until ``finish`` is set; without it, read all entries and return."""

    @abstractmethod
    def die_between_sink_and_commit(self, options: DriverOptions, jvm: int) -> None:
        """Let the driver die as ``options`` says."""

    @abstractmethod
    def checkpoint(self, directory: Path) -> Path:
        """Return the directory of the query's checkpoint."""

    def taken(self, client: redis.Redis, batches: int) -> int:
        """Estimate how many entries have been read when so many batches have started."""
        return batches * ENTRIES_A_BATCH

    def stream(self, chance: random.Random) -> str:
        """Return the stream to which the next entry is added."""
        return STREAM

    def identity(self, stream: str, id_: str) -> str:
        """Return how the sink names an entry."""
        return id_

    def added(self, client: redis.Redis) -> set[str]:
        """Return the entries that are in the store."""
        entries: Any = client.xrange(STREAM)
        return {self.identity(STREAM, id_.decode()) for id_, _body in entries}

    def retire(self, client: redis.Redis, directory: Path) -> None:  # noqa: B027 - most ways do nothing
        """Remove streams that the query has read, if it reads some that come and go."""

    @contextmanager
    def alongside(self, url: str) -> Iterator[None]:
        """Run other consumers of the stream while the block runs."""
        yield

    @abstractmethod
    def ids(self, directory: Path, client: redis.Redis) -> Counter[str]:
        """Return the ids in the sink, as any reader sees them."""


def entries_copied(client: redis.Redis) -> Counter[str]:
    entries: Any = client.xrange("copy")
    return Counter(fields[b"entry"].decode() for _id, fields in entries)
