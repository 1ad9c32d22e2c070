"""What is measured: one function a workload, ``run(store, seconds) -> (operations, seconds)``."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

import hiredis

from benchmarks.load import ask, connect, pump, request
from benchmarks.stores import Store

ENTRIES = 100_000
"""Entries that the reading workloads find."""

_FIELDS_2 = (b"item", b"tea-green-0001", b"price", b"1234")
_FIELDS_5 = (
    b"customer", b"c-000000001234", b"item", b"tea-green-0001", b"price", b"1234",
    b"address", b"1 Long Lane, Springwater", b"note", b"leave it at the neighbour's door",
)  # fmt: skip


class Workload(NamedTuple):
    """``unit`` says what one operation is; ``fsync`` is the appendfsync that it runs with."""

    name: str
    unit: str
    run: Callable[[Store, float], tuple[int, float]]
    fsync: str | None = None


def _xadd(
    fields: tuple[bytes, ...], *, pipeline: int
) -> Callable[[Store, float], tuple[int, float]]:
    def run(store: Store, seconds: float) -> tuple[int, float]:
        one = request(b"XADD", b"bench:xadd", b"MAXLEN", b"~", b"1000000", b"*", *fields)
        answers, taken = pump(
            store.host,
            store.port,
            connections=50,
            payload=one * pipeline,
            lines=2 * pipeline,
            seconds=seconds,
        )
        return answers * pipeline, taken

    return run


def _fill(store: Store, key: bytes) -> None:
    """Have `ENTRIES` entries of five fields at ``key``, ids 1-1 to N-1."""
    link = connect(store.host, store.port)
    length = int(ask(link, request(b"XLEN", key), lines=1)[1:-2])
    for start in range(length, ENTRIES, 1000):
        chunk = range(start + 1, min(start + 1000, ENTRIES) + 1)
        payload = b"".join(request(b"XADD", key, b"%d-1" % n, *_FIELDS_5) for n in chunk)
        ask(link, payload, lines=2 * len(chunk))
    link.close()


def _xrange(count: int) -> Callable[[Store, float], tuple[int, float]]:
    def run(store: Store, seconds: float) -> tuple[int, float]:
        _fill(store, b"bench:range")
        one = request(b"XRANGE", b"bench:range", b"5000-1", b"+", b"COUNT", b"%d" % count)
        lines_of_an_entry = 4 + 4 * len(_FIELDS_5) // 2
        return pump(
            store.host,
            store.port,
            connections=8,
            payload=one,
            lines=1 + count * lines_of_an_entry,
            seconds=seconds,
        )

    return run


def _group_read(store: Store, seconds: float) -> tuple[int, float]:
    """XREADGROUP COUNT 100 and XACK of what came, one connection; operations are entries."""
    _fill(store, b"bench:group")
    link = connect(store.host, store.port)
    reader = hiredis.Reader()

    def call(*words: bytes) -> object:
        link.sendall(request(*words))
        while (answer := reader.gets()) is False:
            reader.feed(link.recv(1 << 18))
        return answer

    call(b"XGROUP", b"DESTROY", b"bench:group", b"g")
    call(b"XGROUP", b"CREATE", b"bench:group", b"g", b"0")
    read = (b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"100", b"STREAMS", b"bench:group", b">")
    entries = 0
    start = perf_counter()
    while (now := perf_counter()) < start + seconds:
        answer = call(*read)
        if not isinstance(answer, list):
            call(b"XGROUP", b"SETID", b"bench:group", b"g", b"0")
            continue
        ids = [entry[0] for entry in answer[0][1]]
        call(b"XACK", b"bench:group", b"g", *ids)
        entries += len(ids)
    link.close()
    return entries, now - start


WORKLOADS = (
    Workload("XADD 2 fields, c=50 P=1", "XADD", _xadd(_FIELDS_2, pipeline=1)),
    Workload("XADD 2 fields, c=50 P=16", "XADD", _xadd(_FIELDS_2, pipeline=16)),
    Workload("XADD 5 fields 150 B, c=50 P=16", "XADD", _xadd(_FIELDS_5, pipeline=16)),
    Workload("XRANGE COUNT 100, c=8", "XRANGE", _xrange(100)),
    Workload("XREADGROUP + XACK of 100, c=1", "entry", _group_read),
    Workload(
        "XADD 2 fields, c=50 P=16, fsync always", "XADD", _xadd(_FIELDS_2, pipeline=16), "always"
    ),
)
