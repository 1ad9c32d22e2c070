"""Notifications to a service manager, over a real datagram socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from headwater.config.config import Config
from headwater.server import supervision
from headwater.server.supervision import ServiceNotifier
from tests.e2e.notify import ServiceManager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ServiceManager]:
    made = ServiceManager(tmp_path)
    yield made
    made.close()


def waiting(manager: ServiceManager) -> list[dict[str, str]]:
    """Return the notifications that were not read yet."""
    manager.socket.setblocking(False)
    found = []
    try:
        while True:
            found.append(manager.next())
    except BlockingIOError:
        return found


def test_a_hung_start_does_not_extend_its_timeout(
    manager: ServiceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a start whose thread uses no more processor time from the third reading on
    monkeypatch.setattr(supervision, "EXTEND_EVERY_SECONDS", 0.0)
    times = iter([1.0, 2.0, 2.0, 2.0])
    supervisor = ServiceNotifier(manager.address)
    # When the timeout is extended as long as the start makes progress
    supervisor._extend(threading.Event(), lambda: next(times))
    supervisor.close()
    # Then it was extended twice
    assert [sent["EXTEND_TIMEOUT_USEC"] for sent in waiting(manager)] == ["30000000"] * 2


def test_a_start_that_has_ended_does_not_extend_its_timeout(manager: ServiceManager) -> None:
    supervisor = ServiceNotifier(manager.address)
    ended, times = threading.Event(), count()
    ended.set()
    supervisor._extend(ended, lambda: next(times))
    supervisor.close()
    assert len(waiting(manager)) == 1


async def test_a_manager_that_does_not_read_does_not_block_the_loop(
    manager: ServiceManager,
) -> None:
    # Given a service manager whose queue is full
    supervisor = ServiceNotifier(manager.address, watchdog_seconds=3600)
    loop = asyncio.get_running_loop()
    # When ten thousand signs of life are sent, each of which would block for a second
    for _ in range(10_000):
        supervisor.watch(loop)
        assert supervisor._beat is not None
        supervisor._beat.cancel()
    supervisor.close()
    # Then the queue has as many as fit, and the loop was not blocked
    assert 1 <= len(waiting(manager)) < 10_000


def test_a_reload_while_the_server_starts_or_stops_does_not_send_ready(
    manager: ServiceManager,
) -> None:
    supervisor = ServiceNotifier(manager.address)
    with supervisor.reloading():
        pass
    assert waiting(manager) == []
    supervisor.ready("ready")
    supervisor.stopping("stopping")
    with supervisor.reloading():
        pass
    assert [sent.keys() & {"READY", "STOPPING"} for sent in waiting(manager)] == [
        {"READY"},
        {"STOPPING"},
    ]
    supervisor.close()


def test_without_a_manager_nothing_happens() -> None:
    supervisor = ServiceNotifier.of(Config(), {})
    with supervisor.starting(), supervisor.reloading():
        supervisor.ready("ready")
    supervisor.stopping("stopping")
    supervisor.close()
    assert supervisor.name == "no"


@pytest.mark.parametrize("usec", ["", "0", "-1", "x", "٣"])
def test_an_invalid_watchdog_setting_disables_it(usec: str) -> None:
    assert ServiceNotifier.of(Config(), {"WATCHDOG_USEC": usec}).watchdog_seconds == 0
