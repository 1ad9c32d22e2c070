"""A program that handles SIGTERM and SIGINT itself keeps its handlers, and its worker stops gracefully."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio

from tests.worker.apps import Order, eventually, orders
from tests.worker.processes import one_worker


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("how", "status"), [("import", 0), ("start", 0), ("loop", 0), ("exit", 7), ("raise", 0)]
)
async def test_a_signal_handler_of_the_program_is_called_as_well(
    store_url: Callable[[str], str], number: signal.Signals, how: str, status: int
) -> None:
    # Given a program with its own handlers, and a handler of a message that runs
    url = store_url("headwater")
    with one_worker(url, target="tests.worker.signal_app:app", SIGNALS=how) as worker:
        async with redis.asyncio.Redis.from_url(url) as look:
            fields: Any = dict(orders.codec.encode(Order(1)))
            await look.xadd("orders", fields)
        await eventually(lambda: "bill begins" in worker.log())
        # When the signal arrives, then both are called: the worker stops gracefully
        worker.signal(number)
        assert worker.wait() == status
        assert worker.log().count(f"the program hears {number}") == 1
        assert "bill ends" in worker.log()
        assert "g of orders stopped" in worker.log()


@pytest.mark.slow
async def test_a_program_that_exits_keeps_its_status_although_a_handler_of_a_message_does_not_end(
    store_url: Callable[[str], str],
) -> None:
    # Given a program that exits with 7 at SIGTERM, and a handler of a message that ignores its cancellation
    url = store_url("headwater")
    with one_worker(url, target="tests.worker.signal_app:app", SIGNALS="stubborn") as worker:
        async with redis.asyncio.Redis.from_url(url) as look:
            fields: Any = dict(orders.codec.encode(Order(1)))
            await look.xadd("orders", fields)
        await eventually(lambda: "bill begins" in worker.log())
        # When the signal arrives, then the process ends with this status after the grace period
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 7
        assert "although 1 handler ignores its cancellation" in worker.log()


@pytest.mark.slow
async def test_signals_while_the_loop_closes_print_nothing_and_do_not_change_the_exit_status(
    store_url: Callable[[str], str],
) -> None:
    # Given a worker that cannot start, whose loop gets SIGTERM while it closes, and again afterwards
    url = store_url("headwater") + "/99"
    with one_worker(url, target="tests.worker.signal_app:app", SIGNALS="closing") as worker:
        # When it ends
        status = worker.wait()
        # Then its exit status is that of its own error, which alone is printed
        assert status == 78
        assert "DB index is out of range" in worker.log()
        assert "Traceback" not in worker.log()
