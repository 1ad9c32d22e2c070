"""Counts again, from the outside, what came out: from the store by XRANGE, from the tables by Arrow.

Nothing here asks a worker or Spark what it believes that it has done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.collector import collector_off
from headwater.demo.data import FLIGHTS, Key
from headwater.demo.names import ENRICHED, GROUP, STREAM
from headwater.demo.producer import Published
from headwater.demo.tables import Tables, read_tables
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
    """What a worker owned, or handed back, when it was ended: id → how often the entry had been
    delivered by then, as the server counts."""

    consumer: str
    entries: Mapping[str, int]


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


def pending(client: Redis) -> dict[str, tuple[str, int]]:
    """Every pending entry of the group: id → its consumer, ``""`` if nobody owns it, and how often
    it was delivered."""
    rows: Any = client.xpending_range(STREAM, GROUP, min="-", max="+", count=FLIGHTS)
    return {
        row["message_id"].decode(): (row["consumer"].decode(), row["times_delivered"])
        for row in rows
    }


def held(client: Redis, consumer: str) -> Held:
    """The entries that ``consumer`` owns now."""
    rows: Any = client.xpending_range(
        STREAM, GROUP, min="-", max="+", count=FLIGHTS, consumername=consumer
    )
    return Held(consumer, {row["message_id"].decode(): row["times_delivered"] for row in rows})


@collector_off()
def collect(
    client: Redis, published: Published, *, killed: Held, stopped: Held, tables: Path
) -> Evidence:
    """Count everything. The group must be quiet: its workers have ended."""
    enriched, settled = read_enriched(client)
    dead = read_dead(client)
    for letter in dead:
        settled.setdefault(letter.entry_id, Settled(letter.consumer, letter.deliveries))
    unsettled, unread = group_counts(client)
    return Evidence(
        published=published,
        in_stream=int(client.xlen(STREAM)),
        enriched=enriched,
        dead=dead,
        settled=settled,
        pending=unsettled,
        unread=unread,
        killed=killed,
        stopped=stopped,
        tables=read_tables(tables),
    )
