"""Resident memory (RSS) of the server process. Each measurement starts a new server.

The size of an entry is the difference that a million entries make, divided by a million. Each ``#`` in the
fields becomes a random digit (workloads.py), so that the data compress like real entries: names repeat,
values do not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import redis

from benchmarks.load import request
from benchmarks.rows import OURS, OWN_VALUE, Row, Target
from benchmarks.selection import Selection
from benchmarks.stores import HEADWATER, KINDS, Kind, Store, running
from benchmarks.workloads import FIELDS_2, FIELDS_5, digits

ENTRIES: Final = 1_000_000
MANY: Final = 10_000_000
STREAMS: Final = 100_000
EACH: Final = 3

HOT: Final = {"stream-compression": "none"}
SEALED: Final = {"stream-hot-bytes": "1048576"}
"""Only 1 MiB stays uncompressed."""


class NotHere(Exception):
    """The server does not support what a row measures; the message says what."""


def per_entry(store: Store) -> float:
    """Return the bytes per entry of five fields."""
    before = store.resident_bytes()
    store.fill("bench:memory", ENTRIES, FIELDS_5)
    store.wait_idle()
    return (store.resident_bytes() - before) / ENTRIES


def per_pending(store: Store) -> float:
    """Return the bytes per pending entry, without its stream."""
    store.fill("bench:memory", ENTRIES, ("n", "########"))
    store.wait_idle()
    before = store.resident_bytes()
    store.deliver("bench:memory", "g", ENTRIES)
    store.wait_idle()
    return (store.resident_bytes() - before) / ENTRIES


def small_streams(store: Store) -> float:
    """Return the bytes per stream of three entries."""
    chance = random.Random(1)
    requests = [
        request(b"XADD", b"bench:%d" % key, b"*", *digits(FIELDS_2, chance))
        for _ in range(EACH)
        for key in range(STREAMS)
    ]
    before = store.resident_bytes()
    store.load("times", len(requests), 1, 500, requests=requests)
    store.wait_idle()
    return (store.resident_bytes() - before) / STREAMS


def ten_million(store: Store) -> float:
    """Return the MiB of the whole process with ten million entries."""
    store.fill("bench:memory", MANY, FIELDS_5)
    store.wait_idle()
    return store.resident_bytes() / 2**20


class Subject(NamedTuple):
    """A row: the measurement, Headwater's settings for it, and the most rounds."""

    name: str
    unit: str
    measure: Callable[[Store], float]
    target: Target
    settings: Mapping[str, str]
    rounds: int


SUBJECTS: Final = (
    Subject("an entry, 5 fields 150 B, hot", "B", per_entry, Target(1.8, 1.0), HOT, 5),
    Subject("an entry, 5 fields 150 B, sealed", "B", per_entry, Target(0.4, 0.33), SEALED, 5),
    Subject("a pending entry, all indexes", "B", per_pending, Target(48, 40, by=OWN_VALUE), {}, 5),
    Subject("100,000 streams of 3 entries, one", "B", small_streams, Target(1.2, 0.8), {}, 5),
    Subject("process of 10M entries", "MiB", ten_million, Target(0.6, 0.35), {}, 3),
)  # fmt: skip
"""The store that takes minutes to fill is measured in fewer rounds: results repeat within a percent."""


def rows(selection: Selection) -> Iterator[Row]:
    """Yield the selected rows; each store is measured alone."""
    for subject in SUBJECTS:
        if not selection.wants(subject.name):
            continue
        row = Row("memory", subject.name, subject.unit, better="less", target=subject.target)
        for _ in range(min(selection.rounds, subject.rounds)):
            for kind in KINDS:
                if kind.available():
                    add_round(row, kind, subject)
        yield row


def add_round(row: Row, kind: Kind, subject: Subject) -> None:
    """Measure one round of one store. Sets `Row.missing` if Headwater lacks a setting."""
    try:
        with running(kind, "--appendonly", "no", "--save", "") as store:
            if kind is HEADWATER:
                configure(store, subject.settings)
            row.of(kind.name).add(subject.measure(store))
    except NotHere as why:
        assert kind.name == OURS
        row.missing = str(why)


def configure(store: Store, settings: Mapping[str, str]) -> None:
    """Set the settings that differ, with CONFIG SET. Raises `NotHere` if the server refuses one."""
    with store.client() as client:
        for name, value in settings.items():
            if client.config_get(name).get(name) == value:
                continue
            try:
                client.config_set(name, value)
            except redis.ResponseError as error:
                raise NotHere(f"{name} {value}: {error}") from None
