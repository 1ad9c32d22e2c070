"""Signals to a worker process that has just ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from headwater.worker.process.supervise import send_signal


@pytest.fixture(autouse=True)
def _watched_by_the_loop() -> Iterator[None]:
    """Processes are watched by the event loop, not by a thread, also in Python 3.11: then a test decides when
    the end of one is seen."""
    if sys.version_info >= (3, 12):
        yield
        return
    before = asyncio.get_child_watcher()
    asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    yield
    asyncio.set_child_watcher(before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_the_exit_status_of_a_process_that_has_just_ended_survives_a_signal(
    number: signal.Signals,
) -> None:
    # Given a process that has ended, which the event loop has not seen yet
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(7)")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 (the loop must not run)

    # When it is sent a signal
    send_signal(process, number)

    # Then its own exit status is reported
    assert await process.wait() == 7
    # And a later signal does nothing
    send_signal(process, number)
