"""The log has a line when a store becomes unreachable, and one when it answers again."""

from __future__ import annotations

import logging

import pytest

from headwater.worker.availability import Availability

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
