"""redis-cli 7.0.15 and redis-benchmark from Debian."""

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
from tests.clients.raw import Raw
from tests.clients.scenarios import ClientScenarios
from tests.clients.script import Connect
from tests.clients.servers import ServerAddress, SharedServer

SECONDS = 60


def command_line(address: ServerAddress, *options: str) -> list[str]:
    """Return the command line of redis-cli for an address. Skips the test if redis-cli is missing."""
    found = peers.redis_cli()
    if found is None:
        pytest.skip(str(peers.PeerMissing("redis-cli")))
    return [
        str(found),
        "-h",
        address.host,
        "-p",
        str(address.port),
        *tls_options(address),
        *options,
    ]


def tls_options(address: ServerAddress) -> list[str]:
    if address.tls is None:
        return []
    files = {
        "cacert": address.tls.authority,
        "cert": address.tls.client,
        "key": address.tls.client_key,
    }
    return ["--tls", *(word for name, file in files.items() for word in (f"--{name}", file))]


class Session(Raw):
    """One process that reads commands from standard input and prints each reply as a line of JSON."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

    async def send(self, *words: str) -> Any:
        self._stdin.write(f"{shlex.join(words)}\n".encode())
        line = (await asyncio.wait_for(self._stdout.readline(), SECONDS)).decode().strip()
        if not line:
            raise ConnectionError("redis-cli printed nothing")
        try:
            return json.loads(line)
        except ValueError:
            raise RuntimeError(line) from None

    async def close(self) -> None:
        self._stdin.close()
        await asyncio.wait_for(self._process.wait(), SECONDS)


class OneShots(Raw):
    """One process for each command; a reply is its output."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address

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
            command_line(self._address, "-2", *words),
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
async def connect_session(address: ServerAddress) -> AsyncIterator[Session]:
    process = await asyncio.create_subprocess_exec(
        *command_line(address, "-3", "--json"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,  # it reports a closed connection there
    )
    session = Session(process)
    try:
        yield session
    finally:
        await session.close()


@asynccontextmanager
async def connect_each_time(address: ServerAddress) -> AsyncIterator[OneShots]:
    yield OneShots(address)


@pytest.mark.peer
class TestRedisCli(ClientScenarios):
    CLIENTS: ClassVar[dict[str, Connect]] = {
        "session": connect_session,
        "one-shot": connect_each_time,
    }


@pytest.mark.peer
@pytest.mark.parametrize("option", ["--stat", "--bigkeys", "--memkeys", "--scan"])
def test_its_scanning_modes_work(server: SharedServer, option: str) -> None:
    server.empty()
    with server.observer() as observer:
        observer.xadd("orders", {"item": "tea"})
        observer.set("text", "x")
    words = ["-i", "0.01", "--stat"] if option == "--stat" else [option]
    with subprocess.Popen(
        command_line(server.address, *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        if option == "--stat":  # it does not end
            said = "".join(process.stdout.readline() for _ in range(4))
            process.terminate()
        else:
            said = process.stdout.read()
    assert "ERR" not in said, said
    assert ("orders" in said) == (option != "--stat"), said


@pytest.mark.peer
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_redis_benchmark_runs_without_an_error(server: SharedServer, *, tls: bool) -> None:
    found = peers.redis_benchmark()
    if found is None:
        pytest.skip(str(peers.PeerMissing("redis-benchmark")))
    server.empty()
    address = server.tls_address if tls else server.address
    place = ["-h", address.host, "-p", str(address.port), *tls_options(address)]
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
    with server.observer() as observer:
        assert observer.xlen("s") == 500
