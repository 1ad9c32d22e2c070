"""Fixtures for all tests. tests/skips.py decides which tests may be skipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import settings

from headwater.cli.output import UNHEALTHY
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.server import server_process
from tests import jvm, peers
from tests.command_line import in_process, in_thread
from tests.skips import (
    pytest_make_collect_report,
    pytest_runtest_makereport,
    pytest_terminal_summary,
)

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport", "pytest_terminal_summary"]

settings.register_profile("headwater", deadline=None)  # benchmarks measure speed, not tests
settings.load_profile("headwater")

os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm.submit_options())


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Escape bytes that are not UTF-8 in what a test has printed and logged: pytest-xdist could not send them."""
    return _without_surrogates((yield))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: _without_surrogates(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_without_surrogates, value))
    return value


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.scheduling import Scheduling

    return Scheduling(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cold",
        action="store_true",
        help="keep all entries of the stores of tests/conformance on disk",
    )


StartPeer = Callable[..., peers.Peer]


def _start(stack: ExitStack, name: str, *arguments: str, unixsocket: bool = False) -> peers.Peer:
    try:
        return stack.enter_context(peers.running(name, *arguments, unixsocket=unixsocket))
    except peers.PeerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def peer() -> Iterator[StartPeer]:
    """Starts a peer for this test only: ``peer("redis-8.2", "--appendonly", "yes")``."""
    with ExitStack() as stack:
        yield lambda name, *arguments, unixsocket=False: _start(
            stack, name, *arguments, unixsocket=unixsocket
        )


@pytest.fixture(scope="session")
def _peers_of_this_run() -> Iterator[Callable[[str], peers.Peer]]:
    started: dict[str, peers.Peer] = {}
    with ExitStack() as stack:

        def give(name: str) -> peers.Peer:
            if name not in started:
                started[name] = _start(stack, name, unixsocket=True)
            return started[name]

        yield give


@pytest.fixture
def shared_peer(
    _peers_of_this_run: Callable[[str], peers.Peer],
) -> Callable[[str], peers.Peer]:
    """Returns a peer that all tests of a process share, emptied: ``shared_peer("redis-8.2")``.

    Settings that a test changes stay changed, so a test that changes settings uses `peer`.
    """

    def give(name: str) -> peers.Peer:
        server = _peers_of_this_run(name)
        peers.empty(server.port)
        return server

    return give


@pytest.fixture
def redis_cli() -> str:
    """The path of redis-cli. Without redis-cli the test is skipped, and the reason names it."""
    found = peers.redis_cli()
    if found is None:
        pytest.skip(str(peers.PeerMissing("redis-cli")))
    return str(found)


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
            peers.empty(urlsplit(url).port or 6379)
            return url
        shared: Callable[[str], peers.Peer] = request.getfixturevalue("shared_peer")
        return shared(name).url

    return give


@pytest.fixture
def store() -> Iterator[LocalStore]:
    """A store in this process, without sockets."""
    made = LocalStore()
    yield made
    made.node.close()


@pytest.fixture
def client(store: LocalStore) -> LocalClient:
    """A client of `store`, or of a module's own."""
    return store.client()


@pytest.fixture
def run_headwater() -> Callable[..., str]:
    """A function that runs ``headwater …`` without input and returns what it printed.

    The command runs in a thread, or in a process if ``apart`` is true.
    """

    def run(*arguments: str, status: int = 0, apart: bool = False) -> str:
        found, printed, complaint = (in_process if apart else in_thread)(arguments)
        assert found == status, complaint
        return printed if status in (0, UNHEALTHY) else complaint

    return run
