"""While the journal is replayed, the server answers LOADING and nothing can be written.

The tests run the steps of the replay one by one, so that "while" is not a matter of time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from headwater.commands.table import COMMANDS, Command
from headwater.config.config import Config
from headwater.errors import JournalDamaged
from headwater.server.opening import Opening, open_node
from headwater.server.running import Server
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from headwater.testing.node import request
from tests.conformance.wire import encode, exchange
from tests.crash.journal_tools import FIRST, bytes_of, copied
from tests.peers import PeerMissing, running

ENTRIES = 2_000
"""More than the replay applies in a step."""

LOADING = b"-LOADING Headwater is loading the dataset in memory\r\n"


def filled(clock: ManualClock | None = None) -> CrashableFiles:
    """Return a journal of `ENTRIES` entries in the stream ``s``."""
    return _filled(clock) if clock is not None else copied(_filled_once())


@cache
def _filled_once() -> CrashableFiles:
    return _filled(None)


def _filled(clock: ManualClock | None) -> CrashableFiles:
    files = CrashableFiles()
    node = open_node(Config(), clock=clock, files=files)
    session = node.connect(kind="tcp", address="test")
    for number in range(1, ENTRIES + 1):
        node.exchange(session, request(("XADD", "s", f"{number}-1", "n", number)))
    node.close()
    return files


class Loading:
    """A node between two steps of its replay, with one client."""

    def __init__(self, files: CrashableFiles, clock: ManualClock | None = None) -> None:
        self.files = files
        self.opening = Opening(Config(enable_debug_command="yes"), clock=clock, files=files)
        self.node = self.opening.node
        self.session = self.node.connect(kind="tcp", address="test")
        self.steps = self.opening.steps()
        next(self.steps)

    def __call__(self, *words: bytes | str | int) -> bytes:
        return self.node.exchange(self.session, request(words))

    def finish(self) -> None:
        for _ in self.steps:
            pass


@pytest.fixture
def loading() -> Iterator[Loading]:
    made = Loading(filled())
    yield made
    made.steps.close()
    made.opening.abandon()
    made.node.close()


def every_command() -> Iterator[Command]:
    for command in COMMANDS.values():
        if command.subcommands:
            yield from command.subcommands.values()
        else:
            yield command


def test_no_command_that_runs_while_loading_can_write() -> None:
    allowed = [command for command in every_command() if "loading" in command.flags]
    assert allowed
    assert not [one.name for one in allowed if one.writes]


def test_each_command_without_the_flag_is_refused_and_writes_nothing(loading: Loading) -> None:
    # Given a node whose journal is being replayed, and the content of the journal
    before = bytes_of(loading.files)
    refused = [command for command in every_command() if "loading" not in command.flags]
    assert len(refused) > 100
    # When each of the other commands is sent, with as many arguments as it needs
    for command in refused:
        names = command.name.split("|")
        arguments = ["1"] * max(0, abs(command.arity) - len(names))
        # Then it is refused
        assert loading(*names, *arguments) == LOADING, command.name
    # And nothing was written, in memory or on disk
    assert not loading.node.records.facts.data
    assert not any(database.values for database in loading.node.keyspace.databases)
    assert bytes_of(loading.files) == before


def test_commands_on_the_session_run_while_loading(loading: Loading) -> None:
    assert loading("SELECT", 3) == b"+OK\r\n"
    assert loading("ECHO", "tea") == b"$3\r\ntea\r\n"
    assert loading("CLIENT", "SETNAME", "n") == b"+OK\r\n"
    assert loading("CONFIG", "GET", "appendonly").endswith(b"$3\r\nyes\r\n")
    assert loading("HELLO", 2).startswith(b"*18\r\n$6\r\nserver")
    assert loading("SUBSCRIBE", "c").startswith(b"*3\r\n$9\r\nsubscribe")
    assert loading("XADD", "s", "*", "a", "b").startswith(b"-ERR Can't execute 'xadd'")


def test_a_transaction_fails_while_loading(loading: Loading) -> None:
    # Given MULTI, which may run, and a command that may not
    assert loading("MULTI") == b"+OK\r\n"
    assert loading("XADD", "s", "*", "a", "b") == LOADING
    # When the transaction is executed, then it is discarded
    assert loading("EXEC") == b"-EXECABORT Transaction discarded because of previous errors.\r\n"
    assert loading("EXEC") == b"-ERR EXEC without MULTI\r\n"


def test_debug_reload_is_refused_while_loading(loading: Loading) -> None:
    assert loading("DEBUG", "RELOAD") == LOADING


def test_info_shows_the_progress_while_loading() -> None:
    # Given a replay that began three seconds ago
    clock = ManualClock()
    loading = Loading(filled(clock), clock)
    clock.advance(3)
    # When INFO is asked for
    fields = info_of(loading)
    # Then it has Redis's fields
    assert (fields["loading"], fields["async_loading"]) == ("1", "0")
    assert int(fields["loading_start_time"]) == clock.now_ms() // 1000 - 3
    total, loaded = int(fields["loading_total_bytes"]), int(fields["loading_loaded_bytes"])
    assert 0 < loaded < total
    assert fields["loading_loaded_perc"] == f"{100 * loaded / total:.2f}"
    assert int(fields["loading_eta_seconds"]) == 3 * (total - loaded) // (loaded + 1)
    assert fields["loading_rdb_used_mem"] == "0"
    assert fields["aof_enabled"] == "1"
    # And afterwards only that nothing is being loaded
    loading.finish()
    after = info_of(loading)
    assert [name for name in after if "loading" in name] == ["loading", "async_loading"]
    assert (after["loading"], after["aof_enabled"]) == ("0", "1")
    loading.node.close()


def info_of(loading: Loading) -> dict[str, str]:
    text = loading("INFO", "persistence").decode()
    lines = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


def test_a_session_from_before_the_end_writes_durably_after_it(loading: Loading) -> None:
    # Given a client that was connected while the node was loading
    assert loading("XLEN", "s") == LOADING
    # When loading ends
    loading.finish()
    # Then it finds all entries
    assert loading("XLEN", "s") == b":%d\r\n" % ENTRIES
    # And what it writes is in the journal
    assert loading("XADD", "s", "9999-1", "a", "b") == b"$6\r\n9999-1\r\n"
    loading.node.close()
    again = open_node(Config(), files=loading.files)
    session = again.connect(kind="tcp", address="test")
    assert again.exchange(session, request(("XLEN", "s"))) == b":%d\r\n" % (ENTRIES + 1)
    again.close()


@pytest.mark.slow
def test_a_session_from_before_the_end_is_refused_writes_on_a_full_disk(loading: Loading) -> None:
    loading.finish()
    loading.files.capacity = loading.files.used_bytes()
    value = b"x" * 200_000_000  # more than the journal has allocated
    assert loading("SET", "k", value).startswith(b"-MISCONF ")
    assert loading("EXISTS", "k") == b":0\r\n"


def test_a_key_that_was_watched_while_loading_counts_as_modified(loading: Loading) -> None:
    assert loading("WATCH", "s") == b"+OK\r\n"
    loading.finish()
    assert loading("MULTI") == b"+OK\r\n"
    assert loading("PING") == b"+QUEUED\r\n"
    assert loading("EXEC") == b"*-1\r\n"


def test_settings_changed_while_loading_are_in_force_after_it(loading: Loading) -> None:
    settings = {"appendfsync": "always", "stream-hot-bytes": "65536"}
    for name, value in settings.items():
        assert loading("CONFIG", "SET", name, value) == b"+OK\r\n"
    loading.finish()
    assert loading.node.journal is not None
    assert loading.node.journal.policy == "always"
    assert loading("WAITAOF", 1, 0, 0) == b"*2\r\n:1\r\n:0\r\n"


def test_steady_time_continues_at_the_last_record_and_uptime_is_not_affected() -> None:
    # Given a journal whose last record is an hour ahead of the wall clock
    late, clock = ManualClock(), ManualClock()
    late.advance(3600)
    loading = Loading(filled(late), clock)
    # When it is loaded in five seconds
    clock.advance(5)
    loading.finish()
    # Then steady time is after the record, and the wall clock and the uptime are what they were
    node = loading.node
    assert node.times.now() == late.now_ms()
    assert node.services.times.wall_now() == clock.now_ms()
    assert node.keyspace.opened_ms == node.times.now()
    assert b"\r\nuptime_in_seconds:3595\r\n" not in loading("INFO", "server")
    assert b"\r\nuptime_in_seconds:5\r\n" in loading("INFO", "server")
    node.close()


def test_an_abandoned_replay_leaves_the_files_unchanged_and_unlocked(loading: Loading) -> None:
    before = bytes_of(loading.files)
    loading.steps.close()
    loading.opening.abandon()
    loading.node.close()
    assert bytes_of(loading.files) == before
    loading = Loading(loading.files)
    loading.finish()
    assert loading("XLEN", "s") == b":%d\r\n" % ENTRIES
    loading.node.close()


# --- over sockets -------------------------------------------------------------------------------------


def while_loading(
    files: CrashableFiles, do: Callable[[Server, redis.asyncio.Redis], Awaitable[None]]
) -> bool:
    """Start a server with ``files``, run one step of its replay, then ``do`` with a client, then the
    other steps. Return whether the server was ready; it is stopped, with status 0."""

    async def run() -> bool:
        server = Server(Config(port=0), files=files)
        server.start()
        steps = server.load().__await__()
        next(steps)
        client = redis.asyncio.Redis(port=server.config.port, retry=Retry(NoBackoff(), 0))
        try:
            await do(server, client)
            is_ready = await _rest(steps)
            if is_ready:
                assert await client.ping()
        finally:
            await client.aclose()
            status = server.stop()
        assert status == 0
        return is_ready

    return asyncio.run(run())


async def _rest(steps: Any) -> bool:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: bool = end.value
            return found
        await asyncio.sleep(0)


def test_redis_py_raises_busy_loading_until_the_server_is_ready() -> None:
    async def check(server: Server, client: redis.asyncio.Redis) -> None:
        for call in (client.ping(), client.xlen("s"), client.xadd("s", {"a": "b"})):
            with pytest.raises(redis.BusyLoadingError, match="Headwater is loading"):
                await call
        info: Any = await client.info("persistence")
        assert info["loading"] == 1

    assert while_loading(filled(), check)


def test_shutdown_while_loading_stops_the_server_and_changes_no_file() -> None:
    files = filled()
    before = bytes_of(files)

    async def shut_down(server: Server, client: redis.asyncio.Redis) -> None:
        with pytest.raises(redis.ConnectionError):
            await client.execute_command("SHUTDOWN", "NOSAVE")

    assert not while_loading(files, shut_down)
    assert bytes_of(files) == before


def test_damage_that_is_found_while_clients_are_served_ends_the_server() -> None:
    # Given damage in the middle of a journal
    files = filled()
    content = bytes(files.content(FIRST).data)
    middle = content.index(b"\0" * 4096) // 2
    files.corrupt(FIRST, middle, bytes([content[middle] ^ 1]))
    before = bytes_of(files)

    async def ask(server: Server, client: redis.asyncio.Redis) -> None:
        with pytest.raises(redis.BusyLoadingError):
            await client.ping()

    # When the server loads it, then it stops with the file and the offset
    with pytest.raises(JournalDamaged, match=rf"{FIRST} is damaged at offset \d+"):
        while_loading(files, ask)
    # And nothing was changed, and the directory is unlocked
    assert bytes_of(files) == before
    files.lock()


# --- as Redis -----------------------------------------------------------------------------------------

ASKED: list[list[tuple[str, ...]]] = [
    [("PING",)],
    [("GET", "k")],
    [("XADD", "s", "*", "a", "b")],
    [("DBSIZE",)],
    [("SCRIPT", "LOAD", "return 1")],
    [("EVAL", "return 1", "0")],
    [("XADD",)],
    [("NONSENSE",)],
    [("ECHO", "tea")],
    [("SELECT", "1")],
    [("CLIENT", "SETNAME", "n")],
    [("PUBLISH", "c", "m")],
    [("MULTI",), ("PING",), ("EXEC",)],
    [("MULTI",), ("PUBLISH", "c", "m"), ("EXEC",)],
    [("MULTI",), ("ECHO", "tea"), ("GET", "k"), ("ECHO", "tea"), ("EXEC",)],
    [("WATCH", "k"), ("UNWATCH",)],
    [("EXEC",)],
    [("MONITOR",), ("GET", "k")],
    [("SUBSCRIBE", "c"), ("GET", "k"), ("PING",)],
]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["redis-7.0", "redis-8.2", "valkey-9.1"])
def test_the_replies_while_loading_are_those_of(name: str) -> None:
    # Given a peer that loads its keys slowly
    try:
        with running(name, "--enable-debug-command", "yes") as peer:
            theirs = replies_of_a_loading_peer(peer.port)
    except PeerMissing as missing:
        pytest.skip(str(missing))
    # When the same requests are sent to both, then the replies differ in the product's name only
    ours, files = [], filled()
    for requests in ASKED:
        loading = Loading(files)
        ours.append(b"".join(loading(*words) for words in requests))
        loading.steps.close()
        loading.opening.abandon()
    product = b"Valkey" if name.startswith("valkey") else b"Redis"
    assert ours == [each.replace(product, b"Headwater") for each in theirs]


def replies_of_a_loading_peer(port: int) -> list[bytes]:
    """Return the replies to `ASKED`. The peer replays its keys until the end of the test."""
    with redis.Redis(port=port) as client:
        for number in range(2000):
            client.set(f"k{number}", "x" * 2000)
        client.config_set("rdbcompression", "no")
        client.config_set("loading-process-events-interval-bytes", 1024)
        client.config_set("key-load-delay", 5_000)
        reload = threading.Thread(target=_reload, args=(port,))
        reload.start()
        while client.info("persistence")["loading"] != 1:
            assert reload.is_alive(), "the peer has loaded its keys too soon"
        try:
            return [exchange(port, b"".join(map(encode_words, each))) for each in ASKED]
        finally:
            client.config_set("key-load-delay", 0)
            reload.join()


def encode_words(words: tuple[str, ...]) -> bytes:
    return encode(*words)


def _reload(port: int) -> None:
    with redis.Redis(port=port) as client:
        client.execute_command("DEBUG", "RELOAD")
