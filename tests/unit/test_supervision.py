"""Notifications of a service manager: a real datagram socket hears them, and a hung start asks for nothing."""

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
    """What has come and was not read yet."""
    manager.socket.setblocking(False)
    found = []
    try:
        while True:
            found.append(manager.next())
    except BlockingIOError:
        return found


def test_a_start_that_does_not_work_is_not_given_more_time(
    manager: ServiceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a start whose thread uses no more processor time from its third look on
    monkeypatch.setattr(supervision, "EXTEND_EVERY_SECONDS", 0.0)
    times = iter([1.0, 2.0, 2.0, 2.0])
    supervisor = ServiceNotifier(manager.address)
    # When it is asked for more time as long as it works
    supervisor._extend(threading.Event(), lambda: next(times))
    supervisor.close()
    # Then that was twice
    assert [said["EXTEND_TIMEOUT_USEC"] for said in waiting(manager)] == ["30000000"] * 2


def test_a_start_that_has_ended_asks_for_no_more(manager: ServiceManager) -> None:
    supervisor = ServiceNotifier(manager.address)
    ended, times = threading.Event(), count()
    ended.set()
    supervisor._extend(ended, lambda: next(times))
    supervisor.close()
    assert len(waiting(manager)) == 1


async def test_a_manager_that_reads_nothing_does_not_hold_the_loop(
    manager: ServiceManager,
) -> None:
    # Given a service manager whose queue is full
    supervisor = ServiceNotifier(manager.address, watchdog_seconds=3600)
    loop = asyncio.get_running_loop()
    # When ten thousand signs of life are sent, which would wait a second each
    for _ in range(10_000):
        supervisor.watch(loop)
        assert supervisor._beat is not None
        supervisor._beat.cancel()
    supervisor.close()
    # Then what its queue has room for is there, and the loop has gone on
    assert 1 <= len(waiting(manager)) < 10_000


def test_a_reload_while_the_server_starts_or_stops_is_not_called_ready(
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
    assert [said.keys() & {"READY", "STOPPING"} for said in waiting(manager)] == [
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
def test_a_watchdog_that_is_not_set_is_none(usec: str) -> None:
    assert ServiceNotifier.of(Config(), {"WATCHDOG_USEC": usec}).watchdog_seconds == 0
