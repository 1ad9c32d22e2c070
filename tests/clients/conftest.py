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
from tests.clients.faces import KINDS, Face, Place
from tests.clients.promises import Promises
from tests.clients.stands import HeadwaterStand, PeerStand, headwater_stand, peer_stand

_numbers = itertools.count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a class of `promises.Promises` with each of its clients."""
    if metafunc.cls is not None and issubclass(metafunc.cls, Promises):
        clients = metafunc.cls.CLIENTS
        metafunc.parametrize("connect", clients.values(), ids=clients)


@pytest.fixture
def url() -> str:
    """A store in memory that nobody else has."""
    return f"headwater://memory/test-{next(_numbers)}"


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    """A client of that store."""
    with headwater.connect(url, decode_responses=True) as client:
        yield client


@pytest.fixture(params=["sync", "asyncio"])
def open_face(request: pytest.FixtureRequest) -> Callable[..., Face]:
    """Connects by `headwater.connect`, and by that of `headwater.aio`."""
    asynchronous = request.param == "asyncio"

    def make(url: str, **options: Any) -> Face:
        module: Any = headwater.aio if asynchronous else headwater
        return Face(module.connect(url, **options), asynchronous=asynchronous)

    return make


@pytest.fixture(params=[(kind, protocol) for kind in KINDS for protocol in (2, 3)], ids=str)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A store in process and over TCP, sync and asyncio, in both versions of the protocol."""
    kind, protocol = request.param
    place = Place(kind, protocol=protocol)
    try:
        yield place
    finally:
        await place.close()


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Future[Any]]]:
    """Calls a function in a thread of its own."""
    with ThreadPoolExecutor(16) as threads:
        yield threads.submit


@pytest.fixture(scope="session")
def stand() -> Iterator[HeadwaterStand]:
    """Headwater, for clients that are tried; shared by all tests of a process."""
    with headwater_stand() as stand:
        yield stand


@pytest.fixture(scope="session")
def measure() -> Iterator[PeerStand]:
    """The real Redis whose answers are the measure."""
    try:
        with peer_stand() as stand:
            yield stand
    except peers.PeerMissing as missing:
        pytest.skip(str(missing))
