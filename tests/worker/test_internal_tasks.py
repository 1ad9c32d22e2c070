"""A part of a worker that ends unexpectedly ends the worker, with an error that names the part."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import threading

import pytest

from headwater.worker.loop import TaskEnded
from tests.worker.apps import Order, Store, eventually, orders, worker


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("reader", "orders/g reader"),
        ("settler", "orders/g settler"),
        ("handler slot 1", "orders/g handler slot 1"),
    ],
)
async def test_a_task_that_ends_unexpectedly_ends_the_worker_with_an_error_that_names_it(
    store: Store, part: str, name: str
) -> None:
    # Given a worker that handles messages
    app = store.app()
    handled = []

    @app.consumer(orders, group="g", concurrency=2)
    async def bill(order: Order) -> None:
        handled.append(order.id)

    running = asyncio.create_task(app.run())
    await eventually(lambda: store.look.exists("orders"))
    await store.look.xadd("orders", {"id": 1})
    await eventually(lambda: handled)

    # When one of its tasks ends
    (task,) = [one for one in asyncio.all_tasks() if one.get_name().endswith(part)]
    # A busy task may suppress the cancellation.
    await eventually(lambda: task.done() or (task.cancel() and False))

    # Then the worker ends with an error that names the task
    with pytest.raises(TaskEnded, match=f"{name} of .*bill ended without having been stopped"):
        await asyncio.wait_for(running, 20)


async def test_a_lease_renewer_that_ends_unexpectedly_ends_the_worker(store: Store) -> None:
    # Given a worker whose leases a thread renews
    app = store.app()
    app.consumer(orders, group="g", claim_after="300ms")(lambda order: None)
    before = set(threading.enumerate())
    running = asyncio.create_task(app.run())

    def renewers() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if "leases" in t.name and t not in before]

    (thread,) = await eventually(renewers)
    assert thread.ident is not None

    # When that thread ends with an exception that it does not expect
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
    )

    # Then the worker ends with an error that names it
    with pytest.raises(TaskEnded, match=r"lease renewer of .* ended with an error: SystemExit"):
        await asyncio.wait_for(running, 20)


async def test_a_worker_that_is_stopped_ends_without_an_error(store: Store) -> None:
    app = store.app()
    app.consumer(orders, group="g")(lambda order: None)
    running = asyncio.create_task(app.run())
    await eventually(lambda: store.look.exists("orders"))
    app.stop()
    await running


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_leases_are_not_renewed_after_the_event_loop_was_closed(store: Store) -> None:
    # Given a worker whose event loop ends while it runs, as at a second Ctrl-C in a notebook
    app = store.app()
    before = set(threading.enumerate())

    app.consumer(orders, group="g", claim_after="300ms")(lambda order: None)

    def interrupted() -> None:
        async def main() -> None:
            running = worker(app)
            running.start()
            (loop,) = running.loops.values()
            await eventually(lambda: loop.fetcher.joined)

        asyncio.run(main())

    thread = threading.Thread(target=interrupted)
    thread.start()
    await eventually(lambda: not thread.is_alive())

    # Then its lease renewer ends too, although the process continues
    await eventually(lambda: not set(threading.enumerate()) - before - {thread})
    gc.collect()  # collects the unclosed connections while their warnings are expected
