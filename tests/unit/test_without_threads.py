"""A store goes on when the system allows no more threads, and uses threads again when it does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

import headwater
from headwater.client.sync.connect import connect
from headwater.config.config import Config
from headwater.errors import StoreUnusable
from headwater.server.opening import open_node
from tests.unit.cold import cold_store, small_blocks
from tests.waiting import eventually

ENTRIES = 5_000


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """A context in which no thread can be started."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    @contextmanager
    def context() -> Iterator[None]:
        with monkeypatch.context() as patches:
            patches.setattr(threading.Thread, "start", refuse)
            yield

    return context


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.WARNING, "headwater.server"):
        yield


@contextmanager
def store_in(directory: Path, **settings: Any) -> Iterator[Any]:
    """A client of an embedded store that keeps few entries in memory."""
    node = open_node(Config(dir=str(directory), stream_hot_bytes=65_536, save=(), **settings))
    with connect(node=node) as client:
        yield client
    node.close()


def fill(store: redis.Redis) -> None:
    pipeline = store.pipeline(transaction=False)
    for number in range(1, ENTRIES + 1):
        pipeline.xadd("s", {"number": number, "text": "x" * 100}, id=f"{number}-1")
    pipeline.execute()


def count_on_disk(store: redis.Redis) -> int:
    found: Any = store.info("persistence")
    return int(found["segment_live_bytes"])


def test_a_long_command_is_executed(no_threads: Callable[[], Any]) -> None:
    with headwater.connect("headwater://memory") as store:
        fill(store)
        # When no thread can be started
        with no_threads():
            dumped = store.dump("s")
            assert store.copy("s", "copy")
        # Then long commands have the same results
        assert dumped is not None
        store.restore("again", 0, dumped)
        assert store.xrange("again") == store.xrange("copy") == store.xrange("s")


def test_entries_on_disk_are_read(
    no_threads: Callable[[], Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a server whose entries are on disk
    small_blocks(monkeypatch)
    store = cold_store()
    client = store.client(kind="tcp")
    # When a client reads them while no thread can be started
    with no_threads():
        client.send("XRANGE", "s", "-", "+")
        store.node.tick()
        found = client.reply()
    # Then it has them after the next turn
    assert isinstance(found, list)
    assert len(found) == 300
    assert any("entries on disk holds up all clients" in one.message for one in caplog.records)


def test_entries_stay_in_memory_until_a_thread_can_be_started(
    no_threads: Callable[[], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with store_in(tmp_path) as store:
        # Given entries that were added while no thread could be started
        with no_threads():
            fill(store)
            assert count_on_disk(store) == 0
        assert store.xlen("s") == ENTRIES
        # Then the log says why, once
        said = [one.message for one in caplog.records if "no more threads" in one.message]
        assert len(said) == 1
        assert said[0].startswith("older entries stay in memory, uncompressed")
    # And the store was closed without an error, and has them
    with store_in(tmp_path) as store:
        assert store.xlen("s") == ENTRIES
        assert eventually(lambda: count_on_disk(store) > 0)


def test_a_store_that_needs_a_thread_says_so(no_threads: Callable[[], Any], tmp_path: Path) -> None:
    # Given a store that is fsynced in each turn, which needs no thread
    with no_threads(), store_in(tmp_path, appendfsync="always") as store:
        store.set("key", "value")
        # When it is to be fsynced once a second, then that is an error, and nothing changes
        with pytest.raises(redis.ResponseError, match="allows no more threads"):
            store.config_set("appendfsync", "everysec")
        assert store.config_get("appendfsync") == {"appendfsync": "always"}
    # And it cannot be opened with this policy
    with no_threads(), pytest.raises(StoreUnusable, match="or use appendfsync always"):
        open_node(Config(dir=str(tmp_path), appendfsync="everysec"))
    with store_in(tmp_path) as store:
        assert store.get("key") == b"value"
