"""A real server whose wall clock is set. A preloaded library adds an offset, which is read from a
file, to CLOCK_REALTIME. No other clock is affected."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from headwater.testing.server import ServerProcess, server_process

pytestmark = pytest.mark.slow

SetClock = Callable[[int], None]
HOUR_MS = 3_600_000

_SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead_s;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("WALL_AHEAD"), O_RDONLY);
    ahead_s = mmap(0, sizeof *ahead_s, PROT_READ, MAP_SHARED, file, 0);
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    int result = syscall(SYS_clock_gettime, clock, found);
    if (!result && clock == CLOCK_REALTIME) found->tv_sec += *ahead_s;
    return result;
}
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[ServerProcess, SetClock]]:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library, ahead = tmp_path / "wall.so", tmp_path / "ahead"
    (tmp_path / "wall.c").write_text(_SOURCE)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, tmp_path / "wall.c"], check=True
    )

    def set_clock(seconds: int) -> None:
        """Set how many seconds the server's wall clock is ahead of the real one."""
        with ahead.open("r+b" if ahead.exists() else "wb") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))
            file.flush()
            os.fsync(file.fileno())

    set_clock(0)
    environment = {"LD_PRELOAD": str(library), "WALL_AHEAD": str(ahead)}
    with server_process(
        "--appendfsync", "always", directory=tmp_path, environment=environment
    ) as server:
        yield server, set_clock


def jumps(client: redis.Redis) -> tuple[int, int]:
    info = client.info("server")
    return info["clock_jumps"], info["clock_last_jump_ms"]


@pytest.mark.parametrize("hours", [1, -1])
def test_a_server_whose_wall_clock_is_set_continues_by_elapsed_time(
    served: tuple[ServerProcess, SetClock], hours: int
) -> None:
    server, set_clock = served
    with redis.Redis.from_url(server.url) as client:
        # Given a pending entry, a delayed one, and a key that expires
        first = client.xadd("s", {"n": 1})
        second = client.xadd("s", {"n": 2})
        client.xgroup_create("s", "g", "0")
        client.xreadgroup("g", "ann", {"s": ">"})
        client.execute_command(
            "XSETTLE", "s", "g", "ann", "FAIL", "DELAY", 60_000, "IDS", 1, second
        )
        client.set("k", "v", px=60_000)
        before = client.time()[0]
        assert jumps(client) == (0, 0)
        # When the wall clock is set
        set_clock(hours * 3600)
        # Then new ids and TIME follow it
        assert abs(client.time()[0] - before - hours * 3600) < 60
        new_ms = int(client.xadd("new", {"n": 1}).partition(b"-")[0])
        assert abs(new_ms // 1000 - before - hours * 3600) < 60
        # And nothing is claimed, due or expired too early or too late
        assert client.xautoclaim("s", "g", "bob", 60_000)[1] == []
        assert client.xpending_range("s", "g", first, first, 1)[0]["time_since_delivered"] < 60_000
        assert 0 < client.pttl("k") <= 60_000
        assert 0 < client.execute_command("XLAG", "s")[b"g"][b"next-due-ms"] <= 60_000
        # And an absolute time refers to the wall clock
        at_ms = new_ms + 60_000
        client.pexpireat("k", at_ms)
        assert client.pexpiretime("k") == at_ms
        assert 0 < client.pttl("k") <= 60_000
        # And the jump is reported
        count, last_ms = jumps(client)
        assert (count, round(last_ms / 1000)) == (1, hours * 3600)
    assert f"the wall clock jumped by {hours * 3600:+d}" in server.log()


def test_a_wall_clock_that_was_set_back_while_the_server_was_down_freezes_nothing(
    served: tuple[ServerProcess, SetClock],
) -> None:
    server, set_clock = served
    with redis.Redis.from_url(server.url) as client:
        client.xadd("s", {"n": 1})
        client.xgroup_create("s", "g", "0")
        client.xreadgroup("g", "ann", {"s": ">"})
    server.kill()
    set_clock(-3600)
    server.start()
    with redis.Redis.from_url(server.url) as client:
        count, last_ms = jumps(client)
        assert count == 1
        assert -HOUR_MS - 1000 <= last_ms <= -HOUR_MS + 60_000
        # The entry's age continues from the last record
        (row,) = client.xpending_range("s", "g", "-", "+", 1)
        (later,) = client.xpending_range("s", "g", "-", "+", 1)
        assert row["time_since_delivered"] < 60_000
        while later["time_since_delivered"] <= row["time_since_delivered"]:
            (later,) = client.xpending_range("s", "g", "-", "+", 1)
