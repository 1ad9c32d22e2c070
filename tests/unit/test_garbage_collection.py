"""Python's cyclic collector neither holds a server up nor lets its memory grow."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

import headwater
from headwater.collector import collector_off
from headwater.config.config import Config
from headwater.engine.replay import apply
from headwater.server import opening, replaying
from headwater.server.net.sockets import Connection
from headwater.server.running import Server
from headwater.server.services.garbage_collection import (
    FULL_INTERVAL_SECONDS,
    SHORT_SECONDS,
    GarbageCollection,
)
from headwater.server.session.session import Session
from headwater.server.turn.node import Node
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.server import server_process, server_thread
from tests.conformance.wire import connected


class Part:
    """Something that can be watched by a weak reference, and be part of a cycle."""

    def __init__(self) -> None:
        self.other: object = None


def dead_cycle() -> weakref.ref[Part]:
    """Two objects that only refer to each other."""
    one, two = Part(), Part()
    one.other, two.other = two, one
    return weakref.ref(one)


@contextmanager
def serving(*, short_seconds: float = SHORT_SECONDS) -> Iterator[GarbageCollection]:
    """A collector that serves a node in this process, within a loop of asyncio that stands still."""
    collection = GarbageCollection(short_seconds=short_seconds)

    async def begin() -> None:
        collection.begin()
        collection.serve(Node(config=Config(appendonly=False)).services)

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(begin())
        yield collection
    finally:
        collection.end()
        gc.unfreeze()
        loop.close()


# --- cycles that must not exist ----------------------------------------------------------------------


def group_with_pending_entries(client: LocalClient) -> None:
    client("XGROUP", "CREATE", "k", "g", "$", "MKSTREAM")
    client("XADD", "k", "*", "a", "b")
    client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">")
    client("DEL", "k")


def group_alone(client: LocalClient) -> None:
    client("XGROUP", "CREATE", "k", "g", "$", "MKSTREAM")
    client("XGROUP", "DESTROY", "k", "g")
    client("DEL", "k")


def overwritten_stream(client: LocalClient) -> None:
    client("XGROUP", "CREATE", "k", "g", "$", "MKSTREAM")
    client("COPY", "k", "other")
    client("RENAME", "other", "third")
    client("SET", "k", "1")
    client("FLUSHALL")


def idempotent_producer(client: LocalClient) -> None:
    client("XADD", "k", "IDMP", "producer", "1", "*", "a", "b")
    client("DEL", "k")


def transaction(client: LocalClient) -> None:
    client("WATCH", "k")
    client("MULTI")
    client("XADD", "k", "*", "a", "b")
    client("LPUSH", "k", "x")
    client("EXEC")
    client("DEL", "k")


def errors(client: LocalClient) -> None:
    client("NOSUCH")
    client("XADD", "k", "1")
    client("XGROUP", "SETID", "none", "g", "0")


def script(client: LocalClient) -> None:
    client("EVAL", "return redis.pcall('XADD', KEYS[1], 'x')", 1, "k")


@pytest.mark.slow
@pytest.mark.parametrize(
    "story",
    [
        group_with_pending_entries,
        group_alone,
        overwritten_stream,
        idempotent_producer,
        transaction,
        errors,
        script,
    ],
    ids=lambda story: story.__name__,
)
def test_what_commands_leave_is_freed_without_the_cyclic_collector(
    story: Callable[[LocalClient], None],
) -> None:
    # Given a store that has done it before, so that everything is loaded
    store = LocalStore(journaled=False)
    client = store.client()
    story(client)
    store.node.tick()
    gc.collect()
    with collector_off():
        # When it does it fifty times
        for _ in range(50):
            story(client)
            store.node.tick()
        # Then nothing is left that only the collector could free
        assert gc.collect() == 0


def test_what_clients_leave_is_freed_without_the_cyclic_collector() -> None:
    def living() -> int:
        return sum(isinstance(one, Session | Connection) for one in gc.get_objects())

    with server_thread() as server:

        def visit() -> None:
            with connected(server.port) as wire:
                wire.ask("SUBSCRIBE", "news")
                wire.ask("UNSUBSCRIBE", "news")
                wire.ask("NOSUCH")
                wire.ask("QUIT")
            with connected(server.port) as wire:
                wire.ask("PING")
                wire.socket.sendall(b"XREAD BLOCK 0 STREAMS none $\r\n")

        def all_gone(one: Server) -> None:
            left[:] = one.loop.connections

        left = [0]
        with collector_off():
            # When many clients come and go, some of them while they wait
            before = living()
            for _ in range(20):
                visit()
            while left:
                server.run(all_gone)
            # Then no session and no socket is left behind
            assert living() == before


def test_a_replay_of_keys_that_came_and_went_leaves_no_garbage(tmp_path: Path) -> None:
    # Given a journal of streams with groups, small and large, that were deleted again
    with headwater.connect(f"headwater://{tmp_path}") as client:
        for number in range(20):
            client.xgroup_create(f"s{number}", "g", mkstream=True)
            for _ in range(300 if number % 10 == 0 else 3):
                client.xadd(f"s{number}", {"a": "b"})
            client.xreadgroup("g", "c", {f"s{number}": ">"})
            client.delete(f"s{number}")
    config = Config(dir=str(tmp_path))
    opening.open_node(config).close()
    gc.collect()
    # When it is replayed, then the collector finds nothing
    with collector_off():
        node = opening.open_node(config)
        assert gc.collect() == 0
        node.close()


# --- the collector of an embedded store's host ----------------------------------------------------------


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_an_embedded_store_leaves_the_collector_as_it_found_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enabled: bool, fails: bool
) -> None:
    # Given a host program with settings of its own, and a store to replay
    with headwater.connect(f"headwater://{tmp_path}") as client:
        for number in range(3000):
            client.xadd(f"s{number}", {"a": "b"})
    seen: list[bool] = []

    def applying(*arguments: object) -> None:
        seen.append(gc.isenabled())
        if fails and len(seen) == 10:
            raise ValueError("damaged")
        apply(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(replaying, "apply", applying)
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    if not enabled:
        gc.disable()
    try:
        # When it is opened and used
        if fails:
            with pytest.raises(Exception, match="damaged"):
                headwater.connect(f"headwater://{tmp_path}")
        else:
            with headwater.connect(f"headwater://{tmp_path}") as client:
                client.xadd("s", {"a": "b"})
        # Then the collector did not run in the replay, and is as it was
        assert seen
        assert not any(seen)
        assert gc.isenabled() is enabled
        assert (gc.get_threshold(), gc.get_freeze_count()) == (thresholds, frozen)
    finally:
        gc.enable()


# --- the collector of a server --------------------------------------------------------------------------


def test_a_server_leaves_its_keys_out_of_automatic_collections() -> None:
    found = gc.get_threshold()
    with serving():
        # Given a server: what it had read is frozen, and the oldest generation is not collected by itself
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
        full = gc.get_stats()[2]["collections"]
        # When more objects come than would have made a full collection
        kept = [[number] for number in range(300_000)]
        # Then there was none
        assert gc.get_stats()[2]["collections"] == full
        assert gc.get_stats()[1]["collections"] > 0
        del kept
    assert gc.get_threshold() == found


def test_cycles_of_a_busy_server_are_collected() -> None:
    with serving() as collection:
        # Given a cycle that outlived the young generations
        seen = dead_cycle()
        gc.collect(1)
        # When the server is never idle
        collection.collect_recent()
        # Then it is freed
        assert seen() is None


def test_frozen_cycles_are_collected_when_the_server_is_idle() -> None:
    with serving() as collection:
        # Given a store that takes long to look at, and a cycle in it
        kept = [[number] for number in range(400_000)]
        part = Part()
        part.other = part
        seen = weakref.ref(part)
        collection.collect_recent()
        assert gc.get_freeze_count() > 400_000, "it was not too much to look at"
        del part
        later = time.monotonic() + FULL_INTERVAL_SECONDS
        # When requests come all the time, then it stays, however long
        turns = 0
        for second in range(0, 90_000, 1000):
            turns += 10_000
            assert not collection.check(later + second, turns)
        collection.collect_recent()
        assert seen() is not None
        # When none came for a while, then it is freed
        assert collection.check(later + 100_000, turns)
        assert seen() is None
        # And nothing is looked at again before anything was asked
        assert not collection.check(later + 200_000, turns)
        del kept


def test_a_small_store_is_collected_wholly_although_it_is_busy() -> None:
    with serving(short_seconds=60.0) as collection:  # what this test process takes is short
        # Given a frozen cycle
        seen = dead_cycle()
        gc.freeze()
        now = time.monotonic()
        # When it is not time yet, then it stays
        assert not collection.check(now + FULL_INTERVAL_SECONDS / 2, 10_000)
        assert seen() is not None
        # When it is, then it is freed although requests come
        assert collection.check(now + FULL_INTERVAL_SECONDS * 2, 20_000)
        assert seen() is None


def test_pauses_of_the_collector_are_reported() -> None:
    with server_process("--appendonly", "no", "--latency-monitor-threshold", "1") as server:
        with redis.Redis.from_url(server.url) as client:
            assert client.info("stats")["gc_full_collections"] == 0
            # Given many streams
            for start in range(0, 30_000, 500):
                pipeline = client.pipeline(transaction=False)
                for number in range(start, start + 500):
                    pipeline.xadd(f"s{number}", {"a": "b"})
                pipeline.execute()
            # When all of their objects are looked at
            client.memory_purge()
            # Then it shows, where delays are looked for and in INFO
            assert client.ping()
            events = {event[0]: event for event in client.latency_latest()}
            assert events[b"gc"][3] >= 1
            stats = client.info("stats")
            assert stats["gc_full_collections"] == 1
            assert stats["gc_collections"] > 1
            assert stats["gc_pause_total_usec"] >= stats["gc_pause_max_usec"] >= 1000
            client.config_resetstat()
            assert client.info("stats")["gc_full_collections"] == 0
