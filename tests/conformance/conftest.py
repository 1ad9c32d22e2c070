"""Fixtures for tests of the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headwater.server.config import Config
from headwater.server.loop import EpollLoop, ReaderLoop
from headwater.testing.clock import ManualClock
from headwater.testing.server import ServerThread, server_thread
from tests.conformance.wire import Start


@pytest.fixture(params=[EpollLoop, ReaderLoop], ids=["epoll", "readers"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts a server with these settings; it is ended with the test."""
    with ExitStack() as stack:

        def starting(*, clock: ManualClock | None = None, **settings: object) -> ServerThread:
            config = Config(port=0, appendonly=False)
            for name, value in settings.items():
                setattr(config, name, value)
            return stack.enter_context(server_thread(config, clock=clock, make=request.param))

        yield starting
