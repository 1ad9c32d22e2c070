"""redis-cli 7.0.15 and redis-benchmark, as Debian has them."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from tests import peers
from tests.clients.promises import Promises
from tests.clients.raw import Raw
from tests.clients.script import Connect
from tests.clients.stands import Stand, Where

SECONDS = 60


def command_line(where: Where, *options: str) -> list[str]:
    """redis-cli for that place; skips the test by name where there is none."""
    found = peers.redis_cli()
    if found is None:
        pytest.skip(str(peers.PeerMissing("redis-cli")))
    return [str(found), "-h", where.host, "-p", str(where.port), *tls_options(where), *options]


def tls_options(where: Where) -> list[str]:
    if where.tls is None:
        return []
    files = {"cacert": where.tls.authority, "cert": where.tls.client, "key": where.tls.client_key}
    return ["--tls", *(word for name, file in files.items() for word in (f"--{name}", file))]


class Session(Raw):
    """One process that reads commands from its standard input; a reply is a line of JSON."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

    async def send(self, *words: str) -> Any:
        self._stdin.write(f"{shlex.join(words)}\n".encode())
        line = (await asyncio.wait_for(self._stdout.readline(), SECONDS)).decode().strip()
        if not line:
            raise ConnectionError("redis-cli says nothing")
        try:
            return json.loads(line)
        except ValueError:
            raise RuntimeError(line) from None

    async def close(self) -> None:
        self._stdin.close()
        await asyncio.wait_for(self._process.wait(), SECONDS)


class OneShots(Raw):
    """A process for each command, and what it prints."""

    def __init__(self, where: Where) -> None:
        self._where = where

    async def send(self, *words: str) -> Any:
        return await self._run(*words)

    async def transaction(self, stream: str) -> Any:
        lines = ["MULTI", f"XADD {stream} 9-1 item mug", f"XLEN {stream}", "EXEC"]
        return await self._run(said="\n".join(lines))

    async def length(self, stream: str) -> Any:
        said = await self.send("XLEN", stream)
        return int(said.removeprefix("(integer) "))

    async def ack(self, stream: str, group: str, entry_id: str) -> Any:
        return int(await super().ack(stream, group, entry_id))

    async def nack(self, stream: str, group: str, entry_id: str) -> Any:
        return int(await super().nack(stream, group, entry_id))

    async def groups(self, stream: str) -> Any:
        lines = (await super().groups(stream)).splitlines()
        return [lines]

    async def pending_range(self, stream: str, group: str) -> Any:
        lines = (await super().pending_range(stream, group)).splitlines()
        return [lines[index : index + 4] for index in range(0, len(lines), 4)]

    async def _run(self, *words: str, said: str = "") -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            command_line(self._where, "-2", *words),
            input=said,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode or done.stderr:
            raise RuntimeError(done.stderr or done.stdout)
        return done.stdout.strip()


@asynccontextmanager
async def connect_session(where: Where) -> AsyncIterator[Session]:
    process = await asyncio.create_subprocess_exec(
        *command_line(where, "-3", "--json"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,  # where it says that its connection is gone
    )
    session = Session(process)
    try:
        yield session
    finally:
        await session.close()


@asynccontextmanager
async def connect_each_time(where: Where) -> AsyncIterator[OneShots]:
    yield OneShots(where)


@pytest.mark.peer
class TestRedisCli(Promises):
    CLIENTS: ClassVar[dict[str, Connect]] = {
        "session": connect_session,
        "one-shot": connect_each_time,
    }


@pytest.mark.peer
@pytest.mark.parametrize("option", ["--stat", "--bigkeys", "--memkeys", "--scan"])
def test_its_own_tours_of_a_store_end_well(stand: Stand, option: str) -> None:
    stand.empty()
    with stand.look() as look:
        look.xadd("orders", {"item": "tea"})
        look.set("text", "x")
    words = ["-i", "0.01", "--stat"] if option == "--stat" else [option]
    with subprocess.Popen(
        command_line(stand.where, *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        if option == "--stat":  # it goes on for ever
            said = "".join(process.stdout.readline() for _ in range(4))
            process.terminate()
        else:
            said = process.stdout.read()
    assert "ERR" not in said, said
    assert ("orders" in said) == (option != "--stat"), said


@pytest.mark.peer
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_redis_benchmark_measures_without_an_error(stand: Stand, *, tls: bool) -> None:
    found = peers.redis_benchmark()
    if found is None:
        pytest.skip(str(peers.PeerMissing("redis-benchmark")))
    stand.empty()
    where = stand.secured if tls else stand.where
    place = ["-h", where.host, "-p", str(where.port), *tls_options(where)]
    for work in (
        ["-t", "ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,lrange_100,mset"],
        ["XADD", "s", "*", "f", "v"],
    ):
        done = subprocess.run(
            [str(found), *place, "-q", "-n", "500", "-c", "5", "-P", "10", *work],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "rror" not in done.stdout + done.stderr, done.stdout + done.stderr
    with stand.look() as look:
        assert look.xlen("s") == 500
