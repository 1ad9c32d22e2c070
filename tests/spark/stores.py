"""The stores that the source reads from, and their contents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from headwater.spark.core.store import SourceStore

QUICK_QUERIES = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""With tables of a few rows, compiling a query takes longer than interpreting it."""


@dataclass
class Shop:
    """A store with a client. ``name`` is the kind of server."""

    name: str
    url: str
    client: redis.Redis

    def add(self, stream: str, numbers: Iterable[int], **fields: Any) -> None:
        """Add entries with the ids ``<number>-1`` and the field ``n``."""
        pipeline = self.client.pipeline(transaction=False)
        for number in numbers:
            body: Any = {"n": number} | fields
            pipeline.xadd(stream, body, id=f"{number}-1")
        pipeline.execute()

    def delete(self, stream: str, *numbers: int) -> None:
        self.client.xdel(stream, *(f"{number}-1" for number in numbers))

    def numbers(self, stream: str) -> list[int]:
        """Return the ``n`` of every entry in the stream."""
        entries: Any = self.client.xrange(stream)
        return [int(fields[b"n"]) for _id, fields in entries]


def count_requests(store: SourceStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets a 1 for each request of the store from now on: each is a round trip."""
    made: list[int] = []
    patiently = store.patiently

    def counted(ask: Any) -> Any:
        made.append(1)
        return patiently(ask)

    assert store.splits in {True, False}  # asked once
    monkeypatch.setattr(store, "patiently", counted)
    return made
