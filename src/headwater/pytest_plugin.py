"""A pytest plugin with the fixture `headwater_worker`. It is registered when Headwater is installed and
imports the rest of Headwater only when a test uses the fixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headwater.worker.app import App
    from headwater.worker.sync_testing import SyncAppTest


@pytest.fixture
def headwater_worker() -> Iterator[Callable[..., SyncAppTest]]:
    """A pytest fixture that starts the worker of an app in a test without an event loop, and stops it after
    the test.

        def test_a_failed_bill_is_tried_again(headwater_worker):
            t = headwater_worker(app)
            t.send(orders, Order(id=17))
            t.advance("2s")
            assert t.deliveries(bill) == [1, 2]

    Calling it returns a `SyncAppTest`: the store is in memory, and only the test advances the clock.
    ``headwater_worker(app, use={open_db: FakeDb()})`` passes this value to handlers instead of the result of
    the provider ``open_db``. Several apps can run in one test. pytest finds the fixture if Headwater is
    installed.
    """
    with ExitStack() as stack:

        def start(app: App, *, use: Mapping[Callable[..., Any], Any] | None = None) -> SyncAppTest:
            from headwater.worker.sync_testing import SyncAppTest

            return stack.enter_context(SyncAppTest(app, use=use))

        yield start
