"""Queries in group mode, step by step, and other consumers of their groups."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from headwater.groups.membership.member import Member, join
from headwater.groups.protocol.capabilities import probe
from headwater.groups.protocol.operation import run
from headwater.groups.reading.claiming import Delivered, MemberReader
from headwater.groups.settling.settling import How, Settlement, settle
from headwater.spark.log_mode.offsets import Offset
from tests.spark.queries import Query
from tests.spark.stores import Shop
from tests.waiting import eventually

CLAIM_AFTER_MS = 500


class GroupQuery(Query):
    """A query of group ``g``."""

    reader: Any

    def __init__(self, shop: Shop, *, log: list[Offset] | None = None, **options: str) -> None:
        given = {"group": "g", "minIdleTime": f"{CLAIM_AFTER_MS}ms"} | options
        self.shop = shop
        super().__init__(shop, log=log, **given)

    def kill(self) -> None:
        """Stop as after SIGKILL, without settling; the lease on its name expires immediately."""
        driver = self.reader._driver
        if driver is not None and driver._renewer is not None:
            driver._renewer.end()
            driver._renewer.join()
            driver._store.close()
        for key in self.shop.client.scan_iter("*:hw:reader:*"):
            self.shop.client.delete(key)

    def stop(self) -> None:
        self.reader.stop()

    def read_all(self) -> list[int]:
        """Return the numbers of all batches, in the order in which they are read."""
        return [number for batch in self.batches() for number in batch]


@contextmanager
def member_query(shop: Shop, **options: Any) -> Iterator[GroupQuery]:
    query = GroupQuery(shop, **options)
    try:
        yield query
    finally:
        query.stop()


class Consumer:
    """A consumer that works like a worker: it claims, reads and settles with `headwater.groups`."""

    def __init__(self, shop: Shop, name: str = "worker", stream: str = "s") -> None:
        self.client = redis.Redis.from_url(shop.url)
        able = run(self.client, probe())
        self.member = Member(stream, "g", name, CLAIM_AFTER_MS, able)
        run(self.client, join(self.member))
        self.gone: list[bytes] = []
        self.reader = MemberReader(self.member, gone=self.gone.extend)

    def read(self, limit: int = 100, *, claims: bool = True) -> list[Delivered]:
        found: list[Delivered] = run(
            self.client, self.reader.poll(limit=limit, now=time.monotonic(), claims=claims)
        )
        return found

    def settle(self, entries: list[Delivered]) -> list[bool]:
        outcomes = run(
            self.client, settle(self.member, [Settlement(one.id, How.ACK) for one in entries])
        )
        return [outcome.done for outcome in outcomes]

    def close(self) -> None:
        self.client.close()


def owners(shop: Shop, stream: str = "s", group: str = "g") -> dict[int, str]:
    """Return the owner of each pending entry, by its number."""
    rows: Any = shop.client.xpending_range(stream, group, "-", "+", 100_000)
    return {int(row["message_id"].split(b"-")[0]): row["consumer"].decode() for row in rows}


def idle(shop: Shop, count: int, consumer: str, stream: str = "s") -> bool:
    """Return whether ``count`` entries of ``consumer`` can be claimed."""
    rows: Any = shop.client.xpending_range(
        stream, "g", "-", "+", 100_000, consumer, idle=CLAIM_AFTER_MS
    )
    return len(rows) == count


def abandoned(shop: Shop, count: int, consumer: str = "gone", stream: str = "s") -> None:
    """Let a consumer read entries and stop, until they can be claimed."""
    found: Any = shop.client.xreadgroup("g", consumer, {stream: ">"}, count=count)
    assert len(found[0][1]) == count
    eventually(lambda: idle(shop, count, consumer, stream), "a dead consumer's leases expire")


def checkpoint(directory: Path, log: list[Offset], *, committed: int | None) -> Path:
    """Write a checkpoint like Spark's: all offsets of ``log``, committed up to one of them."""
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True)
    for number, offset in enumerate(log):
        (directory / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
        (directory / "offsets" / f".{number}.crc").write_bytes(b"\0")
        if committed is not None and number <= committed:
            (directory / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return directory
