"""Every way in which a handler ends, in every shape of handler: the delivery is settled, and the slot
handles the next message."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any, NoReturn

import pytest

from headwater.worker import App, Backoff, Stream
from tests.worker.apps import Order

End = Callable[[], Any]
"""What a handler does with its first message. The handler returns what this function returns."""

Handler = Callable[[Order], Any]

RETRY = Backoff("100ms", jitter=0)

pytestmark = pytest.mark.slow

# --- shapes ---------------------------------------------------------------------------------------


class Methods:
    """The same handler as a method, a static method, and a callable object."""

    end: End

    def __init__(self, end: End) -> None:
        self.end = end

    def method(self, order: Any) -> Any:
        return self.end()

    async def async_method(self, order: Any) -> Any:
        return self.end()

    @staticmethod
    def static_method(order: Any) -> Any:
        return order

    def __call__(self, order: Any) -> Any:
        return self.end()


class AsyncCallable(Methods):
    async def __call__(self, order: Any) -> Any:
        return self.end()


def as_async_def(end: End) -> Handler:
    async def handle(order: Any) -> Any:
        await asyncio.sleep(0)
        return end()

    return handle


def as_def(end: End) -> Handler:
    def handle(order: Any) -> Any:
        return end()

    return handle


def as_def_that_returns_a_coroutine(end: End) -> Handler:
    handle = as_async_def(end)
    return lambda order: handle(order)  # noqa: PLW0108  # hides that it calls a coroutine function


def as_decorated_async_def(end: End) -> Handler:
    handle = as_async_def(end)

    @functools.wraps(handle)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        return handle(*arguments, **options)

    return wrapper


def as_class_method(end: End) -> Handler:
    class Here(Methods):
        @classmethod
        def handle(cls, order: Any) -> Any:
            return end()

    return Here.handle


SHAPES: dict[str, Callable[[End], Handler]] = {
    "async def": as_async_def,
    "def": as_def,
    "lambda": lambda end: lambda order: end(),
    "partial": lambda end: functools.partial(lambda _rate, order: end(), 1.5),
    "partial of an async def": lambda end: functools.partial(as_async_def(end)),
    "callable object": Methods,
    "async callable object": AsyncCallable,
    "decorated async def": as_decorated_async_def,
    "def that returns a coroutine": as_def_that_returns_a_coroutine,
    "method": lambda end: Methods(end).method,
    "async method": lambda end: Methods(end).async_method,
    "class method": as_class_method,
}

BATCH_SHAPES = ("async def", "def", "callable object", "def that returns a coroutine")
"""One shape for each way to run a handler. Batch handlers run in the same ways."""

# --- ends -----------------------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


class UnprintableForever(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


def its_own_cause() -> Exception:
    error = ValueError("first")
    other = ValueError("second")
    error.__cause__, other.__cause__ = other, error
    return error


ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("no price"),
    "CancelledError": asyncio.CancelledError,
    "CancelledError of a thread": concurrent.futures.CancelledError,
    "TimeoutError": TimeoutError,
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "SystemExit": lambda: SystemExit(0),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "BaseException": BaseException,
    "BaseExceptionGroup": lambda: BaseExceptionGroup("two", [KeyboardInterrupt(), ValueError()]),
    "ExceptionGroup": lambda: ExceptionGroup("one", [ValueError()]),
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "Unprintable": Unprintable,
    "UnprintableForever": UnprintableForever,
    "its own cause": its_own_cause,
    "text that is not Unicode": lambda: ValueError("\ud800"),
}


def raises(make: Callable[[], BaseException]) -> End:
    def end() -> NoReturn:
        raise make()

    return end


def returns_a_coroutine_that_raises(make: Callable[[], BaseException]) -> End:
    async def later() -> NoReturn:
        await asyncio.sleep(0)
        raise make()

    return lambda: later()  # noqa: PLW0108  # a new coroutine for each call


class Waits:
    """An awaitable of a custom class."""

    def __init__(self, steps: Callable[[], Generator[Any, None, Any]]) -> None:
        self._steps = steps

    def __await__(self) -> Generator[Any, None, Any]:
        return self._steps()


def yields_no_future() -> Generator[Any, None, Any]:
    yield 17


def raises_at_once() -> Generator[Any, None, Any]:
    yield from ()
    raise asyncio.CancelledError


def returns_itself() -> Awaitable[Any]:
    def steps() -> Generator[Any, None, Any]:
        yield from ()
        return one

    one = Waits(steps)
    return one


async def awaits_a_cancelled_task() -> None:
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel()
    await task


async def awaits_a_cancelled_future() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def awaits_a_group_that_fails() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(awaits_a_cancelled_future())
        group.create_task(returns_a_coroutine_that_raises(lambda: ValueError("one of them"))())


async def awaits_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    await task


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


async def is_cancelled_by_its_own_helper() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.Event().wait()


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


ENDS: dict[str, End] = {
    **{f"raises {name}": raises(make) for name, make in ERRORS.items()},
    **{
        f"returns a coroutine that raises {name}": returns_a_coroutine_that_raises(make)
        for name, make in ERRORS.items()
    },
    "awaits a cancelled task": awaits_a_cancelled_task,
    "awaits a cancelled future": awaits_a_cancelled_future,
    "awaits a group that fails": awaits_a_group_that_fails,
    "awaits itself": awaits_itself,
    "cancels itself": cancels_itself,
    "is cancelled by its own helper": is_cancelled_by_its_own_helper,
    "awaitable that yields no future": lambda: Waits(yields_no_future),
    "awaitable that raises at once": lambda: Waits(raises_at_once),
    "awaitable that returns itself": returns_itself,
    "generator": generator,
    "async generator": async_generator,
}

# --- the tests ------------------------------------------------------------------------------------


def _in_ascii(record: logging.LogRecord) -> bool:
    record.msg, record.args = ascii(logging.Formatter().format(record)), None
    record.exc_info = record.exc_text = None
    return True


@pytest.fixture(autouse=True)
def _logged_in_ascii() -> Iterator[None]:
    """Escape log messages after formatting: text that is not valid Unicode cannot be passed to the process
    that collects the logs of tests."""
    logger = logging.getLogger("headwater.worker")
    logger.addFilter(_in_ascii)
    yield
    logger.removeFilter(_in_ascii)


@pytest.mark.parametrize("shape", SHAPES)
async def test_every_end_of_a_handler_settles_its_delivery_and_frees_its_slot(shape: str) -> None:
    for name, end in ENDS.items():
        # Given one slot, and a handler of this shape that ends in this way at its first message
        app = App("headwater://memory")
        orders = Stream("orders", Order)
        calls: list[str] = []

        def at_first(end: End = end, calls: list[str] = calls) -> Any:
            calls.append("called")
            return end() if len(calls) == 1 else None

        handler = SHAPES[shape](at_first)
        app.consumer(orders, group="g", concurrency=1, max_deliveries=1)(handler)

        # When two messages arrive
        async with app.test() as t:
            await t.send(orders, Order(1))
            await t.send(orders, Order(2))

            # Then the first is a dead letter with its error, and the second is handled
            assert t.pending(handler) == {}, name
            assert len(calls) == 2, name
            (letter,) = t.dead(orders)
            assert letter.fields == [(b"id", b"1")], name
            assert letter.error, name


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_delivery_is_acknowledged_when_a_handler_of_any_shape_returns(shape: str) -> None:
    async def one() -> int:
        return 17

    async def nested() -> Any:
        return one()

    ends: list[End] = [lambda: None, lambda: 17, lambda: iter([]), one, nested]
    for end in ends:
        app = App("headwater://memory")
        orders = Stream("orders", Order)
        handler = SHAPES[shape](end)
        app.consumer(orders, group="g", concurrency=1, max_deliveries=1)(handler)
        async with app.test() as t:
            await t.send(orders, Order(1))
            assert (t.pending(handler), t.dead(orders)) == ({}, [])


@pytest.mark.parametrize("shape", BATCH_SHAPES)
async def test_every_end_of_a_batch_handler_settles_each_item_and_frees_its_slot(
    shape: str,
) -> None:
    for name, end in ENDS.items():
        # Given one slot, and a batch handler of this shape that ends in this way at its first batch
        app = App("headwater://memory")
        orders = Stream("orders", Order)
        calls: list[str] = []

        def at_first(end: End = end, calls: list[str] = calls) -> Any:
            calls.append("called")
            return end() if len(calls) == 1 else None

        handler = SHAPES[shape](at_first)
        app.batch(orders, group="g", size=3, linger="10ms", retry=RETRY)(handler)

        # When two items and an undecodable entry arrive, the items are retried, and two others arrive
        async with app.test() as t:
            await t.add(orders, {"id": "1"})
            await t.add(orders, {"id": "no number"})
            await t.add(orders, {"id": "3"})
            assert len(t.dead(orders)) == 1, name
            first = t.pending(handler)
            await t.advance("1s")
            await t.send(orders, Order(4), Order(5))
            await t.advance("1s")

            # Then each item has failed once, and everything is handled
            assert list(first.values()) == [1, 1], name
            assert t.pending(handler) == {}, name
            assert len(calls) == 3, name
            (letter,) = t.dead(orders)
            assert letter.fields == [(b"id", b"no number")], name
