"""Dependencies are opened once in their scope, closed in reverse order, and never decide an outcome."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import pytest

from headwater.errors import DeclarationError
from headwater.worker import Again, App, Dead, Delivery, Use
from headwater.worker.lifespan import StartFailed
from tests.worker.apps import Invoice, Order, Store, eventually, invoices, orders
from tests.worker.runs import run

said: list[str] = []
"""What the providers of this module did."""


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    said.clear()


class Db:
    def __init__(self, name: str = "db") -> None:
        self.name = name


# --- providers ------------------------------------------------------------------------------------


def plain() -> Db:
    said.append("plain")
    return Db()


async def waiting() -> Db:
    await asyncio.sleep(0)
    said.append("waiting")
    return Db()


def generator() -> Iterator[Db]:
    said.append("open generator")
    yield Db()
    said.append("close generator")


async def async_generator() -> AsyncIterator[Db]:
    said.append("open async generator")
    yield Db()
    said.append("close async generator")


@contextmanager
def managed() -> Iterator[Db]:
    said.append("open managed")
    yield Db()
    said.append("close managed")


@asynccontextmanager
async def async_managed() -> AsyncIterator[Db]:
    said.append("open async managed")
    yield Db()
    said.append("close async managed")


class Manager:
    def __enter__(self) -> Db:
        said.append("open Manager")
        return Db()

    def __exit__(self, *error: object) -> None:
        said.append("close Manager")


class AsyncManager:
    async def __aenter__(self) -> Db:
        said.append("open AsyncManager")
        return Db()

    async def __aexit__(self, *error: object) -> None:
        said.append("close AsyncManager")


PROVIDERS: dict[Any, list[str]] = {
    plain: ["plain"],
    waiting: ["waiting"],
    generator: ["open generator", "close generator"],
    async_generator: ["open async generator", "close async generator"],
    managed: ["open managed", "close managed"],
    async_managed: ["open async managed", "close async managed"],
    Manager: ["open Manager", "close Manager"],
    AsyncManager: ["open AsyncManager", "close AsyncManager"],
    Db: [],
}
"""Every kind of provider, and what it says from its opening to its closing."""

IN_THREAD = [plain, generator, managed, Manager, Db]


def provided(provider: Any, scope: Any) -> Callable[..., Any]:
    """A handler that needs ``provider``. Annotated here, where the provider has a name."""

    async def handle(order: Order, db: Any) -> None:
        assert isinstance(db, Db)
        said.append(f"handle {order.id}")

    handle.__annotations__["db"] = Annotated[Db, Use(provider, scope=scope)]
    return handle


def provided_in_thread(provider: Any, scope: Any) -> Callable[..., Any]:
    """The same, and not ``async``."""

    def handle(order: Order, db: Any) -> None:
        assert isinstance(db, Db)
        said.append(f"handle {order.id}")

    handle.__annotations__["db"] = Annotated[Db, Use(provider, scope=scope)]
    return handle


# --- scopes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_dependency_of_the_process_is_open_from_the_first_delivery_to_the_stop(
    provider: Any,
) -> None:
    # Given a handler, async or not, that needs it
    for make in (provided, provided_in_thread):
        said.clear()
        app = App("headwater://memory")
        app.consumer(orders, group="g", concurrency=1)(make(provider, "process"))

        # When it handles two messages
        async with app.test() as t:
            await t.send(orders, Order(1), Order(2))

        # Then it was opened once, and closed once
        opened, closed = PROVIDERS[provider][:1], PROVIDERS[provider][1:]
        assert said == [*opened, "handle 1", "handle 2", *closed]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_dependency_of_a_delivery_is_open_while_the_handler_runs(provider: Any) -> None:
    for make in (provided, provided_in_thread):
        said.clear()
        app = App("headwater://memory")
        handle = make(provider, "delivery")
        if make is provided_in_thread and provider not in IN_THREAD:
            # A thread has no event loop.
            with pytest.raises(DeclarationError, match="cannot be opened for a delivery"):
                app.consumer(orders, group="g")(handle)
            continue
        app.consumer(orders, group="g", concurrency=1)(handle)
        async with app.test() as t:
            await t.send(orders, Order(1), Order(2))
        opened, closed = PROVIDERS[provider][:1], PROVIDERS[provider][1:]
        assert said == [*opened, "handle 1", *closed, *opened, "handle 2", *closed]


def in_this_thread() -> Iterator[int]:
    yield threading.get_ident()
    said.append(f"closed in {threading.get_ident()}")


async def test_a_dependency_of_a_delivery_lives_in_the_thread_of_its_handler() -> None:
    app = App("headwater://memory")
    threads: list[tuple[int, int]] = []

    @app.consumer(orders, group="g")
    def handle(order: Order, ident: Annotated[int, Use(in_this_thread, scope="delivery")]) -> None:
        threads.append((ident, threading.get_ident()))

    async with app.test() as t:
        await t.send(orders, Order(1))
    ((opened, handled),) = threads
    assert opened == handled != threading.get_ident()
    assert said == [f"closed in {handled}"]


# --- dependencies of dependencies -----------------------------------------------------------------


async def open_pool() -> AsyncIterator[str]:
    said.append("open pool")
    yield "pool"
    said.append("close pool")


async def open_cache(pool: Annotated[str, Use(open_pool)]) -> AsyncIterator[str]:
    said.append("open cache")
    yield f"cache on {pool}"
    said.append("close cache")


async def open_session(
    pool: Annotated[str, Use(open_pool)], delivery: Delivery
) -> AsyncIterator[str]:
    said.append(f"open session for {delivery.count}")
    yield f"session on {pool}"
    said.append("close session")


Session = Annotated[str, Use(open_session, scope="delivery")]


async def test_what_several_need_is_opened_once_before_them_and_closed_after_them(
    store: Store,
) -> None:
    app = store.app()
    got: list[str] = []

    @app.consumer(orders, group="g")
    async def bill(order: Order, session: Session, cache: Annotated[str, Use(open_cache)]) -> None:
        got.extend((session, cache))

    @app.consumer(orders, group="h")
    async def load(order: Order, *, pool: Annotated[str, Use(open_pool)]) -> None:
        got.append(pool)

    async with run(app):
        await app.send(orders, Order(1))
        await eventually(lambda: len(got) == 3)
        await eventually(store.settled)
    assert sorted(got) == ["cache on pool", "pool", "session on pool"]
    assert said == [
        "open pool",
        "open cache",
        "open session for 1",
        "close session",
        "close cache",
        "close pool",
    ]


# --- failures -------------------------------------------------------------------------------------


failing: dict[str, BaseException] = {}
"""What ``fragile`` raises when it opens and when it closes."""


async def fragile() -> AsyncIterator[str]:
    if "open" in failing:
        raise failing["open"]
    try:
        yield "fragile"
    except BaseException as error:
        said.append(f"saw {type(error).__name__}")
        if "suppress" not in failing:
            raise
    if "close" in failing:
        raise failing["close"]


Fragile = Annotated[str, Use(fragile, scope="delivery")]


@pytest.fixture
def fail() -> Iterator[dict[str, BaseException]]:
    failing.clear()
    yield failing
    failing.clear()


@pytest.mark.parametrize("when", ["open", "close"])
@pytest.mark.parametrize("error", [ConnectionError("no database"), SystemExit(3), StopIteration()])
async def test_a_dependency_that_fails_fails_the_delivery(
    when: str, error: BaseException, fail: dict[str, BaseException]
) -> None:
    # Given a dependency that fails to open, or to commit at its closing
    app = App("headwater://memory")
    fail[when] = error

    @app.consumer(orders, group="g", into=invoices)
    async def bill(order: Order, what: Fragile) -> Invoice:
        return Invoice(order.id)

    async with app.test() as t:
        await t.send(orders, Order(1))
        assert t.results(invoices) == []

        # When it works again, then the message is handled
        fail.clear()
        await t.advance("2s")
        assert t.results(invoices) == [Invoice(1)]
        assert t.deliveries(bill) == [1, 2]


async def test_a_dependency_sees_the_error_of_the_handler_and_cannot_suppress_it(
    fail: dict[str, BaseException],
) -> None:
    app = App("headwater://memory")
    fail["suppress"] = ValueError()

    @app.consumer(orders, group="g")
    async def bill(order: Order, what: Fragile) -> None:
        raise Dead("unknown customer")

    async with app.test() as t:
        await t.send(orders, Order(1))
        (letter,) = t.dead(orders)
        assert letter.error == "headwater.Dead: unknown customer"
    assert said == ["saw Dead"]


async def test_the_handlers_own_error_counts_more_than_that_of_closing(
    fail: dict[str, BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    app = App("headwater://memory")
    fail.update(suppress=ValueError(), close=ConnectionError("no rollback"))

    @app.consumer(orders, group="g")
    async def bill(order: Order, what: Fragile) -> None:
        raise Dead("unknown customer")

    async with app.test() as t:
        await t.send(orders, Order(1))
        (letter,) = t.dead(orders)
        assert letter.error == "headwater.Dead: unknown customer"
    assert "closing what" in caplog.text
    assert "no rollback" in caplog.text


async def test_a_result_that_cannot_be_published_is_an_error_to_a_dependency(
    fail: dict[str, BaseException],
) -> None:
    # Given a handler that returns what its stream does not hold, and a transaction
    app = App("headwater://memory")

    @app.consumer(orders, group="g", into=invoices, max_deliveries=1)
    async def bill(order: Order, what: Fragile) -> Any:
        return "no invoice"

    # Then the transaction is not committed
    async with app.test() as t:
        await t.send(orders, Order(1))
        assert len(t.dead(orders)) == 1
    assert said == ["saw TypeError"]


async def hanging() -> AsyncIterator[str]:
    try:
        said.append("hangs")
        await asyncio.Event().wait()
        yield ""
    finally:
        said.append("let go")


async def test_a_dependency_that_hangs_is_cancelled_at_the_timeout() -> None:
    app = App("headwater://memory")

    @app.consumer(orders, group="g", timeout="1s", max_deliveries=1)
    async def bill(
        order: Order,
        pool: Annotated[str, Use(open_pool, scope="delivery")],
        what: Annotated[str, Use(hanging, scope="delivery")],
    ) -> None: ...

    async with app.test() as t:
        await t.send(orders, Order(1))
        await t.advance("1s")
        (letter,) = t.dead(orders)
        assert letter.error == "TimeoutError: it ran longer than 1 s"
    # And what was open by then is closed: its generator got the cancellation.
    assert said == ["open pool", "hangs", "let go"]


async def test_a_stop_closes_what_interrupted_handlers_hold(store: Store) -> None:
    app = store.app(grace="0s")

    @app.consumer(orders, group="g")
    async def bill(order: Order, db: Annotated[Db, Use(async_generator)], what: Fragile) -> None:
        said.append("begun")
        await asyncio.Event().wait()

    async with run(app):
        await app.send(orders, Order(1))
        await eventually(lambda: "begun" in said)
    assert said == ["open async generator", "begun", "saw CancelledError", "close async generator"]


# --- the process's own ----------------------------------------------------------------------------


async def broken() -> Db:
    raise ConnectionError("no database")


async def leaving() -> Db:
    raise SystemExit(0)


async def confused() -> Db:
    raise asyncio.CancelledError


@pytest.mark.parametrize("provider", [broken, leaving, confused])
async def test_a_worker_whose_dependency_cannot_be_opened_reads_nothing_and_says_which(
    provider: Any,
) -> None:
    # Given two dependencies, of which the second one fails
    app = App("headwater://memory")
    handle = provided(provider, "process")
    handle.__annotations__["order"] = Order

    async def first(order: Order, pool: Annotated[str, Use(open_pool)]) -> None: ...

    app.consumer(orders, group="f")(first)
    app.consumer(orders, group="g")(handle)

    # When the app runs, then it ends with an error that names it, and the first one is closed
    with pytest.raises(StartFailed, match=f"^{provider.__name__} failed at the start: "):
        await app.run()
    with pytest.raises(StartFailed):
        async with app.test():
            pass
    assert said == ["open pool", "close pool"] * 2


async def test_a_stop_is_heard_while_a_dependency_is_opened(store: Store) -> None:
    app = store.app()

    @app.consumer(orders, group="g")
    async def bill(order: Order, what: Annotated[str, Use(hanging)]) -> None: ...

    async with run(app):
        await eventually(lambda: said == ["hangs"])
    assert said == ["hangs", "let go"]
    assert not await store.look.exists("orders")


async def closes_badly() -> AsyncIterator[str]:
    yield ""
    said.append("bad")
    raise ValueError("as it was told")


async def test_an_error_in_closing_is_logged_and_the_others_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App("headwater://memory")

    @app.consumer(orders, group="g")
    async def bill(
        order: Order,
        pool: Annotated[str, Use(open_pool)],
        bad: Annotated[str, Use(closes_badly)],
        cache: Annotated[str, Use(open_cache)],
    ) -> None: ...

    async with app.test():
        pass
    assert said == ["open pool", "open cache", "close cache", "bad", "close pool"]
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert record.getMessage() == "closing closes_badly failed"


async def stuck_at_the_end() -> AsyncIterator[str]:
    yield ""
    said.append("stuck")
    await asyncio.Event().wait()


async def test_a_dependency_that_does_not_close_holds_up_no_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.worker.lifespan.CLOSING_SECONDS", 0.01)
    app = App("headwater://memory")

    @app.consumer(orders, group="g")
    async def bill(
        order: Order,
        pool: Annotated[str, Use(open_pool)],
        bad: Annotated[str, Use(stuck_at_the_end)],
    ) -> None: ...

    async with run(app):
        await eventually(lambda: "open pool" in said)
        await asyncio.sleep(0.01)
    assert said == ["open pool", "stuck", "close pool"]
    assert "closing stuck_at_the_end was cancelled" in caplog.text


async def test_a_dependency_lives_through_the_crash_of_another_worker() -> None:
    # App.test() crashes one worker; the process with its dependencies lives.
    app = App("headwater://memory")

    @app.consumer(orders, group="g")
    async def bill(order: Order, db: Annotated[Db, Use(async_generator)]) -> None:
        if order.id == 1:
            raise Again("10s")

    async with app.test() as t:
        await t.send(orders, Order(1))
        t.crash(bill)
        await t.send(orders, Order(2))
        assert said == ["open async generator"]


# --- declarations ---------------------------------------------------------------------------------


def needs_itself(other: Annotated[str, Use(lambda: "")]) -> str:
    return other


needs_itself.__annotations__["other"] = Annotated[str, Use(needs_itself)]


def needs_too_much(unknown: str) -> str:
    return unknown


def keeps_a_session(session: Session) -> str:
    return session


def keeps_a_delivery(delivery: Delivery) -> str:
    return delivery.id


@pytest.mark.parametrize(
    ("provider", "scope", "complaint"),
    [
        (needs_itself, "process", "needs itself: needs_itself → needs_itself"),
        (needs_too_much, "process", "nothing is known to give to parameter 'unknown'"),
        (keeps_a_session, "process", "needs open_session, which has the scope of a delivery"),
        (keeps_a_delivery, "process", "where there is no Delivery"),
    ],
)
def test_a_dependency_that_cannot_be_opened_is_refused_at_its_declaration(
    provider: Any, scope: Any, complaint: str
) -> None:
    app = App("headwater://memory")
    with pytest.raises(DeclarationError, match=complaint):
        app.consumer(orders, group="g")(provided(provider, scope))


def test_a_use_that_makes_no_sense_is_refused() -> None:
    app = App("headwater://memory")
    wrong: list[tuple[Any, Any, str]] = [
        ("open_db", "process", "expected a function or a class"),
        (plain, "request", "scope='request' must be one of process, delivery"),
    ]
    for provider, scope, complaint in wrong:
        with pytest.raises(DeclarationError, match=complaint):
            Use(provider, scope=scope)

    def local() -> str:
        return ""

    async def unresolved(order: Order, what: Annotated[str, Use(local)] = "") -> None: ...

    async def without_provider(order: Order, what: Annotated[str, Use] = "") -> None: ...

    async def twice(order: Order, what: Annotated[str, Use(plain), Use(waiting)] = "") -> None: ...

    for handler, complaint in (
        (unresolved, r"the annotation of 'what' cannot be resolved .*name 'local' is not defined"),
        (without_provider, r"expected one Use\(provider\)"),
        (twice, r"expected one Use\(provider\)"),
    ):
        with pytest.raises(DeclarationError, match=complaint):
            app.consumer(orders, group="g")(handler)
