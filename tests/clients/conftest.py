"""Fixtures of the tests of clients."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis

import headwater
from tests import peers
from tests.clients.scenarios import ClientScenarios
from tests.clients.servers import SharedHeadwater, SharedRedis, shared_headwater, shared_redis
from tests.clients.uniform import KINDS, UniformClient, UniformStore

_numbers = itertools.count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of each subclass of `scenarios.ClientScenarios` with each of its clients."""
    if metafunc.cls is not None and issubclass(metafunc.cls, ClientScenarios):
        clients = metafunc.cls.CLIENTS
        metafunc.parametrize("connect", clients.values(), ids=clients)


@pytest.fixture
def url() -> str:
    """The url of a new store in memory."""
    return f"headwater://memory/test-{next(_numbers)}"


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    """A client of the store at ``url``."""
    with headwater.connect(url, decode_responses=True) as client:
        yield client


@pytest.fixture(params=["sync", "asyncio"])
def open_client(request: pytest.FixtureRequest) -> Callable[..., UniformClient]:
    """A function that connects with `headwater.connect`, or with `headwater.aio.connect`."""
    asynchronous = request.param == "asyncio"

    def make(url: str, **options: Any) -> UniformClient:
        module: Any = headwater.aio if asynchronous else headwater
        return UniformClient(module.connect(url, **options), asynchronous=asynchronous)

    return make


@pytest.fixture(params=[(kind, protocol) for kind in KINDS for protocol in (2, 3)], ids=str)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[UniformStore]:
    """A store: embedded and over TCP, sync and asyncio, in both versions of the protocol."""
    kind, protocol = request.param
    store = UniformStore(kind, protocol=protocol)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def submit() -> Iterator[Callable[..., Future[Any]]]:
    """A function that calls another one in a new thread, and returns its future."""
    with ThreadPoolExecutor(16) as threads:
        yield threads.submit


@pytest.fixture(scope="session")
def server() -> Iterator[SharedHeadwater]:
    """The Headwater server for the tests of clients, shared by all tests of a process."""
    with shared_headwater() as server:
        yield server


@pytest.fixture(scope="session")
def reference() -> Iterator[SharedRedis]:
    """The real Redis whose replies are the reference."""
    try:
        with shared_redis() as server:
            yield server
    except peers.PeerMissing as missing:
        pytest.skip(str(missing))
