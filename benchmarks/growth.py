"""The cost of a command at ten million entries, or a million pending, divided by its cost at 10,000.

Both streams are in the same server and are measured in turn. The result is the ratio of the server's
processor time per call. Calls are sent a hundred at a time, so that the kernel's share does not hide
growth.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from benchmarks.load import request
from benchmarks.rows import OWN_VALUE, TIMES, Row, Target
from benchmarks.scans import none_idle
from benchmarks.selection import Selection
from benchmarks.stores import WITH_REDIS, Store, measured
from benchmarks.workloads import FIELDS_5, digits

LARGE: Final = 10_000_000
PENDING: Final = 1_000_000
SMALL: Final = 10_000

ADDITIONS: Final = 50_000
ACKNOWLEDGEMENTS: Final = 8000
"""Not more than the small stream's pending entries."""
SCANS: Final = 400
"""Each takes Redis a millisecond or two."""
READS: Final = 500

PIPELINE: Final = 100
REPEATS: Final = 5
"""Repetitions of each measurement in a round. The minimum counts, because disturbances only add time."""

BIG_KEY, SMALL_KEY = "bench:large", "bench:small"

TARGET: Final = Target(1.2, 1.05, by=OWN_VALUE)


class Size(NamedTuple):
    """One of the two streams: its number of entries, of which the first ``pending`` are pending."""

    key: str
    entries: int
    pending: int


LARGE_SIZE: Final = Size(BIG_KEY, LARGE, PENDING)
SMALL_SIZE: Final = Size(SMALL_KEY, SMALL, SMALL)

Calls = Callable[[Store, Size, random.Random], list[bytes]]


def xadd(_store: Store, size: Size, chance: random.Random) -> list[bytes]:
    """Return requests that add entries at the end."""
    key = size.key.encode()
    return [request(b"XADD", key, b"*", *digits(FIELDS_5, chance)) for _ in range(ADDITIONS)]


def xack(_store: Store, size: Size, chance: random.Random) -> list[bytes]:
    """Return requests that acknowledge random pending entries, each once."""
    ids = chance.sample(range(1, size.pending + 1), ACKNOWLEDGEMENTS)
    return [request(b"XACK", size.key.encode(), b"g", b"%d-1" % number) for number in ids]


def xautoclaim(store: Store, size: Size, _chance: random.Random) -> list[bytes]:
    """Return scans that find no idle entry."""
    return [none_idle(store, key=size.key.encode())] * SCANS


def xrange_newest(_store: Store, size: Size, chance: random.Random) -> list[bytes]:
    """Return reads of a hundred entries among the newest 10,000."""
    return _ranges(size, range(size.entries - SMALL + 1, size.entries - 100), chance)


def xrange_anywhere(_store: Store, size: Size, chance: random.Random) -> list[bytes]:
    """Return reads of a hundred entries anywhere in the stream."""
    return _ranges(size, range(1, size.entries - 100), chance)


def _ranges(size: Size, starts: range, chance: random.Random) -> list[bytes]:
    key = size.key.encode()
    return [
        request(b"XRANGE", key, b"%d-1" % chance.choice(starts), b"+", b"COUNT", b"100")
        for _ in range(READS)
    ]


class Subject(NamedTuple):
    """A measured command."""

    name: str
    calls: Calls
    target: Target


SUBJECTS: Final = (
    Subject("growth of XADD, 10M entries", xadd, TARGET),
    Subject("growth of XACK, 1M pending", xack, TARGET),
    Subject("growth of XAUTOCLAIM, 1M pending", xautoclaim, TARGET),
    Subject("growth of XRANGE, newest of 10M", xrange_newest, TARGET),
    Subject("growth of XRANGE, anywhere in 10M", xrange_anywhere, replace(TARGET, judged=False)),
)
"""The last row is reported only: reading compressed or non-resident blocks costs more by design."""


def rows(selection: Selection) -> Iterator[Row]:
    """Yield the selected rows, of Headwater and for comparison of Redis."""
    chosen = [subject for subject in SUBJECTS if selection.wants(subject.name)]
    if not chosen:
        return
    with measured(WITH_REDIS) as stores:
        for store in stores:
            store.fill(LARGE_SIZE.key, LARGE_SIZE.entries, FIELDS_5)
            store.deliver(LARGE_SIZE.key, "g", LARGE_SIZE.pending)
        for subject in chosen:
            yield row_of(subject, stores, selection.rounds)


def row_of(
    subject: Subject,
    stores: Sequence[Store],
    rounds: int,
    *,
    section: str = "growth",
    small: Size = SMALL_SIZE,
    large: Size = LARGE_SIZE,
    before: Callable[[], None] | None = None,
) -> Row:
    """Measure a command on both sizes. The stores have the large stream already. ``before`` is called before
    each measurement."""
    row = Row(section, subject.name, TIMES, better="less", target=subject.target)
    for turn in range(rounds):
        for store in stores:
            if before is not None:
                before()
            small_us, large_us = (
                min(_cost_us(store, subject, size, turn * REPEATS + at) for at in range(REPEATS))
                for size in (small, large)
            )
            row.of(store.name).add(large_us / small_us, small_us=small_us, large_us=large_us)
    return row


def _cost_us(store: Store, subject: Subject, size: Size, seed: int) -> float:
    """Return the processor time per call."""
    if size.key == SMALL_KEY:
        _renew(store, size)
    requests = subject.calls(store, size, random.Random(seed))
    store.wait_idle()
    return store.load("times", len(requests), 1, PIPELINE, requests=requests).cpu_us


def _renew(store: Store, size: Size) -> None:
    """Make the small stream again, with its pending entries."""
    with store.client() as client:
        client.delete(SMALL_KEY)
    store.fill(SMALL_KEY, size.entries, FIELDS_5)
    if size.pending:
        store.deliver(SMALL_KEY, "g", size.pending)
