"""Many messages that kill their process, among many that do not: no innocent is a dead letter."""

from __future__ import annotations

import signal

import pytest

from tests.worker import shop
from tests.worker.apps import Store, eventually
from tests.worker.processes import supervised

MESSAGES, POISON_EVERY, WORKERS = 400, 50, 4

POISONED = [number for number in range(MESSAGES) if number % POISON_EVERY == 10]


@pytest.mark.slow
@pytest.mark.slice
@pytest.mark.timeout(400)
async def test_eight_messages_of_400_that_segfault_are_the_only_dead_letters(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given 400 messages, of which eight kill their process, and four workers
    monkeypatch.setattr("tests.worker.apps.PATIENCE_SECONDS", 300.0)
    for number in range(MESSAGES):
        order = shop.Order(number, do="segfault" if number in POISONED else "yield")
        await store.look.xadd("orders", dict(shop.orders.codec.encode(order)))

    # When they work until all is settled
    with supervised(
        store.url,
        "--workers",
        str(WORKERS),
        SHOP_CLAIM_AFTER="500ms",
        SHOP_MAX_DELIVERIES="5",
    ) as parent:
        await eventually(store.settled)
        parent.signal(signal.SIGTERM)
        parent.wait()

    # Then the eight are dead letters, by two crashes alone, and each other has one result
    letters = await store.dead()
    buried = sorted(int(dict(letter.fields)[b"id"]) for letter in letters)
    assert buried == POISONED
    assert all(letter.error.startswith("Crashes: 2 processes") for letter in letters)
    results = await store.results(shop.invoices)
    assert sorted(one.order for one in results) == [
        number for number in range(MESSAGES) if number not in POISONED
    ]
