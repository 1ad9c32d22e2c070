"""The workloads that are measured in operations per second. Each is one row of the table.

In each round, a workload prepares a store and then puts it under load for a given time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.load import Sample, request
from benchmarks.rows import CPU_RATIO, OURS, RATIO, Target
from benchmarks.stores import KINDS, PLAIN_PYTHON, VALKEY, WITH_REDIS, Kind, Store

ENTRIES: Final = 100_000
"""The number of entries in the streams that workloads read."""

KEYS: Final = 1000
"""The number of streams in the row *1000 keys*."""

VARIANTS: Final = 64
"""The number of different requests, so that a server does not receive the same bytes every time."""

FIELDS_2: Final = ("item", "tea-green-####", "price", "####")
FIELDS_5: Final = (
    "customer", "c-########0000", "item", "tea-green-####", "price", "####",
    "address", "## Long Lane, Upper Springwater, SW ####", "note",
    "leave it at the neighbour's door, please ring ## x",
)  # fmt: skip
"""The entries that workloads add, of 27 and 150 bytes: names and values in turn. Each ``#`` becomes a random
digit."""

Prepare = Callable[[Store], None]
Run = Callable[[Store, float], Sample]


@dataclass(frozen=True)
class Workload:
    """One row, measured on stores of these ``kinds``; with ``fsync``, they write a journal with this policy."""

    name: str
    run: Run
    target: Target
    prepare: Prepare
    fsync: str | None = None
    kinds: Sequence[Kind] = KINDS


def empty(store: Store) -> None:
    """Empty the store, so that the data of one round do not slow down the next."""
    store.empty()


def clean_up(workload: Workload, stores: Sequence[Store]) -> None:
    """Remove what the workload has added. Streams that it only reads stay for the next workload."""
    if workload.prepare is empty:
        for store in stores:
            store.empty()


def filled(key: str) -> Prepare:
    """Return a function that makes a stream of `ENTRIES` entries of five fields at ``key``."""

    def prepare(store: Store) -> None:
        with store.client() as client:
            if client.xlen(key) == ENTRIES:
                return
            client.delete(key)
        store.fill(key, ENTRIES, FIELDS_5)
        store.wait_idle()

    return prepare


def with_group(store: Store) -> None:
    """Make a stream and a group that has read nothing."""
    filled("bench:group")(store)
    with store.client() as client:
        client.execute_command("XGROUP", "DESTROY", "bench:group", "g")
        client.xgroup_create("bench:group", "g", "0")


def digits(words: Sequence[str], chance: random.Random) -> list[bytes]:
    """Return the words with a random digit for each ``#``."""
    return [
        "".join(chance.choice("0123456789") if byte == "#" else byte for byte in word).encode()
        for word in words
    ]


def additions(words: Sequence[str], *, keys: int = 1, times: int = VARIANTS) -> list[bytes]:
    """Return XADD requests to ``keys`` keys in turn, the same ones in every run."""
    chance = random.Random(1)
    return [
        request(b"XADD", b"bench:%d" % (at % keys), b"*", *digits(words, chance))
        for at in range(max(keys, times))
    ]


def xadd(words: Sequence[str], *, connections: int, pipeline: int, keys: int = 1) -> Run:
    """Return the run of a workload: XADD to ``keys`` keys in turn."""
    requests = additions(words, keys=keys)

    def run(store: Store, seconds: float) -> Sample:
        return store.load("repeat", seconds, connections, pipeline, requests=requests)

    return run


def xrange(count: int) -> Run:
    """Return the run of a workload: XRANGE from different places of a stream."""

    def run(store: Store, seconds: float) -> Sample:
        starts = range(1, ENTRIES - count, 997)
        return store.load("same", seconds, 8, 1, requests=list(_ranges(starts, count)))

    return run


def _ranges(starts: range, count: int) -> Iterator[bytes]:
    for start in starts:
        yield request(b"XRANGE", b"bench:range", b"%d-1" % start, b"+", b"COUNT", b"%d" % count)


def consume(connections: int, count: int, *, way: str = "ack") -> Run:
    """Return the run of a workload: read ``count`` new entries and acknowledge them. Operations are entries.

    ``way`` is how Headwater does it: ``ack`` is XREADGROUP and XACK, ``settle`` has XSETTLE instead of XACK,
    and ``claim`` has XREADGROUP CLAIM and XSETTLE. The peers always use XREADGROUP and XACK.
    """

    def run(store: Store, seconds: float) -> Sample:
        ours = way if store.name.startswith(OURS) else "ack"
        return store.load("consume", seconds, connections, count, ours, "bench:group", "g")

    return run


def _target(
    required: float, goal: float, *, valkey: float | None = None, by: str = RATIO
) -> Target:
    of = {} if valkey is None else {VALKEY: valkey}
    return Target(required, goal, by=by, required_of=of)


_P1 = xadd(FIELDS_2, connections=50, pipeline=1)
_P16 = xadd(FIELDS_2, connections=50, pipeline=16)

PLAIN_ROW: Final = "XADD 2 fields, c=50 P=16, plain Python"

WORKLOADS: Final = (
    Workload(
        "XADD 2 fields, c=50 P=1 (by CPU)", _P1, _target(1.0, 1.15, valkey=1.0, by=CPU_RATIO), empty
    ),
    Workload("XADD 2 fields, c=50 P=16", _P16, _target(1.3, 2.0, valkey=1.5), empty),
    Workload(
        "XADD 5 fields 150 B, c=50 P=16",
        xadd(FIELDS_5, connections=50, pipeline=16), _target(1.3, 2.2, valkey=1.6), empty,
    ),
    Workload(
        "XADD 2 fields, c=4 P=100",
        xadd(FIELDS_2, connections=4, pipeline=100), _target(1.8, 3.0, valkey=2.3), empty,
    ),
    Workload(
        "XADD 2 fields, c=50 P=16, 1000 keys",
        xadd(FIELDS_2, connections=50, pipeline=16, keys=KEYS), _target(1.2, 1.8), empty,
    ),
    Workload("XRANGE COUNT 100, c=8", xrange(100), _target(2.0, 3.0), filled("bench:range")),
    Workload("XRANGE COUNT 1000, c=8", xrange(1000), _target(4.0, 6.0), filled("bench:range")),
    Workload("XREADGROUP + XACK of 100, c=1", consume(1, 100), _target(1.4, 1.8), with_group),
    Workload("XREADGROUP + XACK of 100, c=8", consume(8, 100), _target(3.0, 5.0), with_group),
    Workload("XREADGROUP + XACK of 1, c=50", consume(50, 1), _target(1.1, 1.3), with_group),
    Workload(
        "CLAIM of 100 + XSETTLE, c=1", consume(1, 100, way="claim"), _target(1.3, 1.7), with_group
    ),
    Workload(
        "CLAIM of 100 + XSETTLE, c=8", consume(8, 100, way="claim"), _target(2.5, 4.0), with_group
    ),
    Workload("XADD, fsync always, c=50 P=1", _P1, _target(1.0, 1.15), empty, fsync="always"),
    Workload("XADD, fsync always, c=50 P=16", _P16, _target(1.5, 2.0), empty, fsync="always"),
    Workload(PLAIN_ROW, _P16, _target(0.2, 0.4), empty, kinds=(PLAIN_PYTHON, *WITH_REDIS[1:])),
)  # fmt: skip
"""The rows. Their targets are the required ratio and the goal against Redis 8.2, and the required ratio against
Valkey."""
