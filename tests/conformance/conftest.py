"""Fixtures of the protocol tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headwater.config.config import Config
from headwater.server.net.loop import EpollLoop, ReaderLoop
from headwater.testing.clock import ManualClock
from headwater.testing.server import ServerThread, server_thread
from tests import certificates
from tests.blocks import everything_cold
from tests.certificates import Certificates
from tests.conformance.tls_wire import StartTls
from tests.conformance.wire import Start
from tests.peers import free_port

_ABOUT_JOURNALS = {
    "test_dump_ours",
    "test_maxmemory",
    "test_memory_usage",
    "test_protocol_failures",
    "test_reload",
    "test_server_log",
    "test_waitaof",
}
"""Modules about the journal or the memory of a store, which differ with ``--cold``."""


@pytest.fixture(autouse=True)
def _cold(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``--cold``: all entries are on disk."""
    module = request.node.path.stem
    if request.config.getoption("--cold") and module not in _ABOUT_JOURNALS:
        everything_cold(monkeypatch)


@pytest.fixture(params=[EpollLoop, ReaderLoop], ids=["epoll", "readers"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts a server with the given settings. The server is stopped at the end of the test."""
    with ExitStack() as stack:

        def starting(*, clock: ManualClock | None = None, **settings: object) -> ServerThread:
            config = Config(port=0, appendonly=False, save=())
            for name, value in settings.items():
                setattr(config, name, value)
            return stack.enter_context(server_thread(config, clock=clock, make=request.param))

        yield starting


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def start_tls(start: Start, made: Certificates) -> StartTls:
    """Starts a server with TLS on one port and plain text on another."""

    def starting(*, auth_clients: str = "yes", **settings: object) -> ServerThread:
        tls = made.settings(tls_port=free_port(), auth_clients=auth_clients)
        words: dict[str, object] = {
            name.replace("-", "_"): int(value) if name == "tls-port" else value
            for name, value in tls.items()
        }
        return start(**{"port": free_port(), **words, **settings})

    return starting
