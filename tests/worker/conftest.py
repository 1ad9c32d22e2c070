"""Stores that the tests of the worker run against."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import redis.asyncio

from headwater.cli.main import main
from headwater.testing.clock import ManualClock
from headwater.testing.server import ServerThread, server_process, server_thread
from tests import peers
from tests.worker.apps import Store
from tests.worker.core import Core

SharedPeer = Callable[[str], peers.Peer]

CORE_STORES = ("headwater", "redis-8.2", "redis-7.0", "valkey-9.1")

STORES = ("headwater", "redis-8.2")
"""Stores on which every guarantee of a worker is tested: with Headwater's commands and without them."""


HERE = Path(__file__).parent

SAMPLED = frozenset({"redis-7.0", "valkey-9.1"})
"""Servers on which only `make slice` runs the tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests on sampled servers. `make test` runs all tests on Headwater and Redis 8.2, and
    `make slice` runs them on the other servers."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or HERE not in item.path.parents:
            continue  # the hook of every conftest.py receives all tests
        if not SAMPLED.isdisjoint(map(str, callspec.params.values())):
            item.add_marker(pytest.mark.slice)


@pytest.fixture(scope="session")
def headwater_url() -> Iterator[str]:
    """The address of a Headwater server that all tests of a process share."""
    with server_process("--appendonly", "no", "--save", "") as server:
        yield server.url


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """A function that returns the address of a store by its name. It starts a store at its first use."""

    def give(name: str) -> str:
        if name == "headwater":
            url: str = request.getfixturevalue("headwater_url")
            with redis.Redis.from_url(url) as client:
                client.flushall()
            return url
        shared: SharedPeer = request.getfixturevalue("shared_peer")
        return shared(name).url

    return give


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


@pytest.fixture
def run_headwater() -> Callable[..., str]:
    """A function that runs ``headwater …`` without input and returns what it printed.

    The command runs in a thread, or in a process if ``apart`` is true.
    """

    def run(*arguments: str, status: int = 0, apart: bool = False) -> str:
        found, printed, complaint = (_in_process if apart else _in_thread)(arguments)
        assert found == status, complaint
        return printed if status == 0 else complaint

    return run


def _in_process(arguments: Sequence[str]) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "headwater.cli.main", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def _in_thread(arguments: Sequence[str]) -> tuple[int, str, str]:
    def run() -> int:
        try:
            main([*arguments])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    printed, complaint, read = io.StringIO(), io.StringIO(), sys.stdin
    with ThreadPoolExecutor(1) as thread, redirect_stdout(printed), redirect_stderr(complaint):
        sys.stdin = io.StringIO()
        try:
            status = thread.submit(run).result(60)
        finally:
            sys.stdin = read
    return status, printed.getvalue(), complaint.getvalue()
