"""Of many messages, only those that kill their process become dead letters."""

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
    monkeypatch.setattr("tests.waiting.PATIENCE_SECONDS", 300.0)
    for number in range(MESSAGES):
        order = shop.Order(number, do="segfault" if number in POISONED else "yield")
        await store.look.xadd("orders", dict(shop.orders.codec.encode(order)))

    # When the workers run until every message is settled
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

    # Then those eight are dead letters after two crashes in quarantine, and each other has one result
    letters = await store.dead()
    dead = sorted(int(dict(letter.fields)[b"id"]) for letter in letters)
    assert dead == POISONED
    assert all(letter.error.startswith("Crashes: 2 processes") for letter in letters)
    results = await store.results(shop.invoices)
    assert sorted(one.order for one in results) == [
        number for number in range(MESSAGES) if number not in POISONED
    ]
