"""A worker names the true cause of a delay, instead of blaming the store."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator

import pytest

from headwater.worker.observe.delays import ProcessDelays
from headwater.worker.store.connections import Availability
from tests.worker.apps import Store, eventually
from tests.worker.long_jobs import Job
from tests.worker.processes import one_worker
from tests.worker.test_live_processes import TARGET, send, settled

pytestmark = pytest.mark.slow


@pytest.fixture
async def delays() -> AsyncIterator[tuple[ProcessDelays, list[str]]]:
    """The delays of this process, and what was said while the event loop was blocked."""
    said: list[str] = []
    found = ProcessDelays(list, said.append, lambda _at: None)
    found.start()
    await asyncio.sleep(0.3)
    yield found, said
    found.stop()


async def test_a_blocked_event_loop_is_named_with_the_place(
    delays: tuple[ProcessDelays, list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    found, said = delays
    time.sleep(1.9)  # noqa: ASYNC251  # blocks on purpose
    cause = found.cause()
    assert cause is not None
    assert cause.startswith("the event loop has been blocked for 1.")
    assert "test_delays.py" in cause
    assert said
    # And a timeout that it caused is not an outage of the store
    store = Availability("redis://localhost:1")
    store.local_cause = found.cause
    store.troubled("reader", TimeoutError("Timeout reading"), pause=1)
    assert "does not answer" not in caplog.text
    assert found.loop_delay > 1
    # And when it runs again, then there is no cause
    await eventually(lambda: found.cause() is None)
    store.troubled("reader", TimeoutError("Timeout reading"), pause=1)
    assert "cannot be reached" in caplog.text


async def test_a_held_interpreter_lock_is_named(delays: tuple[ProcessDelays, list[str]]) -> None:
    found, _said = delays
    await asyncio.to_thread(ctypes.PyDLL(None).usleep, 2_000_000)
    cause = found.cause()
    assert cause is not None
    assert cause.startswith("no thread of this process ran for 1.")
    assert "the interpreter's lock (GIL) was held while no handler ran" in cause


@pytest.mark.parametrize("threads", [0, 4])
async def test_a_stopped_process_is_named(
    delays: tuple[ProcessDelays, list[str]], caplog: pytest.LogCaptureFixture, threads: int
) -> None:
    found, _said = delays
    # Given a process whose other threads work until it is stopped
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.0005):
            pass

    others = [threading.Thread(target=work) for _ in range(threads)]
    for one in others:
        one.start()
    # When it is stopped for two seconds
    code = "import os, signal, sys, time; time.sleep(2); os.kill(int(sys.argv[1]), signal.SIGCONT)"
    waker = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
    cause = found.cause()
    done.set()
    await waker.wait()
    # Then this is the cause, said once
    assert cause is not None
    assert cause.startswith("this process was stopped for ")
    assert caplog.text.count("was stopped for") == 1


async def test_a_worker_names_the_handler_and_not_the_store(store: Store) -> None:
    # Given a worker whose handler holds the interpreter's lock for longer than each deadline
    with one_worker(store.url, target=TARGET, SHOP_CLAIM_AFTER="3s", JOB_SECONDS="2.5") as worker:
        await eventually(lambda: "reads jobs as" in worker.log())
        await send(store, Job(1, "hold"))
        await eventually(lambda: settled(store))
        await eventually(lambda: "(GIL) was held while work (" in worker.log())
        assert "does not answer" not in worker.log()
