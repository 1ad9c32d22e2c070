"""Sealing in a store: the thread, turns that help, settings, restarts."""

from __future__ import annotations

import gc
import threading
import weakref
import zlib

import pytest

from headwater.common import limits
from headwater.config.config import Config
from headwater.engine.bodies import codecs
from headwater.engine.check import broken_invariants
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.server.services.storage import sealer as sealing_thread
from headwater.server.services.storage.sealer import SealingResult
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure, Simple
from tests.unit.cold import fill, small_blocks, store_all
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch)


def sealed_blocks(store: LocalStore) -> int:
    return store.node.keyspace.sealing.sealed_count


def made(**settings: object) -> LocalStore:
    config = Config(port=0, stream_hot_bytes=0)
    for name, value in settings.items():
        setattr(config, name, value)
    return LocalStore(config=config)


def test_a_thread_seals_blocks_beyond_the_budget() -> None:
    # Given a store with new entries
    store = made()
    client = store.client()
    fill(client, 300)
    before = client("XRANGE", "s", "-", "+")
    # When the thread has done its work
    store.node.sealer.stop()
    with store.node.lock:
        store.node.sealer.settle(1000)
    # Then blocks are sealed, and the contents are unchanged
    assert sealed_blocks(store) > 5
    assert client("XRANGE", "s", "-", "+") == before
    assert broken_invariants(store.node.keyspace) == []
    # And no fact records it
    store.crash()
    assert store.client()("XRANGE", "s", "-", "+") == before


def test_turns_help_if_the_thread_lags_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a thread that does nothing
    monkeypatch.setattr(limits, "SEALING_LAG_BYTES", 5000)
    monkeypatch.setattr(sealing_thread, "MAX_QUEUED", 0)
    monkeypatch.setattr(sealing_thread, "MAX_QUEUED_TO_STORE", 0)
    store = made()
    # When entries are added
    fill(store.client(), 500)
    # Then at most the lag is unsealed
    assert sealed_blocks(store) > 10
    assert store.node.keyspace.sealing.hot_bytes < 5000 + 2 * 4096


def test_a_block_that_cannot_be_compressed_stays_unsealed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a codec that fails in the thread
    def fail(_data: bytearray) -> bytes:
        raise MemoryError("no memory")

    broken = codecs.make_codec("zlib")._replace(compress=fail)
    monkeypatch.setattr(sealing_thread, "codec_in", lambda _codecs, _name: broken)
    store = made()
    # When there is something to seal
    fill(store.client(), 300)
    store.node.sealer.stop()
    with store.node.lock:
        store.node.sealer.settle(1000)
    # Then it stays unsealed, the log says so, and the store continues
    assert sealed_blocks(store) == 0
    assert store.node.keyspace.sealing.kept_bytes > 10_000
    assert "could not be compressed" in caplog.text
    assert store.client()("XLEN", "s") == 300


def test_the_thread_of_a_dropped_store_ends() -> None:
    # Given a store with a thread
    others = set(threading.enumerate())
    store = made()
    fill(store.client(), 100)
    (thread,) = set(threading.enumerate()) - others
    node = weakref.ref(store.node)
    # When the last reference is dropped, without close
    del store
    # Then the thread ends, once objects that it may still reference are collected too
    while thread.is_alive():
        gc.collect()
        thread.join(0.01)
    assert node() is None


def test_settings_apply_from_the_turn_in_which_they_change() -> None:
    # Given a store with a budget for all of its entries
    store = made(stream_hot_bytes=10**9)
    client = store.client()
    fill(client, 300)
    assert store.node.keyspace.sealing.hot_bytes > 20_000
    # When the budget is 0
    assert client("CONFIG", "SET", "stream-hot-bytes", "0") == Simple(b"OK")
    store.node.sealer.stop()
    with store.node.lock:
        store.node.sealer.settle(1000)
    assert 0 < sealed_blocks(store)
    # And no more blocks are compressed after compression is turned off; sealed ones can be read
    assert client("CONFIG", "SET", "stream-compression", "none") == Simple(b"OK")
    before = sealed_blocks(store)
    fill(client, 300, first=301)
    assert sealed_blocks(store) == before
    assert client("XLEN", "s") == 600
    entries = client("XRANGE", "s", "-", "+")
    assert isinstance(entries, list)
    assert len(entries) == 600


def test_an_idle_store_seals_all_that_exceeds_the_budget() -> None:
    # Given a store with more blocks than are queued at once, all of them hot
    store = made(stream_hot_bytes=10**9)
    client = store.client()
    fill(client, 4000)
    node, sealing = store.node, store.node.keyspace.sealing
    assert sealing.hot_bytes > 2 * sealing_thread.MAX_QUEUED_TO_STORE * 2048
    # When the budget is 0, and no turn runs after that
    node.sealer.takes_turns = True
    client("CONFIG", "SET", "stream-hot-bytes", "0")

    def is_done() -> bool:
        with node.lock:
            return not node.sealer.has_work()

    # Then the thread seals everything but the end
    eventually(is_done, "the sealer has stored everything")
    with node.lock:
        assert sealing.hot_bytes < 3 * 4096
        assert broken_invariants(node.keyspace) == []


def test_the_thread_lets_clients_go_first() -> None:
    # Given results that the thread has to apply
    store = made()
    store.node.sealer.stop()
    fill(store.client(), 1000)
    sealer = store.node.sealer
    sealer._stopped, sealer.takes_turns = False, True
    with store.node.lock:
        sealer.step()
    sealer.stop()
    sealer._stopped = False
    before = len(sealer.done)
    assert before > sealing_thread.SETTLED_AT_ONCE
    # When it applies some
    pause = sealer.try_step()
    # Then it goes on after a pause, until none is left
    assert 0 < before - len(sealer.done) <= sealing_thread.SETTLED_AT_ONCE
    assert pause is not None
    assert pause > 0
    while sealer.done:
        pause = sealer.try_step()
    assert pause is None


class FailingKeyspace:
    """A keyspace that cannot store blocks."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.sealing = keyspace.sealing

    def store(self, *_: object) -> bool:
        raise MemoryError("no memory")


def test_a_result_that_cannot_be_applied_leaves_no_open_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given the result of a block, and no memory to apply it
    store = made()
    client, sealer = store.client(), store.node.sealer
    sealer.stop()
    fill(client, 100)
    (job,) = store.node.keyspace.sealing.choose(1)
    sealer.done.append(SealingResult(job, "zlib", zlib.compress(job.data)))
    keyspace = sealer.keyspace
    sealer.keyspace = FailingKeyspace(keyspace)  # type: ignore[assignment]
    sealer.takes_turns, sealer._stopped = True, False
    # When the thread applies it
    sealer.try_step()
    # Then the log says so, and what is written later can be recovered
    assert "sealing blocks of entries failed" in caplog.text
    sealer.keyspace = keyspace
    assert not store.node.records.facts.data
    fill(client, 1, first=101)
    store.crash()
    assert store.client()("XLEN", "s") == 101


def test_a_codec_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "has_zstd", lambda: False)
    client = made().client()
    refused = client("CONFIG", "SET", "stream-compression", "zstd")
    assert isinstance(refused, Failure)
    assert b"pip install zstandard" in refused.text
    # And auto selects the other codec
    assert client("CONFIG", "SET", "stream-compression", "auto") == Simple(b"OK")
    assert codecs.make_codec("auto").name == "zlib"


def test_a_start_seals_while_it_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a journal with more than may stay unsealed
    monkeypatch.setattr(limits, "SEALING_LAG_BYTES", 5000)
    store = made()
    fill(store.client(), 500)
    # When the store restarts
    store.crash()
    # Then it seals during the replay, or finds blocks on disk
    assert store.node.keyspace.sealing.sealed_size > 20_000
    # And what is left is soon sealed as well
    store_all(store)
    assert store.node.keyspace.sealing.hot_bytes < 5000 + 2 * 4096


def test_a_reload_starts_with_a_new_accounting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEALING_LAG_BYTES", 0)
    monkeypatch.setattr(sealing_thread, "MAX_QUEUED", 0)  # turns seal, at once
    monkeypatch.setattr(sealing_thread, "MAX_QUEUED_TO_STORE", 0)
    store = made(enable_debug_command="yes")
    client = store.client(kind="tcp")
    fill(client, 300)
    before = client("XRANGE", "s", "-", "+")
    old = store.node.keyspace
    assert client("DEBUG", "RELOAD") == Simple(b"OK")
    assert store.node.keyspace is not old
    fill(client, 100, first=301)
    assert sealed_blocks(store) > 5
    assert broken_invariants(store.node.keyspace) == []
    entries = client("XRANGE", "s", "-", "+")
    assert isinstance(entries, list)
    assert entries[:300] == before


def test_jobs_in_progress_at_a_reload_belong_to_the_old_keyspace() -> None:
    # Given compression jobs that are not settled
    store = made(enable_debug_command="yes")
    client = store.client(kind="tcp")
    sealer, before = store.node.sealer, store.node.keyspace.sealing
    sealer.stop()
    fill(client, 200)
    jobs = before.choose(4)
    assert len(jobs) == 4
    # When they are settled after a reload
    assert client("DEBUG", "RELOAD") == Simple(b"OK")
    after, seen = store.node.keyspace.sealing, sealed_blocks(store)
    sealer.done.extend(SealingResult(job, "zlib", zlib.compress(job.data)) for job in jobs)
    with store.node.lock:
        sealer.settle()
    # Then they do not count in the new keyspace
    assert after is not before
    assert sealed_blocks(store) == seen
    assert before.sealed_count == 4
    assert broken_invariants(store.node.keyspace) == []


def test_info_shows_hot_and_sealed_bytes() -> None:
    store = made()
    client = store.client()
    fill(client, 300)
    store.node.sealer.stop()
    with store.node.lock:
        store.node.sealer.settle(1000)
    text = client("INFO", "memory")
    assert isinstance(text, bytes)
    statistics = dict(line.split(b":", 1) for line in text.split(b"\r\n") if b":" in line)
    sealing = store.node.keyspace.sealing
    assert int(statistics[b"stream_sealed_bytes"]) == sealing.sealed_bytes > 0
    # How many blocks the thread sealed before it was stopped is not deterministic.
    assert int(statistics[b"stream_sealed_entries_bytes"]) == sealing.sealed_size > 0
    assert int(statistics[b"stream_hot_bytes"]) == sealing.hot_bytes + sealing.kept_bytes
    assert statistics[b"stream_compression"] == sealing.codec.encode()
    # And MEMORY's statistics are the same
    stats = client("MEMORY", "STATS")
    assert isinstance(stats, list)
    streams = stats[stats.index(b"streams") + 1]
    assert streams == [
        *(b"hot", sealing.hot_bytes + sealing.kept_bytes),
        *(b"sealed", sealing.sealed_bytes),
        *(b"sealed.as.written", sealing.sealed_size),
    ]
    parts = [int(statistics[b"used_memory_" + name]) for name in (b"overhead", b"dataset")]
    assert sum(parts) == int(statistics[b"used_memory"])
