"""No number of a request overflows: the numeric arguments of all commands, at the ends of types.

Users of redis-py write ``count=sys.maxsize`` for "all of them".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater import connect
from headwater.config.config import SETTINGS
from headwater.rdb.codes import crc64
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Simple
from headwater.testing.server import server_process
from tests.conformance import differences
from tests.conformance.numeric_arguments import (
    EDGES,
    NEAR,
    ONLY_OURS,
    PROBES,
    SCENE,
    UNLIKE,
    Numbers,
    Theirs,
    digests,
    numeric_names,
    small_blocks,
)
from tests.conformance.wire import connected, encode
from tests.peers import Peer

MOST = sys.maxsize
NAMES = numeric_names()
OF_STREAMS = [name for name in NAMES if name.startswith(b"X")]
READS = (
    "XRANGE s 5-1 + COUNT {}",
    "XREVRANGE s + 5-1 COUNT {}",
    "XREAD COUNT {} STREAMS s 4-1",
    "XREAD MAXCOUNT {} STREAMS s 4-1",
    "XREAD COUNT {} MAXCOUNT {} MAXSIZE {} STREAMS s 4-1",
    "XREADGROUP GROUP g a COUNT {} STREAMS s >",
    "XREADGROUP GROUP g a MAXCOUNT {} MAXSIZE {} STREAMS s >",
    "XREADGROUP GROUP g a COUNT {} MAXCOUNT {} MAXSIZE {} STREAMS s >",
)
"""Reads of the 26 entries after 4-1."""


@pytest.fixture(autouse=True)
def _blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch)


def filled(ask: Callable[..., object]) -> None:
    """Add 30 entries, of which the third is deleted, and a group that has read four."""
    for at in range(1, 31):
        ask("XADD", "s", f"{at}-1", "field", "v" * 60)
    ask("XDEL", "s", "3-1")
    ask("XGROUP", "CREATE", "s", "g", "4-1")


@pytest.fixture
def client() -> LocalClient:
    client = LocalStore().client()
    filled(client)
    return client


def entries(read: str, reply: Any) -> list[object]:
    """Return the entries in the reply to a read."""
    return list(reply if read.startswith(("XRANGE", "XREVRANGE")) else reply[0][1])


@pytest.mark.parametrize("below", [0, 1, 5, 200])
@pytest.mark.parametrize("read", READS)
def test_the_greatest_count_returns_all_entries(read: str, below: int, client: LocalClient) -> None:
    # When
    reply = client(*read.format(*[MOST - below] * 3).split())
    # Then
    assert len(entries(read, reply)) == 26


def test_the_greatest_count_of_a_stream_that_is_named_twice_returns_all_entries(
    client: LocalClient,
) -> None:
    # When
    reply: Any = client(*f"XREADGROUP GROUP g a COUNT {MOST} STREAMS s s > 0".split())
    # Then
    assert [len(stream[1]) for stream in reply] == [26, 26]


def test_xinfo_full_with_the_greatest_count_shows_all_entries(client: LocalClient) -> None:
    # Given a deleted first entry, so that no part of a block begins where its entries do
    client("XDEL", "s", "1-1")
    # When
    full: Any = client("XINFO", "STREAM", "s", "FULL", "COUNT", MOST)
    # Then
    assert len(full[full.index(b"entries") + 1]) == 28


def test_maxcount_below_count_is_an_error_for_the_greatest_numbers_too(
    client: LocalClient,
) -> None:
    reply = client(*f"XREAD COUNT {MOST} MAXCOUNT {MOST - 1} STREAMS s 4-1".split())
    assert reply == Failure(b"ERR MAXCOUNT must be greater than or equal to COUNT")


def test_a_server_survives_the_greatest_numbers() -> None:
    with (
        server_process() as server,
        connected(server.port) as wire,
        connected(server.port) as waiting,
    ):
        # Given
        filled(lambda *words: wire.ask(*map(str, words)))
        # When
        for read in READS:
            wire.ask(*read.format(*[MOST] * 3).split())
        claim = f"XREADGROUP GROUP g a CLAIM {MOST} BLOCK 0 STREAMS s >"
        waiting.socket.sendall(encode(*claim.split()))
        settled = wire.ask(*f"XSETTLE s g a FAIL DELAY {MOST} IDS 1 5-1".split())
        # Then
        assert settled == b"*2\r\n*1\r\n:1\r\n*0\r\n"
        assert wire.ask("PING") == b"+PONG\r\n"


def test_an_entry_with_the_greatest_delay_stays_delayed(client: LocalClient) -> None:
    # Given
    client("XREADGROUP", "GROUP", "g", "a", "COUNT", 1, "STREAMS", "s", ">")
    # When
    client(*f"XSETTLE s g a FAIL DELAY {MOST} IDS 1 5-1".split())
    # Then it is due in some hundred million years
    delayed: Any = client("XDELAYED", "s", "g")
    assert delayed == [[b"5-1", 2**62, 1]]


def test_an_embedded_store_takes_sys_maxsize_as_a_count() -> None:
    with connect("headwater://memory") as store:
        # Given
        filled(store.execute_command)
        # When
        found = store.xread({"s": "4-1"}, count=sys.maxsize)
        given = store.xreadgroup("g", "a", {"s": ">"}, count=sys.maxsize)
        # Then
        assert [len(reply[0][1]) for reply in (found, given)] == [26, 26]
        assert store.xpending_range("s", "g", "-", "+", sys.maxsize)[25]["times_delivered"] == 1


def test_a_reader_may_wait_for_an_entry_that_a_payload_delivers_in_the_distant_future() -> None:
    # Given a stream whose times a client has replaced in its payload
    store = LocalStore()
    client = store.client()
    filled(client)
    client("XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">")
    dumped = client("DUMP", "s")
    assert isinstance(dumped, bytes)
    now = store.clock.now_ms().to_bytes(8, "little")
    changed = bytearray(dumped[:-8].replace(now, MOST.to_bytes(8, "little")))
    assert changed != dumped[:-8]
    changed += crc64(changed, 0, len(changed)).to_bytes(8, "little")
    assert client("RESTORE", "s", 0, bytes(changed), "REPLACE") == Simple(b"OK")
    # When
    client.send("XREADGROUP", "GROUP", "g", "a", "CLAIM", MOST, "BLOCK", 0, "STREAMS", "s", ">")
    # Then
    assert client.session.blocked
    store.node.tick()
    assert store.node.next_deadline() is not None
    assert not any(isinstance(store.client()(*words), Failure) for words in PROBES)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_STREAMS, ids=bytes.decode)
def test_no_number_of_a_command_for_streams_overflows(name: bytes) -> None:
    # When its numbers are replaced by those nearest to 2**63 and others
    run = Numbers((0,), edges=EDGES[::6], most=4)
    run.command(name)
    # Then
    assert [str(failure) for failure in run.failures] == []
    assert run.requests


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_compiled_and_plain_reply_the_same_to_any_number() -> None:
    # Given what plain Python replies
    comparable = [name.decode() for name in NAMES if name not in UNLIKE | ONLY_OURS]
    command = [sys.executable, "-m", "tests.conformance.numeric_arguments", *comparable]
    environment = {**os.environ, "HEADWATER_PURE": "1"}
    plain = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    # Then this build, which is compiled if there is a compiler, replies the same
    found = json.loads(plain.stdout)
    for name in comparable:
        assert digests(name.encode()) == found[name], name


@pytest.fixture
def theirs(shared_peer: Callable[[str], Peer]) -> Iterator[Theirs]:
    theirs = Theirs(shared_peer("redis-8.2"))
    yield theirs
    theirs.close()


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("name", NAMES, ids=bytes.decode)
def test_numbers_at_the_ends_of_types_have_the_replies_of_redis(
    name: bytes, theirs: Theirs
) -> None:
    agree(name, Numbers((0, 1, 200), theirs, most=3))


@pytest.mark.slice
@pytest.mark.peer
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", NAMES, ids=bytes.decode)
def test_numbers_up_to_200_below_the_greatest_have_the_replies_of_redis(
    name: bytes, theirs: Theirs
) -> None:
    agree(name, Numbers(NEAR, theirs))


def agree(name: bytes, run: Numbers) -> None:
    """Compare a command. Each of its known differences must differ."""
    run.command(name)
    assert [str(failure) for failure in run.failures[:20]] == []
    wanted = {one for one in differences.NUMBERS if one.split()[0] == name.decode()}
    assert wanted <= run.differences.keys()


@pytest.mark.parametrize("value", [MOST, 2**62, 2**53, 2**32, 2**31, 0, -1])
def test_no_number_of_a_setting_stops_the_store(value: int) -> None:
    # Given every setting that is a number
    store = LocalStore()
    client = store.client()
    settings: dict[str, Any] = {name: client("CONFIG", "GET", name) for name in SETTINGS}
    numbers = {name: found[1] for name, found in settings.items() if found[1].isdigit()}
    assert len(numbers) > 20
    for name, before in numbers.items():
        # When
        client("CONFIG", "SET", name, value)
        replies = [client(*words) for words in SCENE]
        store.node.tick()
        # Then
        assert not any(b"internal" in one.text for one in replies if isinstance(one, Failure))
        client("CONFIG", "SET", name, before)
