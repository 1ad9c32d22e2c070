"""MEMORY USAGE is within a tenth of what Python's allocator has allocated."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from headwater.commands.footprint import footprint
from headwater.common import limits
from headwater.config.config import Config
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Nil
from tests.blocks import nothing_hot

pytestmark = pytest.mark.slow

Fill = Callable[[LocalClient, str], None]


def entries(count: int) -> Fill:
    def fill(client: LocalClient, key: str) -> None:
        for number in range(1, count + 1):
            client("XADD", key, f"{number}-1", "field", f"value{number}")

    return fill


def delivered(count: int) -> Fill:
    def fill(client: LocalClient, key: str) -> None:
        entries(count)(client, key)
        client("XGROUP", "CREATE", key, "g", "0")
        for consumer in range(4):
            reading = ("XREADGROUP", "GROUP", "g", f"c{consumer}", "COUNT", count // 4)
            client(*reading, "STREAMS", key, ">")

    return fill


def produced(client: LocalClient, key: str) -> None:
    for number in range(1000):
        client("XADD", key, "IDMP", f"p{number % 20}", f"iid{number}", "*", "a", "b")


def fields(client: LocalClient, key: str) -> None:
    for number in range(1000):
        client("HSET", key, f"field{number}", "v" * (number % 50))


def elements(client: LocalClient, key: str) -> None:
    for number in range(1000):
        client("RPUSH", key, "v" * (number % 50))


CASES: dict[str, tuple[Fill, int]] = {
    "entries": (entries(5000), 1),
    "pending entries": (delivered(4000), 1),
    "small streams": (entries(3), 100),
    "small streams with groups": (delivered(4), 50),
    "idempotent producers": (produced, 1),
    "a hash": (fields, 1),
    "a list": (elements, 1),
}


SEALED = {"sealed entries": (entries(12_000), 1), "sealed and pending": (delivered(12_000), 1)}


@pytest.mark.parametrize("case", [*CASES, *SEALED])
def test_memory_usage_matches_allocated_memory(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a store that has already allocated its fixed data for keys of this kind
    fill, count = (CASES | SEALED)[case]
    if case in SEALED:  # sealed by turns, since the thread's share is random
        monkeypatch.setattr(limits, "SEALING_LAG_BYTES", 0)
        nothing_hot(monkeypatch)
    config = Config(port=0, appendonly=False, save=(), slowlog_log_slower_than=-1)
    store = LocalStore(config=config, journaled=False)
    store.node.sealer.stop()
    client = store.client()
    fill(client, "before")
    keys = [f"key{number}" for number in range(count)]

    # When the keys are created
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for key in keys:
            fill(client, key)
        gc.collect()
        real = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    # Then MEMORY USAGE of all keys is right, with samples and without
    assert (store.node.keyspace.sealing.sealed_count > 0) == (case in SEALED)
    for samples in ((), ("SAMPLES", 0)):
        reported = 0
        for key in keys:
            usage = client("MEMORY", "USAGE", key, *samples)
            assert isinstance(usage, int)
            reported += usage
        assert abs(reported - real) < 0.1 * real, samples


def test_a_missing_key_is_nil_and_invalid_samples_are_an_error() -> None:
    client = LocalStore().client()
    assert client("MEMORY", "USAGE", "none") is Nil.BULK
    client("SET", "k", "v")
    assert client("MEMORY", "USAGE", "k", "SAMPLES", "-1") == Failure(b"ERR syntax error")
    assert client("MEMORY", "USAGE", "k", "SAMPLES", "x").__class__ is Failure


def test_nested_large_values_are_estimated_from_samples() -> None:
    nested = [[bytes(100) for _ in range(300)] for _ in range(300)]
    exact, sampled = footprint(nested, samples=0), footprint(nested)
    assert abs(sampled - exact) < 0.1 * exact
