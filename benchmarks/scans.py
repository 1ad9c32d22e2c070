"""The cost of one call on a pending entries list of a million entries, on a list of 100,000 elements and on a string
of 10 MB.

The measurement is the server's processor time per call when sixteen calls arrive at a time, so that the
kernel's share is small. The round trip of a single call is reported too, as ``p50_us``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.load import request
from benchmarks.rows import OURS, OWN_VALUE, Row, Target
from benchmarks.selection import Selection
from benchmarks.stores import KINDS, Store, measured

PENDING: Final = 1_000_000
PIPELINE: Final = 16
CALLS_PER_SECOND: Final = 160
"""Few, because a call takes Redis more than a millisecond."""

_HOUR_MS: Final = b"3600000"

AUTOCLAIM: Final = "XAUTOCLAIM, 1M pending, none idle"
CLAIM: Final = "XREADGROUP CLAIM 100 of 1M pending"
CLAIM_NOTE: Final = (
    "the peers do not have CLAIM: they run XAUTOCLAIM COUNT 100 with everything idle"
)


def none_idle(_store: Store, *, key: bytes = b"bench:pending") -> bytes:
    """Return an XAUTOCLAIM that scans as far as it may, a thousand entries, and finds nothing."""
    return request(b"XAUTOCLAIM", key, b"g", b"z", _HOUR_MS, b"0", b"COUNT", b"100")


def hundred(store: Store) -> bytes:
    """Return a command that claims the hundred entries with the longest idle time."""
    key = b"bench:pending"
    if store.name != OURS:
        return request(b"XAUTOCLAIM", key, b"g", b"z", b"0", b"0", b"COUNT", b"100")
    return request(
        b"XREADGROUP", b"GROUP", b"g", b"z", b"COUNT", b"100", b"CLAIM", b"0", b"STREAMS", key, b">"
    )


SUBJECTS: Final[tuple[tuple[str, Callable[[Store], bytes], Target, str], ...]] = (
    (AUTOCLAIM, none_idle, Target(0.1, 0.013, by=OWN_VALUE), ""),
    (CLAIM, hundred, Target(0.3, 0.15, by=OWN_VALUE), CLAIM_NOTE),
)

ELEMENTS: Final = 100_000
STRING_BYTES: Final = 10_000_000
VALUES: Final[tuple[tuple[str, bytes, Target], ...]] = (
    (
        "LREM, 100k elements, none equal",
        request(b"LREM", b"bench:list", b"0", b"none"),
        Target(2.0, 0.5, by=OWN_VALUE),
    ),
    (
        "LINDEX, the middle of 100k elements",
        request(b"LINDEX", b"bench:list", b"%d" % (ELEMENTS // 2)),
        Target(0.05, 0.02, by=OWN_VALUE),
    ),
    (
        "APPEND of a byte to 10 MB",
        request(b"APPEND", b"bench:string", b"x"),
        Target(0.1, 0.02, by=OWN_VALUE),
    ),
    (
        "SETRANGE of a byte in 10 MB",
        request(b"SETRANGE", b"bench:string", b"%d" % (STRING_BYTES // 2), b"x"),
        Target(0.1, 0.02, by=OWN_VALUE),
    ),
)


def value_rows(selection: Selection, fsync: str | None) -> Iterator[Row]:
    """Yield the selected rows on a long list and a long string."""
    chosen = [subject for subject in VALUES if selection.wants(subject[0])]
    if not chosen:
        return
    with measured(KINDS, fsync=fsync) as stores:
        for store in stores:
            with store.client() as client:
                client.rpush("bench:list", *(f"e{number}" for number in range(ELEMENTS)))
                client.set("bench:string", b"s" * STRING_BYTES)
            store.wait_idle()
        for name, wanted, target in chosen:
            row = Row(fsync or "scans", name, "ms", better="less", target=target)
            for _ in range(selection.rounds):
                for store in stores:
                    add_round(row, store, wanted, selection.seconds)
            yield row


def rows(selection: Selection, fsync: str | None = None) -> Iterator[Row]:
    """Yield the selected rows, on stores with the same million entries. ``fsync`` gives every store an
    append-only file."""
    yield from value_rows(selection, fsync)
    chosen = [subject for subject in SUBJECTS if selection.wants(subject[0])]
    if not chosen:
        return
    with measured(KINDS, fsync=fsync) as stores:
        for store in stores:
            store.fill("bench:pending", PENDING, ("n", "########"))
            store.deliver("bench:pending", "g", PENDING)
            store.wait_idle()
        for name, wanted, target, note in chosen:
            row = Row(fsync or "scans", name, "ms", better="less", target=target, note=note)
            for _ in range(selection.rounds):
                for store in stores:
                    add_round(row, store, wanted(store), selection.seconds)
            yield row


def add_round(row: Row, store: Store, wanted: bytes, seconds: float) -> None:
    """Measure one round: single calls for the reply time, then batches for the cost of one call."""
    calls = PIPELINE * max(2, int(CALLS_PER_SECOND * seconds / PIPELINE))
    single = store.load("times", calls // 2, 1, 1, requests=[wanted])
    many = store.load("times", calls, 1, PIPELINE, requests=[wanted] * calls)
    row.of(store.name).add(
        many.cpu_us / 1000, cpu_us=many.cpu_us, p50_us=single.p50_us, p99_us=single.p99_us
    )
