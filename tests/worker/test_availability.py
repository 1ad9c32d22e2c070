"""The log has a line when a store becomes unreachable, and one when it answers again."""

from __future__ import annotations

import logging

import pytest

from headwater.groups.protocol.operation import Refused
from headwater.worker import App
from headwater.worker.store.connections import Availability
from tests.worker.apps import Order, eventually, orders, working

REFUSED = ConnectionRefusedError("Error 111 connecting to localhost:1. Connection refused.")


def test_a_store_that_never_answered_is_logged_as_unreachable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a worker that starts before its store
    now = 0.0
    store = Availability("redis://ann:secret@localhost:1", monotonic=lambda: now)
    store.troubled("reader of orders/g", REFUSED, pause=0.1)
    store.troubled("publisher", REFUSED, pause=0.1)
    now = 3.0
    store.well("reader of orders/g")
    store.well("publisher")

    # Then the log says that it cannot be reached
    first, last = caplog.messages
    assert first == (
        "the store redis://***@localhost:1 cannot be reached (reader of orders/g): Error 111 "
        "connecting to localhost:1. Connection refused; trying again until it answers"
    )
    assert last == "the store redis://***@localhost:1 answers after 3.0 s"


def test_a_store_that_answered_before_is_logged_as_gone_and_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    now = 0.0
    store = Availability("redis://localhost:1", monotonic=lambda: now)
    store.well("reader of orders/g")
    store.troubled("reader of orders/g", REFUSED, pause=0.1)
    now = 1.5
    store.well("reader of orders/g")
    assert [line.split(" (")[0].split(": ")[0] for line in caplog.messages] == [
        "the store redis://localhost:1 does not answer",
        "the store redis://localhost:1 answers again after 1.5 s",
    ]


LOADING = Refused("LOADING Redis is loading the dataset in memory", "LOADING")
FULL = Refused("MISCONF the disk is full", "MISCONF")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The messages without address, cause and time."""
    return [
        line.removeprefix("the store redis://localhost:1 ").split(" (")[0].split(" after")[0]
        for line in caplog.messages
    ]


def test_a_part_that_stops_using_the_store_does_not_say_that_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given two parts that cannot reach the store
    store = Availability("redis://localhost:1")
    for who in ("reader", "settler"):
        store.troubled(who, REFUSED, pause=0.1)
    # When both stop, then nothing is said, and the next outage is logged as the first was
    for who in ("reader", "settler"):
        store.left(who)
    store.troubled("reader", REFUSED, pause=0.1)
    assert lines(caplog) == ["cannot be reached", "cannot be reached"]


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        # The store refuses writes, and then it is away: it does not accept writes
        ([FULL, REFUSED], ["refuses writes", "does not answer", "answers again"]),
        # The store is away, and then it refuses writes: it answers
        (
            [REFUSED, FULL],
            ["does not answer", "answers again", "refuses writes", "accepts writes again"],
        ),
        ([REFUSED, LOADING], ["does not answer", "answers again"]),
    ],
)
def test_an_outage_that_changes_says_only_what_the_store_has_done(
    caplog: pytest.LogCaptureFixture, errors: list[Exception], said: list[str]
) -> None:
    store = Availability("redis://localhost:1")
    store.well("reader")
    for error in errors:
        store.troubled("reader", error, pause=0.1)
    store.well("reader")
    assert lines(caplog) == said


async def test_a_worker_whose_store_was_never_there_does_not_say_that_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a worker with two consumers, whose leases are short, and an address at which nothing listens
    caplog.set_level(logging.DEBUG, "headwater.worker")
    app = App("redis://127.0.0.1:1")
    for group, handler in (("g", handle), ("h", handle_too)):
        app.consumer(orders, group=group, lease="100ms", claim_after="300ms")(handler)
    # When all parts have tried again and again, also after their leases were due, and it stops
    async with working(app):
        await eventually(lambda: sum("trying again in" in one for one in caplog.messages) > 8)
    # Then one line says that it cannot be reached, and none that it answers
    told = [one for one in caplog.messages if one.startswith("the store ")]
    assert len(told) == 1
    assert "cannot be reached" in told[0]


async def handle(order: Order) -> None:
    """Do nothing."""


async def handle_too(order: Order) -> None:
    """Do nothing."""
