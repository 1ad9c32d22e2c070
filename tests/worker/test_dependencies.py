"""Dependencies are opened once in their scope, closed in reverse order, and do not change an outcome."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import pytest

from headwater.errors import DeclarationError, HeadwaterError
from headwater.worker import App, Delivery, Use
from headwater.worker.declare.open_apps import open_apps
from tests.worker.apps import Order, Store, eventually, orders
from tests.worker.runs import run

calls: list[str] = []
"""Calls that the providers of this module made."""


@pytest.fixture(autouse=True)
def _clear_calls() -> None:
    calls.clear()


class Db:
    def __init__(self, name: str = "db") -> None:
        self.name = name


# --- providers ------------------------------------------------------------------------------------


def plain() -> Db:
    calls.append("plain")
    return Db()


async def waiting() -> Db:
    await asyncio.sleep(0)
    calls.append("waiting")
    return Db()


def generator() -> Iterator[Db]:
    calls.append("open generator")
    yield Db()
    calls.append("close generator")


async def async_generator() -> AsyncIterator[Db]:
    calls.append("open async generator")
    yield Db()
    calls.append("close async generator")


@contextmanager
def managed() -> Iterator[Db]:
    calls.append("open managed")
    yield Db()
    calls.append("close managed")


@asynccontextmanager
async def async_managed() -> AsyncIterator[Db]:
    calls.append("open async managed")
    yield Db()
    calls.append("close async managed")


class Manager:
    def __enter__(self) -> Db:
        calls.append("open Manager")
        return Db()

    def __exit__(self, *error: object) -> None:
        calls.append("close Manager")


class AsyncManager:
    async def __aenter__(self) -> Db:
        calls.append("open AsyncManager")
        return Db()

    async def __aexit__(self, *error: object) -> None:
        calls.append("close AsyncManager")


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
"""Every kind of provider, and its calls from its opening to its closing."""

IN_THREAD = [plain, generator, managed, Manager, Db]


def provided(provider: Any, scope: Any) -> Callable[..., Any]:
    """A handler that depends on ``provider``. The annotation is set here, where the provider is known."""

    async def handle(order: Order, db: Any) -> None:
        assert isinstance(db, Db)
        calls.append(f"handle {order.id}")

    handle.__annotations__["db"] = Annotated[Db, Use(provider, scope=scope)]
    return handle


def provided_in_thread(provider: Any, scope: Any) -> Callable[..., Any]:
    """Like `provided`, but not ``async``."""

    def handle(order: Order, db: Any) -> None:
        assert isinstance(db, Db)
        calls.append(f"handle {order.id}")

    handle.__annotations__["db"] = Annotated[Db, Use(provider, scope=scope)]
    return handle


# --- scopes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_process_dependency_is_open_from_the_first_delivery_to_the_stop(
    provider: Any,
) -> None:
    # Given a handler, async or not, that depends on it
    for make in (provided, provided_in_thread):
        calls.clear()
        app = App("headwater://memory")
        app.consumer(orders, group="g", concurrency=1)(make(provider, "process"))

        # When it handles two messages
        async with app.test() as t:
            await t.send(orders, Order(1), Order(2))

        # Then the dependency was opened once and closed once
        opened, closed = PROVIDERS[provider][:1], PROVIDERS[provider][1:]
        assert calls == [*opened, "handle 1", "handle 2", *closed]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_delivery_dependency_is_open_while_the_handler_runs(provider: Any) -> None:
    for make in (provided, provided_in_thread):
        calls.clear()
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
        assert calls == [*opened, "handle 1", *closed, *opened, "handle 2", *closed]


def in_this_thread() -> Iterator[int]:
    yield threading.get_ident()
    calls.append(f"closed in {threading.get_ident()}")


async def test_a_delivery_dependency_is_opened_and_closed_in_the_thread_of_its_handler() -> None:
    app = App("headwater://memory")
    threads: list[tuple[int, int]] = []

    @app.consumer(orders, group="g")
    def handle(order: Order, ident: Annotated[int, Use(in_this_thread, scope="delivery")]) -> None:
        threads.append((ident, threading.get_ident()))

    async with app.test() as t:
        await t.send(orders, Order(1))
    ((opened, handled),) = threads
    assert opened == handled != threading.get_ident()
    assert calls == [f"closed in {handled}"]


# --- dependencies of dependencies -----------------------------------------------------------------


async def open_pool() -> AsyncIterator[str]:
    calls.append("open pool")
    yield "pool"
    calls.append("close pool")


async def open_cache(pool: Annotated[str, Use(open_pool)]) -> AsyncIterator[str]:
    calls.append("open cache")
    yield f"cache on {pool}"
    calls.append("close cache")


async def open_session(
    pool: Annotated[str, Use(open_pool)], delivery: Delivery
) -> AsyncIterator[str]:
    calls.append(f"open session for {delivery.count}")
    yield f"session on {pool}"
    calls.append("close session")


Session = Annotated[str, Use(open_session, scope="delivery")]


async def test_a_shared_dependency_is_opened_once_before_its_dependents_and_closed_after_them(
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
    assert calls == [
        "open pool",
        "open cache",
        "open session for 1",
        "close session",
        "close cache",
        "close pool",
    ]


# --- in tests -------------------------------------------------------------------------------------


async def test_a_test_can_replace_a_provider() -> None:
    # Given a handler that depends on a session, which depends on a pool
    app = App("headwater://memory")
    got: list[str] = []

    @app.consumer(orders, group="g")
    async def bill(order: Order, session: Session, cache: Annotated[str, Use(open_cache)]) -> None:
        got.extend((session, cache))

    # When the test replaces the session, then neither it nor what only it needs is opened
    async with app.test(use={open_session: "fake", open_cache: "fake too"}) as t:
        await t.send(orders, Order(1))
    assert got == ["fake", "fake too"]
    assert calls == []

    # And when the test replaces the pool, then its dependents get the replacement
    async with app.test(use={open_pool: "fake"}) as t:
        await t.send(orders, Order(1))
    assert got[2:] == ["session on fake", "cache on fake"]
    with pytest.raises(HeadwaterError, match="nothing needs plain: it cannot be replaced"):
        async with app.test(use={plain: "fake"}):
            pass
    assert app not in open_apps()


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
        (needs_too_much, "process", "there is no value for parameter 'unknown'"),
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


def test_an_invalid_use_is_refused() -> None:
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
