"""Stores that the tests of the worker run against."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest
import redis.asyncio

from headwater.testing.clock import ManualClock
from headwater.testing.server import ServerThread, server_thread
from tests import campaigns, samples
from tests.worker.apps import Store
from tests.worker.core import Core

CORE_STORES = ("headwater", "redis-8.2", "redis-7.0", "valkey-9.1")

STORES = ("headwater", "redis-8.2")
"""Stores on which every guarantee of a worker is tested: with Headwater's commands and without them."""


HERE = Path(__file__).parent

SAMPLED = ("redis-7.0", "valkey-9.1")
"""Servers on which only `make slice` runs the tests: each test on one of them, which depends on the commit."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests on sampled servers, and leave out half of them unless ``SLICE_SCALE`` is 2 or more. `make test` runs
    all tests on Headwater and Redis 8.2."""
    left_out = set()
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or HERE not in item.path.parents:
            continue  # the hook of every conftest.py receives all tests
        for place, server in enumerate(SAMPLED):
            if server in map(str, callspec.params.values()):
                item.add_marker(pytest.mark.slice)
                name = campaigns.COMMIT + item.nodeid.replace(server, "")
                if samples.SCALE < 2 and crc32(name.encode()) % len(SAMPLED) != place:
                    left_out.add(item)
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def manual_clock_server() -> Iterator[ServerThread]:
    """A Headwater server whose clock only a test advances."""
    with server_thread(clock=ManualClock()) as server:
        yield server


@pytest.fixture(params=CORE_STORES)
def core(request: pytest.FixtureRequest, store_url: Callable[[str], str]) -> Iterator[Core]:
    """The first consumer of a new group, on each store in turn."""
    if request.param == "headwater":
        server: ServerThread = request.getfixturevalue("manual_clock_server")
        with redis.Redis.from_url(server.url) as client:
            client.flushall()
        found = Core.joined(server.url)
        found.advance = server.advance
    else:
        found = Core.joined(store_url(request.param))
    yield found
    found.close()


@pytest.fixture(params=STORES)
async def store(
    request: pytest.FixtureRequest, store_url: Callable[[str], str]
) -> AsyncIterator[Store]:
    """An empty store, on each of `STORES` in turn."""
    url = store_url(request.param)
    async with redis.asyncio.Redis.from_url(url) as look:
        yield Store(request.param, url, look)


@pytest.fixture(params=CORE_STORES)
async def any_store(
    request: pytest.FixtureRequest, store_url: Callable[[str], str]
) -> AsyncIterator[Store]:
    """An empty store, on each of `CORE_STORES` in turn."""
    url = store_url(request.param)
    async with redis.asyncio.Redis.from_url(url) as look:
        yield Store(request.param, url, look)
