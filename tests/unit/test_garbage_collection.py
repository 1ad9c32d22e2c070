"""Python's cyclic collector neither delays a server nor lets its memory grow."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

import headwater
from headwater.common.collector import collector_off
from headwater.config.config import Config
from headwater.journal.format.batches import JournalBatch
from headwater.persistence.applying import Applying
from headwater.server import opening
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
    """An object for weak references and cycles."""

    def __init__(self) -> None:
        self.other: object = None


def dead_cycle() -> weakref.ref[Part]:
    """Create two objects that are only referenced by each other."""
    one, two = Part(), Part()
    one.other, two.other = two, one
    return weakref.ref(one)


@pytest.fixture
def only_new_objects() -> Iterator[None]:
    """Let the collector look at new objects only: this process has millions of older ones."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def unreachable() -> Counter[str]:
    """Free the objects that only the collector can free; returns how many there were of each type."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(type(one).__qualname__ for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()


def all_of_three(found: Callable[[], Counter[str]]) -> Counter[str]:
    """What each of three looks finds."""
    return found() & found() & found()


@contextmanager
def serving(*, short_seconds: float = SHORT_SECONDS) -> Iterator[GarbageCollection]:
    """A collector for a node in this process, with an asyncio loop that is not running."""
    collection = GarbageCollection(short_seconds=short_seconds)

    async def begin() -> None:
        collection.begin()
        collection.serve(Node(config=Config(appendonly=False, save=())).services)

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
@pytest.mark.usefixtures("only_new_objects")
def test_commands_leave_nothing_for_the_cyclic_collector(
    story: Callable[[LocalClient], None],
) -> None:
    # Given a store that has run the commands before, so that everything is loaded
    store = LocalStore(journaled=False)
    client = store.client()
    story(client)
    store.node.tick()
    gc.collect()

    def left() -> Counter[str]:
        # When it runs them twenty times
        for _ in range(20):
            story(client)
            store.node.tick()
        return unreachable()

    with collector_off():
        # Then nothing is left that only the collector could free. What another thread of this process left is
        # found once, what the commands leave each time.
        assert all_of_three(left) == Counter()


@pytest.mark.slow
def test_clients_leave_nothing_for_the_cyclic_collector() -> None:
    def open_objects() -> int:
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
            # When many clients connect and disconnect, some of them while blocked
            before = open_objects()
            for _ in range(20):
                visit()
            while left:
                server.run(all_gone)
            # Then no session and no connection is left
            assert open_objects() == before


@pytest.mark.slow
@pytest.mark.usefixtures("only_new_objects")
def test_a_replay_of_deleted_keys_leaves_no_garbage(tmp_path: Path) -> None:
    # Given a journal of streams with groups, small and large, that were deleted
    with headwater.connect(f"headwater://{tmp_path}") as client:
        for number in range(20):
            client.xgroup_create(f"s{number}", "g", mkstream=True)
            for _ in range(300 if number % 10 == 0 else 3):
                client.xadd(f"s{number}", {"a": "b"})
            client.xreadgroup("g", "c", {f"s{number}": ">"})
            client.delete(f"s{number}")
    config = Config(dir=str(tmp_path))
    opening.open_node(config).close()
    found = []
    # When it is replayed, three times because threads of other tests may leave garbage meanwhile
    for _ in range(3):
        gc.collect()
        with collector_off():
            node = opening.open_node(config)
            found.append(gc.collect())
            node.close()
    # Then the collector finds nothing
    assert min(found) == 0


# --- the collector of an embedded store's program -------------------------------------------------------


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_an_embedded_store_restores_the_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enabled: bool, fails: bool
) -> None:
    # Given a program with its own collector settings, and a store to replay
    with headwater.connect(f"headwater://{tmp_path}") as client:
        for number in range(3000):
            client.xadd(f"s{number}", {"a": "b"})
    seen: list[bool] = []

    apply = Applying.apply

    def watched(applying: Applying, batch: JournalBatch) -> None:
        seen.append(gc.isenabled())
        if fails:
            raise ValueError("damaged")
        apply(applying, batch)

    monkeypatch.setattr(Applying, "apply", watched)
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
        # Then the collector did not run during the replay, and has its previous settings
        assert seen
        assert not any(seen)
        assert gc.isenabled() is enabled
        assert (gc.get_threshold(), gc.get_freeze_count()) == (thresholds, frozen)
    finally:
        gc.enable()


# --- the collector of a server --------------------------------------------------------------------------


def test_a_server_excludes_its_keys_from_automatic_collections() -> None:
    found = gc.get_threshold()
    with serving():
        # Given a server. Its loaded objects are frozen, and the oldest generation is not collected automatically
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
        full = gc.get_stats()[2]["collections"]
        # When more objects are created than would have caused a full collection
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


@pytest.mark.slow
def test_frozen_cycles_are_collected_when_the_server_is_idle() -> None:
    with serving() as collection:
        # Given a store that takes long to collect, and a cycle in it
        kept = [[number] for number in range(400_000)]
        part = Part()
        part.other = part
        seen = weakref.ref(part)
        collection.collect_recent()
        assert gc.get_freeze_count() > 400_000, "collecting it was not slow enough"
        del part
        later = time.monotonic() + FULL_INTERVAL_SECONDS
        # When requests come all the time, then the cycle stays
        turns = 0
        for second in range(0, 90_000, 1000):
            turns += 10_000
            assert not collection.check(later + second, turns)
        collection.collect_recent()
        assert seen() is not None
        # When no requests come for a while, then it is freed
        assert collection.check(later + 100_000, turns)
        assert seen() is None
        # And there is no further collection before the next request
        assert not collection.check(later + 200_000, turns)
        del kept


def test_a_small_store_is_collected_fully_even_if_it_is_busy() -> None:
    with serving(short_seconds=60.0) as collection:  # a collection of this process is short enough
        # Given a frozen cycle
        seen = dead_cycle()
        gc.freeze()
        now = time.monotonic()
        # When the interval is not over, then it stays
        assert not collection.check(now + FULL_INTERVAL_SECONDS / 2, 10_000)
        assert seen() is not None
        # When it is over, then it is freed although requests come
        assert collection.check(now + FULL_INTERVAL_SECONDS * 2, 20_000)
        assert seen() is None


def test_pauses_of_the_collector_are_reported() -> None:
    with server_process(
        "--appendonly", "no", "--save", "", "--latency-monitor-threshold", "1"
    ) as server:
        with redis.Redis.from_url(server.url) as client:
            assert client.info("stats")["gc_full_collections"] == 0
            # Given many streams
            for start in range(0, 30_000, 500):
                pipeline = client.pipeline(transaction=False)
                for number in range(start, start + 500):
                    pipeline.xadd(f"s{number}", {"a": "b"})
                pipeline.execute()
            # When all of their objects are collected
            client.memory_purge()
            # Then LATENCY and INFO show the pause
            assert client.ping()
            events = {event[0]: event for event in client.latency_latest()}
            assert events[b"gc"][3] >= 1
            stats = client.info("stats")
            assert stats["gc_full_collections"] == 1
            assert stats["gc_collections"] > 1
            assert stats["gc_pause_total_usec"] >= stats["gc_pause_max_usec"] >= 1000
            client.config_resetstat()
            assert client.info("stats")["gc_full_collections"] == 0
