"""Many threads and loops use one store in this process; whoever waits is served, in time, or told."""

from __future__ import annotations

import asyncio
import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis
from redis._parsers import _RESP2Parser, _RESP3Parser

import headwater
from headwater.client.connect import node_of
from headwater.clock import SystemClock
from headwater.errors import ConfigError, NodePoisoned
from headwater.server.config import Config
from headwater.server.node import Node
from headwater.server.opening import open_node
from headwater.server.session import Session
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from tests.clients.faces import entries, until

_names = (f"headwater://memory/threads-{number}" for number in itertools.count())


@pytest.fixture
def url() -> str:
    return next(_names)


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with headwater.connect(url, decode_responses=True) as client:
        yield client


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Future[Any]]]:
    """Calls a function in a thread of its own."""
    with ThreadPoolExecutor(16) as threads:
        yield threads.submit


async def blocked(client: Any, count: int = 1) -> None:
    await until(lambda: node_of(client).waiting.count == count)


# --- in real time -----------------------------------------------------------------------------------


def test_block_times_out_by_itself(client: redis.Redis) -> None:
    assert not client.xread({"orders": "$"}, block=20)


async def test_block_times_out_by_itself_in_asyncio(url: str) -> None:
    async with headwater.aio.connect(url) as client:
        assert not await client.xread({"orders": "$"}, block=20)


async def test_a_later_and_shorter_wait_ends_first(
    client: redis.Redis, elsewhere: Callable[..., Future[Any]]
) -> None:
    # Given a thread that waits for a minute
    longer = elsewhere(client.xread, {"orders": "$"}, block=60_000)
    await blocked(client)
    # When another waits for less, then it is answered while the first still waits
    assert not client.xread({"bills": "$"}, block=20)
    assert not longer.done()
    client.xadd("orders", {"item": "tea"})
    assert longer.result(10)


async def test_what_becomes_due_while_all_wait_for_ever_is_done(
    client: redis.Redis, elsewhere: Callable[..., Future[Any]]
) -> None:
    # Given a thread that waits for a released entry, without a deadline of its own
    client.xgroup_create("orders", "ops", id="0", mkstream=True)
    entry_id = client.xadd("orders", {"item": "tea"})
    client.xreadgroup("ops", "bill", {"orders": ">"})
    read = "XREADGROUP GROUP ops anna BLOCK 0 CLAIM 3600000 STREAMS orders >"
    waiting = elsewhere(client.execute_command, *read.split(" "))
    await blocked(client)
    # When the entry's owner puts it off for a moment and nobody does anything more
    settle = "XSETTLE orders ops bill FAIL DELAY 30 IDS 1"
    client.execute_command(*settle.split(" "), entry_id)
    # Then the thread has it when the moment is over
    assert str(entry_id) in str(waiting.result(10))


async def test_threads_and_loops_wake_each_other(
    url: str, client: redis.Redis, elsewhere: Callable[..., Future[Any]]
) -> None:
    async with headwater.aio.connect(url, decode_responses=True) as other:
        # A thread waits, the loop adds
        in_thread = elsewhere(client.xread, {"orders": "$"}, block=0)
        await blocked(client)
        await other.xadd("orders", {"n": 1})
        assert in_thread.result(10)
        # The loop waits, a thread adds
        in_loop = asyncio.ensure_future(other.xread({"orders": "$"}, block=0))
        await blocked(client)
        elsewhere(client.xadd, "orders", {"n": 2}).result(10)
        assert await in_loop
        # The loop waits for a while only, and a thread's turn does not keep it longer
        timed = asyncio.ensure_future(other.xread({"orders": "$"}, block=30))
        await blocked(client)
        elsewhere(client.xread, {"bills": "$"}, block=1).result(10)
        assert not await timed


async def test_two_loops_use_one_store(
    url: str, client: redis.Redis, elsewhere: Callable[..., Future[Any]]
) -> None:
    # Given another loop, in another thread, that waits
    async def wait() -> Any:
        async with headwater.aio.connect(url, decode_responses=True) as other:
            first = await other.xread({"bills": "$"}, block=10)
            await other.set("first", "over")
            return first, await other.xread({"orders": "$"}, block=0)

    waiting = elsewhere(asyncio.run, wait())
    await until(lambda: client.exists("first") == 1)
    await blocked(client)
    # When this one adds, then that one is served
    async with headwater.aio.connect(url) as mine:
        await mine.xadd("orders", {"item": "tea"})
    first, second = waiting.result(10)
    assert (bool(first), bool(second)) == (False, True)


def test_a_loop_that_is_gone_leaves_the_store_to_others(url: str, client: redis.Redis) -> None:
    # Given a loop that ended without closing its client
    forgotten: list[Any] = []

    async def forget() -> None:
        other = headwater.aio.connect(url)
        await other.ping()
        forgotten.append(other)

    asyncio.run(forget())
    # When others wait and add, then they are served
    assert not client.xread({"orders": "$"}, block=10)
    assert client.xadd("orders", {"item": "tea"})
    with pytest.warns(ResourceWarning, match="unclosed"):
        forgotten.clear()


def test_many_threads_lose_nothing(client: redis.Redis) -> None:
    # Given eight threads that add, in pipelines and by themselves, and three that consume
    client.xgroup_create("orders", "ops", id="0", mkstream=True)
    done = threading.Event()
    seen: list[str] = []

    def produce(number: int) -> None:
        for step in range(40):
            if step % 2:
                client.xadd("orders", {"n": f"{number}-{step}"})
            else:
                pipeline = client.pipeline(transaction=step % 4 == 0)
                pipeline.xadd("orders", {"n": f"{number}-{step}"})
                pipeline.xlen("orders")
                pipeline.execute()

    def consume(name: str) -> None:
        while True:
            last = done.is_set()
            reply: Any = client.xreadgroup("ops", name, {"orders": ">"}, block=20)
            for _stream, items in entries(reply):
                for entry_id, fields in items:
                    seen.append(fields["n"])
                    client.xack("orders", "ops", entry_id)
            if last:
                return

    consumers = [threading.Thread(target=consume, args=(f"c{n}",)) for n in range(3)]
    producers = [threading.Thread(target=produce, args=(n,)) for n in range(8)]
    for thread in (*consumers, *producers):
        thread.start()
    for thread in producers:
        thread.join()
    done.set()
    for thread in consumers:
        thread.join()
    # Then each entry was consumed once
    assert sorted(seen) == sorted(f"{number}-{step}" for number in range(8) for step in range(40))
    assert client.xpending("orders", "ops")["pending"] == 0


# --- ends -------------------------------------------------------------------------------------------


async def test_a_thread_that_waits_is_told_when_its_client_is_closed(
    url: str, client: redis.Redis, elsewhere: Callable[..., Future[Any]]
) -> None:
    other = headwater.connect(url)
    client.xgroup_create("orders", "ops", id="0", mkstream=True)
    waiting = elsewhere(other.xreadgroup, "ops", "bill", {"orders": ">"}, block=0)
    await blocked(client)
    other.close()
    with pytest.raises(redis.ConnectionError, match="XREADGROUP had been sent"):
        waiting.result(10)
    assert node_of(client).waiting.count == 0


async def test_a_cancelled_call_leaves_no_answer_behind(url: str) -> None:
    async with headwater.aio.connect(url, decode_responses=True, max_connections=1) as client:
        await client.xadd("orders", {"n": 0})
        # Given a call that is cancelled while it waits
        waiting = asyncio.ensure_future(client.xread({"orders": "$"}, block=0))
        await blocked(client)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # Then the store does not wait for it any more
        assert node_of(client).waiting.count == 0
        # Then what it would have been answered reaches no other call of that connection
        await client.xadd("orders", {"n": 1})
        assert await client.xlen("orders") == 2
        assert await client.echo("mine") == "mine"


async def test_a_call_that_takes_too_long_for_its_caller_leaves_no_answer_behind(url: str) -> None:
    async with headwater.aio.connect(url, decode_responses=True, max_connections=1) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.xread({"orders": "$"}, block=0), 0.01)
        await client.xadd("orders", {"n": 1})
        assert await client.echo("mine") == "mine"


async def test_a_killed_connection_is_told_and_replaced(
    url: str, client: redis.Redis, elsewhere: Callable[..., Future[Any]]
) -> None:
    other = headwater.connect(url)
    other.xgroup_create("orders", "ops", id="0", mkstream=True)
    waiting = elsewhere(client.xreadgroup, "ops", "bill", {"orders": ">"}, block=0)
    await blocked(client)
    (target,) = (entry["id"] for entry in other.client_list() if entry["cmd"] == "xreadgroup")
    other.client_kill_filter(_id=target)
    with pytest.raises(redis.ConnectionError, match="XREADGROUP had been sent"):
        waiting.result(10)
    assert client.ping()
    other.close()


def test_malformed_input_is_answered_and_ends_the_connection(client: redis.Redis) -> None:
    connection = client.connection_pool.get_connection()
    connection.send_packed_command([b"*1\r\n!nonsense\r\n"])
    with pytest.raises(redis.ResponseError, match="Protocol error"):
        connection.read_response()
    with pytest.raises(redis.ConnectionError, match="closed"):
        connection.read_response()
    client.connection_pool.release(connection)
    assert client.ping()


# --- turns that are broken off ----------------------------------------------------------------------


class Interrupting(SystemClock):
    """Presses Ctrl-C when a command asks for the time."""

    armed = False

    def now_ms(self) -> int:
        if self.armed:
            self.armed = False
            signal.raise_signal(signal.SIGINT)
        return super().now_ms()


def test_ctrl_c_waits_for_the_end_of_the_turn() -> None:
    clock = Interrupting()
    with headwater.connect("headwater://memory", clock=clock) as client:
        client.ping()
        clock.armed = True
        with pytest.raises(KeyboardInterrupt):
            client.xadd("orders", {"item": "tea"})
        # The command had begun, so it has run, and the store is whole
        assert client.xlen("orders") == 1
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_store_whose_turn_is_broken_off_is_given_up() -> None:
    # Given a handler that raises in the middle of a command
    def handler(_number: int, _frame: object) -> None:
        raise RuntimeError("stop")

    clock = Interrupting()
    before = signal.signal(signal.SIGINT, handler)
    try:
        with headwater.connect("headwater://memory", clock=clock) as client:
            client.xadd("orders", {"item": "tea"})
            clock.armed = True
            with pytest.raises(RuntimeError, match="stop"):
                client.xadd("orders", {"item": "milk"})
            # Then the store says that it cannot be read any more
            with pytest.raises(redis.ResponseError, match="MISCONF a turn was broken off"):
                client.xlen("orders")
            assert isinstance(node_of(client).poisoned, NodePoisoned)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_disk_that_fails_is_told_as_a_server_would() -> None:
    # Given a store whose next fsync fails
    files = CrashableFiles()
    node = open_node(Config(appendfsync="always"), files=files)
    with headwater.connect(node=node) as client:
        client.xadd("orders", {"item": "tea"})
        files.fail("sync")
        # When an entry is added, then there is no answer, and it is not added again
        with pytest.raises(redis.ConnectionError, match="XADD had been sent and may have run"):
            client.xadd("orders", {"item": "milk"})
        # Then nothing is read from that state
        with pytest.raises(redis.ResponseError, match=r"MISCONF .* could not be written"):
            client.xlen("orders")
    node.close()


async def test_whoever_waits_is_told_when_the_store_is_given_up(
    client: redis.Redis, elsewhere: Callable[..., Future[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = elsewhere(client.xread, {"orders": "$"}, block=0)
    await blocked(client)
    node = node_of(client)

    def fail(_session: Session) -> None:
        raise MemoryError

    monkeypatch.setattr(node, "_drain", fail)
    with pytest.raises(MemoryError):
        client.xadd("bills", {"n": 1})
    monkeypatch.undo()
    with pytest.raises(redis.ResponseError, match="MISCONF a turn was broken off by MemoryError"):
        waiting.result(10)


def test_a_client_that_is_forgotten_within_a_turn_is_closed_after_it(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a client whose last reference goes in the middle of another's turn
    forgotten = [headwater.connect("headwater://memory")]
    session = node_of(forgotten[0]).connect(kind="tcp", address="", on_output=lambda _: None)
    forgotten[0].ping()
    during: list[int] = []
    sessions = node_of(forgotten[0]).sessions
    node = node_of(client)
    drain = node._drain

    def drain_and_forget(session: Session) -> None:
        forgotten.clear()
        during.append(len(sessions))
        drain(session)

    client.ping()
    monkeypatch.setattr(node, "_drain", drain_and_forget)
    client.ping()
    # Then its session was still there within the turn, and is not after it
    assert during == [2]
    assert list(sessions) == [session.id]


# --- the node and its clock -------------------------------------------------------------------------


def test_a_node_of_ones_own_is_used_and_left_open() -> None:
    clock = ManualClock()
    node = Node(clock=clock)
    with headwater.connect(node=node) as client:
        assert node_of(client) is node
        client.xadd("orders", {"item": "tea"})
    with headwater.connect(node=node) as client:
        assert client.xlen("orders") == 1


async def test_a_node_of_ones_own_is_shared_by_sync_and_asyncio_with_its_clock(
    elsewhere: Callable[..., Future[Any]],
) -> None:
    clock = ManualClock()
    node = Node(clock=clock)
    async with headwater.aio.connect(node=node) as client:
        with headwater.connect(node=node) as other:
            waiting = asyncio.ensure_future(client.xread({"orders": "$"}, block=60_000))
            in_thread = elsewhere(other.xread, {"orders": "$"}, block=61_000)
            await blocked(client, 2)
            clock.advance(60)
            assert not await waiting
            assert not in_thread.done()
            clock.advance(1)
            assert not in_thread.result(10)


@pytest.mark.parametrize("module", [headwater, headwater.aio])
def test_a_node_comes_without_url_and_clock(module: Any) -> None:
    for options in ({"clock": ManualClock()}, {"url": "headwater://memory"}):
        with pytest.raises(ConfigError, match="neither url nor clock"):
            module.connect(node=Node(), **options)
    with pytest.raises(ConfigError, match="names a server"):
        module.connect("redis://localhost", clock=ManualClock())


def test_only_a_store_in_this_process_has_a_node() -> None:
    with (
        headwater.connect("redis://127.0.0.1:1") as client,
        pytest.raises(ConfigError, match="only a store in this process has a node"),
    ):
        node_of(client)


# --- what redis-py does with a socket ---------------------------------------------------------------


@pytest.mark.parametrize(("parser", "protocol"), [(_RESP2Parser, 2), (_RESP3Parser, 3)])
def test_parsers_without_hiredis_work(url: str, parser: Any, protocol: int) -> None:
    with headwater.connect(url, parser_class=parser, protocol=protocol) as client:
        client.xadd("orders", {"scan": b"x" * 200_000}, id="1-1")
        assert client.xrange("orders") == [(b"1-1", {b"scan": b"x" * 200_000})]
        assert not client.xread({"orders": "$"}, block=5)


async def test_parsers_without_hiredis_work_in_asyncio(url: str) -> None:
    from redis._parsers import _AsyncRESP3Parser

    async with headwater.aio.connect(url, parser_class=_AsyncRESP3Parser) as client:
        await client.xadd("orders", {"scan": b"x" * 200_000}, id="1-1")
        assert await client.xrange("orders") == [(b"1-1", {b"scan": b"x" * 200_000})]


def test_a_time_limit_of_the_caller_is_kept(url: str) -> None:
    with headwater.connect(url, socket_timeout=0.01) as client:
        connection = client.connection_pool.get_connection()
        assert connection.can_read(timeout=0) is False
        assert connection.can_read(timeout=0.01) is False
        with pytest.raises(redis.TimeoutError):
            connection.read_response()
        client.connection_pool.release(connection)
        # BLOCK is waited for beyond it
        assert not client.xread({"orders": "$"}, block=50)


def test_an_unread_answer_is_noticed_before_the_connection_is_used_again(url: str) -> None:
    with headwater.connect(url, max_connections=1) as client:
        connection = client.connection_pool.get_connection()
        connection.send_command("ECHO", "stale")
        client.connection_pool.release(connection)
        assert client.echo("fresh") == b"fresh"
