"""The examples that Redis documents for XCLAIM, XAUTOCLAIM and XNACK, through the clients that people
have, against a server process of ours.

Sources: the command pages of XCLAIM, XAUTOCLAIM and XNACK.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Literal

import pytest
import redis

from headwater.testing.server import ServerProcess, server_process

HOUR_MS = 3_600_000
FIRST, SECOND = "1526569498055-0", "1526569498056-0"
MOST = 9223372036854775807

Mode = Literal["SILENT", "FAIL", "FATAL"]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with server_process("--appendfsync", "no") as running:
        yield running


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(
        server.url, protocol=request.param, decode_responses=True
    ) as connected:
        connected.flushall()
        yield connected


def rows(client: redis.Redis) -> list[tuple[object, object, int, object]]:
    """XPENDING mystream mygroup - + 10, idle times of owned entries as 0."""
    found = client.xpending_range("mystream", "mygroup", "-", "+", 10)
    return [
        (row["message_id"], row["consumer"], min(int(row["time_since_delivered"]), 0),
         row["times_delivered"])
        for row in found
    ]  # fmt: skip


def two_with_consumer1(client: redis.Redis) -> None:
    client.xadd("mystream", {"message": "apple"}, id=FIRST)
    client.xadd("mystream", {"message": "orange"}, id=SECOND)
    client.xgroup_create("mystream", "mygroup", "0")
    read = client.xreadgroup("mygroup", "consumer1", {"mystream": ">"})
    assert read


def test_xclaim_gives_an_entry_that_was_idle_for_an_hour_to_alice(client: redis.Redis) -> None:
    # Given an entry that consumer1 got and did not acknowledge
    client.xadd("mystream", {"message": "orange"}, id=FIRST)
    client.xgroup_create("mystream", "mygroup", "0")
    client.xreadgroup("mygroup", "consumer1", {"mystream": ">"})
    # Then Alice gets nothing while it is younger than an hour
    assert client.xclaim("mystream", "mygroup", "Alice", HOUR_MS, [FIRST]) == []
    # When it has been pending for more than an hour
    client.xclaim(
        "mystream", "mygroup", "consumer1", 0, [FIRST], idle=HOUR_MS + 1, retrycount=1, justid=True
    )
    # Then it is hers, and was delivered twice
    claimed = client.xclaim("mystream", "mygroup", "Alice", HOUR_MS, [FIRST])
    assert [(found[0], found[1]) for found in claimed] == [(FIRST, {"message": "orange"})]
    assert rows(client) == [(FIRST, "Alice", 0, 2)]
    # And nobody else gets it within the next hour
    assert client.xclaim("mystream", "mygroup", "Bob", HOUR_MS, [FIRST]) == []


def test_xautoclaim_gives_alice_what_was_idle_for_an_hour(client: redis.Redis) -> None:
    # Given an entry that was delivered an hour ago, and one just now
    old, new = "1609338752495-0", "1609338752496-0"
    client.xadd("mystream", {"field": "value"}, id=old)
    client.xadd("mystream", {"field": "other"}, id=new)
    client.xgroup_create("mystream", "mygroup", "0")
    client.xreadgroup("mygroup", "consumer1", {"mystream": ">"})
    client.xclaim("mystream", "mygroup", "consumer1", 0, [old], idle=HOUR_MS, justid=True)
    # When Alice asks for what is idle for an hour
    cursor, claimed, gone = client.xautoclaim(
        "mystream", "mygroup", "Alice", HOUR_MS, "0-0", count=25
    )
    # Then she has the one, and the scan is at its end
    assert cursor == "0-0"
    assert [(found[0], found[1]) for found in claimed] == [(old, {"field": "value"})]
    assert gone == []
    assert rows(client) == [(old, "Alice", 0, 2), (new, "consumer1", 0, 1)]


@pytest.mark.parametrize(
    ("mode", "count"),
    [("SILENT", 0), ("FAIL", 1), ("FATAL", MOST)],
    ids=["SILENT", "FAIL", "FATAL"],
)
def test_xnack_hands_back_two_entries_that_nobody_owns_then(
    client: redis.Redis, mode: Mode, count: int
) -> None:
    # Given two entries that consumer1 has got
    two_with_consumer1(client)
    # When it hands both back
    released = client.xnack("mystream", "mygroup", mode, FIRST, SECOND)
    # Then they are pending without an owner, with the count that the mode says
    assert released == 2
    assert rows(client) == [(FIRST, "", -1, count), (SECOND, "", -1, count)]
    # And whoever claims gets them at once, whatever the idle time asked for
    claimed = client.xclaim("mystream", "mygroup", "Alice", HOUR_MS, [FIRST], justid=True)
    assert claimed == [FIRST]


def test_a_released_entry_is_read_by_the_next_claiming_read(client: redis.Redis) -> None:
    two_with_consumer1(client)
    client.xnack("mystream", "mygroup", "FAIL", SECOND)
    found = client.xreadgroup("mygroup", "Alice", {"mystream": ">"}, claim_min_idle_time=HOUR_MS)
    text = repr(found)
    assert SECOND in text
    assert FIRST not in text


class Cli:
    """redis-cli, one command after the other, printing as on a terminal."""

    def __init__(self, path: str, server: ServerProcess) -> None:
        self.start = [path, "-h", "127.0.0.1", "-p", str(server.port), "--no-raw"]

    def __call__(self, line: str) -> str:
        done = subprocess.run(
            [*self.start, *line.split()], capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout.rstrip("\n")


@pytest.fixture
def cli(redis_cli: str, server: ServerProcess) -> Cli:
    made = Cli(redis_cli, server)
    assert made("FLUSHALL") == "OK"
    for line in (
        f"XADD mystream {FIRST} message apple",
        f"XADD mystream {SECOND} message orange",
        "XGROUP CREATE mystream mygroup 0",
        "XREADGROUP GROUP mygroup consumer1 STREAMS mystream >",
    ):
        assert "error" not in made(line)
    return made


@pytest.mark.peer
@pytest.mark.parametrize(
    ("mode", "count"),
    [("SILENT", 0), ("FAIL", 1), ("FATAL", MOST)],
    ids=["SILENT", "FAIL", "FATAL"],
)
def test_the_example_of_xnack_on_a_terminal(cli: Cli, mode: str, count: int) -> None:
    assert cli(f"XNACK mystream mygroup {mode} IDS 2 {FIRST} {SECOND}") == "(integer) 2"
    assert cli("XPENDING mystream mygroup - + 10").splitlines() == [
        f'1) 1) "{FIRST}"',
        '   2) ""',
        "   3) (integer) -1",
        f"   4) (integer) {count}",
        f'2) 1) "{SECOND}"',
        '   2) ""',
        "   3) (integer) -1",
        f"   4) (integer) {count}",
    ]


@pytest.mark.peer
def test_the_example_of_xclaim_on_a_terminal(cli: Cli) -> None:
    young = cli(f"XCLAIM mystream mygroup Alice {HOUR_MS} {SECOND}")
    assert young == "(empty array)"
    cli(f"XCLAIM mystream mygroup consumer1 0 {SECOND} IDLE {HOUR_MS + 1} RETRYCOUNT 1 JUSTID")
    assert cli(f"XCLAIM mystream mygroup Alice {HOUR_MS} {SECOND}").splitlines() == [
        f'1) 1) "{SECOND}"',
        '   2) 1) "message"',
        '      2) "orange"',
    ]


@pytest.mark.peer
def test_the_example_of_xautoclaim_on_a_terminal(cli: Cli) -> None:
    cli(f"XCLAIM mystream mygroup consumer1 0 {FIRST} IDLE {HOUR_MS + 1} JUSTID")
    assert cli(f"XAUTOCLAIM mystream mygroup Alice {HOUR_MS} 0-0 COUNT 25").splitlines() == [
        '1) "0-0"',
        f'2) 1) 1) "{FIRST}"',
        '      2) 1) "message"',
        '         2) "apple"',
        "3) (empty array)",
    ]
