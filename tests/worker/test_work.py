"""``headwater work`` for a new user: its log, consumer names and address."""

from __future__ import annotations

import json
import signal

import pytest

from headwater.worker import App
from tests.worker.apps import Order, Store, eventually, one_store, orders, working
from tests.worker.processes import supervised

pytestmark = pytest.mark.slow


@one_store
async def test_the_log_can_be_json(store: Store) -> None:
    with supervised(store.url, "--log-format", "json") as parent:
        await eventually(lambda: "reads orders as" in parent.log())
        parent.signal(signal.SIGTERM)
        parent.wait()
        lines = [json.loads(line) for line in parent.log().splitlines()]
    (joined,) = [line for line in lines if "reads orders as" in line["message"]]
    assert joined["logger"] == "headwater.worker"
    assert joined["level"] == "INFO"
    assert joined["pid"] != parent.pid


@one_store
async def test_the_log_level_is_an_option(store: Store) -> None:
    with supervised(store.url, "--log-level", "warning") as parent:
        await eventually(store.consumers_if_any)
        parent.signal(signal.SIGTERM)
        parent.wait()
        assert parent.log() == ""


async def test_client_list_has_the_names_of_consumers(store: Store) -> None:
    app = store.app()

    @app.consumer(orders, group="g")
    async def handle(order: Order) -> None: ...

    async with working(app):
        await eventually(store.consumers_if_any)
        (consumer,) = await store.consumers()
        names = [one["name"] for one in await store.look.client_list()]
    assert names.count(consumer) == 1


@one_store
async def test_an_app_without_a_url_uses_the_environment_variable(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_URL", store.url)
    assert App().url == store.url
    assert App("redis://elsewhere").url == "redis://elsewhere"
    monkeypatch.delenv("HEADWATER_URL")
    assert App().url == "redis://localhost:6379"
