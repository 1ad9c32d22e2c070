"""Counts again, from the outside, what came out: from the store by XRANGE, from the tables by Arrow.

Nothing here asks a worker or Spark what it believes that it has done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.demo.data import FLIGHTS, Key
from headwater.demo.producer import ENRICHED, GROUP, STREAM, Published
from headwater.messages import DeadLetter, dead_letter_stream, parse_dead_letter

if TYPE_CHECKING:
    from redis import Redis

PAGE = 2_000
"""Entries a reply; bigger ones are slower to parse, smaller ones cost round trips."""


class Settled(NamedTuple):
    """By whom, and at which delivery, one entry of ``flights`` was settled."""

    consumer: str
    deliveries: int


class Held(NamedTuple):
    """The entries that a worker held at the moment when it was ended."""

    consumer: str
    ids: frozenset[str]


class Tables(NamedTuple):
    """What Spark made. ``hourly`` and ``carriers`` are how many flights those tables sum up to."""

    flights: Counter[Key]
    hourly: int
    carriers: int


class Evidence(NamedTuple):
    """Everything that the reconciliation compares."""

    published: Published
    in_stream: int
    enriched: Counter[Key]
    dead: list[DeadLetter]
    settled: dict[str, Settled]
    """Id of an entry of ``flights`` → its settlement, enriched and dead alike."""
    pending: int
    unread: int
    killed: Held
    stopped: Held
    tables: Tables


def pages(client: Redis, stream: str) -> Iterator[tuple[str, dict[bytes, bytes]]]:
    """Every entry of a stream, oldest first: its id and its fields."""
    start = "-"
    while True:
        page: Any = client.xrange(stream, min=start, count=PAGE)
        for entry_id, fields in page:
            yield entry_id.decode(), fields
        if len(page) < PAGE:
            return
        start = f"({page[-1][0].decode()}"


@cache
def unix_seconds(text: bytes) -> int:
    """A time in ISO 8601 as Unix seconds; the flights name 8,000 different hours."""
    return int(datetime.fromisoformat(text.decode()).timestamp())


def read_enriched(client: Redis) -> tuple[Counter[Key], dict[str, Settled]]:
    """Keys in ``flights.enriched``, each with how often it is there, and who settled which entry."""
    keys: Counter[Key] = Counter()
    settled: dict[str, Settled] = {}
    for _id, row in pages(client, ENRICHED):
        hour = unix_seconds(row[b"time_hour"])
        keys[Key(row[b"carrier"].decode(), int(row[b"flight"]), hour, row[b"origin"].decode())] += 1
        settled[row[b"source_id"].decode()] = Settled(
            row[b"worker"].decode(), int(row[b"deliveries"])
        )
    return keys, settled


def read_dead(client: Redis) -> list[DeadLetter]:
    """Every record of the dead-letter stream."""
    stream = dead_letter_stream(STREAM)
    return [
        parse_dead_letter(entry_id, [part for pair in fields.items() for part in pair])
        for entry_id, fields in pages(client, stream)
    ]


def group_counts(client: Redis) -> tuple[int, int]:
    """How many entries of ``flights`` are pending in the group, and how many it has not read."""
    for group in client.xinfo_groups(STREAM):
        if group["name"] in (GROUP, GROUP.encode()):
            lag = group.get("lag")
            return int(group["pending"]), -1 if lag is None else int(lag)
    return 0, -1


def held(client: Redis, consumer: str) -> Held:
    """The entries that ``consumer`` owns now; ``""`` asks for those that nobody owns."""
    rows: Any = client.xpending_range(STREAM, GROUP, min="-", max="+", count=FLIGHTS)
    wanted = consumer.encode()
    return Held(
        consumer,
        frozenset(row["message_id"].decode() for row in rows if row["consumer"] == wanted),
    )


def read_tables(directory: Path) -> Tables:
    """The keys in the table of flights, and what the two summaries sum up to."""
    import pyarrow as pa
    from pyarrow import compute, dataset

    table = dataset.dataset(directory / "flights", format="parquet", partitioning="hive").to_table(
        columns=["carrier", "flight", "time_hour", "origin"]
    )
    seconds = table["time_hour"].cast(pa.timestamp("s", tz="UTC")).cast(pa.int64())
    columns = [table["carrier"], table["flight"], seconds, table["origin"]]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)

    def total(name: str) -> int:
        counted = dataset.dataset(directory / name, format="parquet").to_table(columns=["flights"])
        return int(compute.sum(counted["flights"]).as_py() or 0)

    return Tables(Counter(Key(*row) for row in rows), total("hourly"), total("carriers"))


def collect(
    client: Redis, published: Published, *, killed: Held, stopped: Held, tables: Path
) -> Evidence:
    """Count everything. The group must be quiet: its workers have ended."""
    enriched, settled = read_enriched(client)
    dead = read_dead(client)
    for letter in dead:
        settled.setdefault(letter.entry_id, Settled(letter.consumer, letter.deliveries))
    pending, unread = group_counts(client)
    return Evidence(
        published=published,
        in_stream=int(client.xlen(STREAM)),
        enriched=enriched,
        dead=dead,
        settled=settled,
        pending=pending,
        unread=unread,
        killed=killed,
        stopped=stopped,
        tables=read_tables(tables),
    )
