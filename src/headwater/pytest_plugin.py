"""A pytest plugin: the fixture `headwater_worker`. Installed with Headwater, it imports nothing of it
until a test asks for the fixture."""

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
    """Starts the worker of an app in a test that is not async, and stops it after the test:
    ``t = headwater_worker(app)``. The store is in memory, the clock the test's own.
    ``use={open_db: FakeDb()}`` replaces dependencies."""
    with ExitStack() as stack:

        def start(app: App, *, use: Mapping[Callable[..., Any], Any] | None = None) -> SyncAppTest:
            from headwater.worker.sync_testing import SyncAppTest

            return stack.enter_context(SyncAppTest(app, use=use))

        yield start
