"""Counts the results independently: in the store with XRANGE, in the tables with Arrow.

These counts do not rely on the reports of a worker or of Spark about its own work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.common.collector import collector_off
from headwater.demo.data import FLIGHTS, Key
from headwater.demo.names import ENRICHED, GROUP, STREAM
from headwater.demo.producer import Published
from headwater.demo.tables import Tables, read_tables
from headwater.messages.dead import DeadLetter, parse_dead_letter
from headwater.messages.keys import dead_letter_stream

if TYPE_CHECKING:
    from redis import Redis

PAGE = 2_000
"""Maximum number of entries per reply. Larger replies are slower to parse, smaller ones need more round trips."""


class SettledEntry(NamedTuple):
    """The consumer that settled an entry of ``flights``, and the delivery count at that time."""

    consumer: str
    deliveries: int


class OwnedEntries(NamedTuple):
    """The entries that a worker owned, or handed back, when it was ended: id → the server's delivery
    count at that time."""

    consumer: str
    entries: Mapping[str, int]


class Evidence(NamedTuple):
    """All the counts that the reconciliation compares."""

    published: Published
    in_stream: int
    enriched: Counter[Key]
    dead: list[DeadLetter]
    settled: dict[str, SettledEntry]
    """The settlement by id of the entry in ``flights``, for enriched entries and dead letters."""
    pending: int
    unread: int
    killed: OwnedEntries
    stopped: OwnedEntries
    tables: Tables


def pages(client: Redis, stream: str) -> Iterator[tuple[str, dict[bytes, bytes]]]:
    """Yield the id and the fields of every entry of a stream, oldest first."""
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
    """Return an ISO 8601 time as Unix seconds. Cached: the flights have 6,936 different hours."""
    return int(datetime.fromisoformat(text.decode()).timestamp())


def read_enriched(client: Redis) -> tuple[Counter[Key], dict[str, SettledEntry]]:
    """Return the keys in ``flights.enriched`` with the number of entries of each, and each entry's settlement."""
    keys: Counter[Key] = Counter()
    settled: dict[str, SettledEntry] = {}
    for _id, row in pages(client, ENRICHED):
        hour = unix_seconds(row[b"time_hour"])
        keys[Key(row[b"carrier"].decode(), int(row[b"flight"]), hour, row[b"origin"].decode())] += 1
        settled[row[b"source_id"].decode()] = SettledEntry(
            row[b"worker"].decode(), int(row[b"deliveries"])
        )
    return keys, settled


def read_dead(client: Redis) -> list[DeadLetter]:
    """Return every record of the dead-letter stream."""
    stream = dead_letter_stream(STREAM)
    return [
        parse_dead_letter(entry_id, [part for pair in fields.items() for part in pair])
        for entry_id, fields in pages(client, stream)
    ]


def group_counts(client: Redis) -> tuple[int, int]:
    """Return the group's number of pending entries in ``flights``, and the group's lag, -1 if it is unknown."""
    for group in client.xinfo_groups(STREAM):
        if group["name"] in (GROUP, GROUP.encode()):
            lag = group.get("lag")
            return int(group["pending"]), -1 if lag is None else int(lag)
    return 0, -1


def pending_by_owner(client: Redis) -> dict[str, int]:
    """Return the number of pending entries that each consumer of the group owns."""
    summary: Any = client.xpending(STREAM, GROUP)
    return {row["name"].decode(): int(row["pending"]) for row in summary["consumers"]}


def pending(client: Redis) -> dict[str, tuple[str, int]]:
    """Return the group's pending entries: id → owner (``""`` for an entry without one) and delivery count."""
    rows: Any = client.xpending_range(STREAM, GROUP, min="-", max="+", count=FLIGHTS)
    return {
        row["message_id"].decode(): (row["consumer"].decode(), row["times_delivered"])
        for row in rows
    }


def owned_entries(client: Redis, consumer: str) -> OwnedEntries:
    """Return the entries that ``consumer`` owns now."""
    rows = pending(client).items()
    return OwnedEntries(consumer, {one: count for one, (owner, count) in rows if owner == consumer})


@collector_off()
def collect(
    client: Redis,
    published: Published,
    *,
    killed: OwnedEntries,
    stopped: OwnedEntries,
    tables: Path,
) -> Evidence:
    """Count everything. The workers of the group must have ended."""
    enriched, settled = read_enriched(client)
    dead = read_dead(client)
    for letter in dead:
        settled.setdefault(letter.entry_id, SettledEntry(letter.consumer, letter.deliveries))
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
