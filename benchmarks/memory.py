"""Memory of the process, as the kernel tells (RSS), in a server that was started for it alone.

What an entry takes is the difference that a million of them makes. A digit by chance stands in every
``#`` of the fields (workloads.py), so that compression finds what it would find in real entries: names
that repeat, values that do not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import redis

from benchmarks.asked import Asked
from benchmarks.load import request
from benchmarks.rows import FIGURE, OURS, Row, Target
from benchmarks.stores import HEADWATER, KINDS, Kind, Store, running
from benchmarks.workloads import FIELDS_2, FIELDS_5, digits

ENTRIES: Final = 1_000_000
MANY: Final = 10_000_000
STREAMS: Final = 100_000
EACH: Final = 3

HOT: Final = {"stream-compression": "none"}
SEALED: Final = {"stream-hot-bytes": "1048576"}
"""Next to nothing may stay as it was written."""


class NotHere(Exception):
    """The server has not what a row is about; the text says what."""


def per_entry(store: Store) -> float:
    """Bytes an entry of five fields."""
    before = store.resident_bytes()
    store.fill("bench:memory", ENTRIES, FIELDS_5)
    store.rest()
    return (store.resident_bytes() - before) / ENTRIES


def per_pending(store: Store) -> float:
    """Bytes a pending entry, its stream not counted."""
    store.fill("bench:memory", ENTRIES, ("n", "########"))
    store.rest()
    before = store.resident_bytes()
    store.deliver("bench:memory", "g", ENTRIES)
    store.rest()
    return (store.resident_bytes() - before) / ENTRIES


def small_streams(store: Store) -> float:
    """Bytes a stream of three entries."""
    chance = random.Random(1)
    requests = [
        request(b"XADD", b"bench:%d" % key, b"*", *digits(FIELDS_2, chance))
        for _ in range(EACH)
        for key in range(STREAMS)
    ]
    before = store.resident_bytes()
    store.load("times", len(requests), 1, 500, requests=requests)
    store.rest()
    return (store.resident_bytes() - before) / STREAMS


def ten_million(store: Store) -> float:
    """MiB of the whole process."""
    store.fill("bench:memory", MANY, FIELDS_5)
    store.rest()
    return store.resident_bytes() / 2**20


class Subject(NamedTuple):
    """A row: what is measured, with which settings of ours, at most how many rounds."""

    name: str
    unit: str
    measure: Callable[[Store], float]
    target: Target
    settings: Mapping[str, str]
    rounds: int


SUBJECTS: Final = (
    Subject("an entry, 5 fields 150 B, hot", "B", per_entry, Target(1.8, 1.0), HOT, 5),
    Subject("an entry, 5 fields 150 B, sealed", "B", per_entry, Target(0.4, 0.33), SEALED, 5),
    Subject("a pending entry, all indexes", "B", per_pending, Target(48, 40, by=FIGURE), {}, 5),
    Subject("100,000 streams of 3 entries, one", "B", small_streams, Target(1.2, 0.8), {}, 5),
    Subject("process of 10M entries", "MiB", ten_million, Target(0.6, 0.35), {}, 3),
)  # fmt: skip
"""What takes minutes to fill has fewer rounds: memory repeats itself within a percent."""


def rows(asked: Asked) -> Iterator[Row]:
    """All of them, each store by itself."""
    for subject in SUBJECTS:
        if not asked.wants(subject.name):
            continue
        row = Row("memory", subject.name, subject.unit, better="less", target=subject.target)
        for _ in range(min(asked.rounds, subject.rounds)):
            for kind in KINDS:
                if kind.available():
                    add_round(row, kind, subject)
        yield row


def add_round(row: Row, kind: Kind, subject: Subject) -> None:
    """One round of one store; `Row.missing` where it is ours and has not what is asked for."""
    try:
        with running(kind, "--appendonly", "no") as store:
            if kind is HEADWATER:
                configure(store, subject.settings)
            row.of(kind.name).add(subject.measure(store))
    except NotHere as why:
        assert kind.name == OURS
        row.missing = str(why)


def configure(store: Store, settings: Mapping[str, str]) -> None:
    """CONFIG SET what is not so already. Raises `NotHere` where the server refuses."""
    with store.client() as client:
        for name, value in settings.items():
            if client.config_get(name).get(name) == value:
                continue
            try:
                client.config_set(name, value)
            except redis.ResponseError as error:
                raise NotHere(f"{name} {value}: {error}") from None
