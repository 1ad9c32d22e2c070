"""What tests put into the stores that the source reads from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import redis

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For tables of a few rows the JVM's best compiler costs more than it gains: half of a test's time."""


@dataclass
class Shop:
    """A store with a client. ``name`` says which kind it is."""

    name: str
    url: str
    client: redis.Redis

    def add(self, stream: str, numbers: Iterable[int], **fields: Any) -> None:
        """Entries with the ids ``<number>-1`` and the field ``n``."""
        pipeline = self.client.pipeline(transaction=False)
        for number in numbers:
            body: Any = {"n": number} | fields
            pipeline.xadd(stream, body, id=f"{number}-1")
        pipeline.execute()

    def delete(self, stream: str, *numbers: int) -> None:
        self.client.xdel(stream, *(f"{number}-1" for number in numbers))

    def numbers(self, stream: str) -> list[int]:
        """The ``n`` of every entry that lives."""
        entries: Any = self.client.xrange(stream)
        return [int(fields[b"n"]) for _id, fields in entries]
