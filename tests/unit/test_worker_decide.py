"""`decide` as a table: outcome, deliveries so far, settlement."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest

from headwater.groups.settling.settling import Addition, How, Settlement
from headwater.messages.dead import DeadLetter, parse_dead_letter
from headwater.worker import Again, Backoff, Dead, Delivery, Stream
from headwater.worker.declare.decide import UNRECORDED_MS, Policy, decide
from headwater.worker.declare.outcome import (
    Condemned,
    Crashed,
    Exhausted,
    Lost,
    NotReturned,
    PoolProcessDied,
    Raised,
    Stopped,
    TimedOut,
    Undecodable,
    Unrecorded,
)
from headwater.worker.settle.results import Results

NOW = 1_700_000_000_000
RETRY = Policy(5, Backoff("1s", factor=2, ceiling="5m", jitter=0), "dead", Random(0))
AT_ONCE = RETRY._replace(retry=None)
RESULT = Addition("invoices", [(b"order", b"17")])
FAILURE = ValueError("no price")
SLOW = TimeoutError("it ran longer than 60 s")


def delivered(count: int) -> Delivery:
    return Delivery(
        "5-1", stream="orders", group="g", consumer="c", count=count, flat=[b"id", b"17"]
    )


def fail(delay_ms: int) -> Settlement:
    return Settlement(b"5-1", How.FAIL, delay_ms=delay_ms)


def not_counted(delay_ms: int) -> Settlement:
    return Settlement(b"5-1", How.SILENT, delay_ms=delay_ms)


def _named(value: object) -> str:
    """Name a test by its values. A policy's own text has the address of its random generator."""
    return repr(value.retry) if isinstance(value, Policy) else str(value)


TABLE: list[tuple[NotReturned, Policy, int, Settlement | None]] = [
    # failed: the delay of the retry policy grows with the deliveries
    (Raised(FAILURE), RETRY, 1, fail(1_000)),
    (Raised(FAILURE), RETRY, 4, fail(8_000)),
    (Raised(FAILURE), AT_ONCE, 4, fail(0)),
    (Raised(SystemExit(0)), RETRY, 1, fail(1_000)),
    (Raised(KeyboardInterrupt()), RETRY, 1, fail(1_000)),
    (TimedOut(SLOW), RETRY, 2, fail(2_000)),
    (Crashed(PoolProcessDied(-9), crashes=1), RETRY, 2, fail(2_000)),
    (Crashed(PoolProcessDied(-9)), RETRY, 9, fail(0)),
    # delayed by the handler
    (Raised(Again("10s")), RETRY, 4, fail(10_000)),
    (Raised(Again("0s")), RETRY, 4, fail(0)),
    (Raised(Again()), RETRY, 3, fail(4_000)),
    (Raised(Again("10s", counted=False)), RETRY, 5, not_counted(10_000)),
    (Raised(Again("10s", counted=False)), RETRY, 99, not_counted(10_000)),
    (Raised(Again(counted=False)), RETRY, 1, not_counted(1_000)),
    # the record of a dead letter could not be written
    (Unrecorded(FAILURE), RETRY, 5, fail(300_000)),
    (Unrecorded(FAILURE), AT_ONCE, 5, fail(UNRECORDED_MS)),
    # handed back, or lost
    (Stopped(), RETRY, 5, not_counted(0)),
    (Lost(), RETRY, 1, None),
]


@pytest.mark.parametrize(("outcome", "policy", "count", "expected"), TABLE, ids=_named)
def test_an_outcome_determines_the_settlement(
    outcome: NotReturned, policy: Policy, count: int, expected: Settlement | None
) -> None:
    found = decide(outcome, policy, delivered(count), NOW)
    assert found is None or not isinstance(found.additions, tuple) or found.additions == ()
    assert found == expected


DEAD: list[tuple[NotReturned, int, str, int]] = [
    (Raised(Dead("unknown customer")), 1, "headwater.Dead: unknown customer", 1),
    (Raised(FAILURE), 5, "ValueError: no price", 5),
    (Raised(FAILURE), 9, "ValueError: no price", 9),
    (Raised(Again("10s")), 5, "headwater.Again: again after 10s", 5),
    (TimedOut(SLOW), 5, "TimeoutError: it ran longer than 60 s", 5),
    (
        Crashed(PoolProcessDied(-11), crashes=2, condemned=True),
        3,
        "Crashes: 2 processes died while running it alone; its pool process was ended by SIGSEGV",
        3,
    ),
    (
        Crashed(PoolProcessDied(3), crashes=1),
        5,
        "headwater.PoolProcessDied: its pool process ended with status 3",
        5,
    ),
    (Undecodable(FAILURE), 1, "ValueError: no price", 1),
    (
        Exhausted(),
        6,
        "MaxDeliveries: delivered 5 times without being settled, max_deliveries is 5",
        5,
    ),
    (Condemned("Crashes: it died alone twice"), 6, "Crashes: it died alone twice", 5),
]


def test_excused_deliveries_count_neither_for_the_delay_nor_for_the_maximum() -> None:
    # Given the ninth delivery of an entry, seven of which ended because their process died
    delivery = delivered(9)
    delivery.excuse(7)

    # When it fails, then it is the second attempt
    assert decide(Raised(FAILURE), RETRY, delivery, NOW) == fail(2_000)


@pytest.mark.parametrize(("outcome", "count", "error", "deliveries"), DEAD, ids=str)
def test_a_final_failure_is_acknowledged_with_one_dead_letter(
    outcome: NotReturned, count: int, error: str, deliveries: int
) -> None:
    settlement = decide(outcome, RETRY, delivered(count), NOW)
    assert settlement is not None
    assert (settlement.id, settlement.how, settlement.delay_ms) == (b"5-1", How.ACK, 0)
    letter = letter_of(settlement)
    assert (letter.stream, letter.group, letter.consumer) == ("orders", "g", "c")
    assert (letter.entry_id, letter.fields) == ("5-1", [(b"id", b"17")])
    assert (letter.error, letter.deliveries) == (error, deliveries)
    assert letter.at == "2023-11-14T22:13:20.000Z"


def letter_of(settlement: Settlement) -> DeadLetter:
    (record,) = settlement.additions
    assert record.stream == "dead"
    return parse_dead_letter("0-0", [part for pair in record.fields for part in pair])


def test_an_error_that_cannot_be_printed_becomes_a_dead_letter() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    settlement = decide(Raised(Unprintable()), RETRY, delivered(5), NOW)
    assert settlement is not None
    assert letter_of(settlement).error.endswith(
        "Unprintable: (its __str__ raised ZeroDivisionError)"
    )


# --- results --------------------------------------------------------------------------------------


class Pair(NamedTuple):
    left: int
    right: int


def published(kind: Any, result: Any) -> list[list[tuple[bytes, bytes]]]:
    into: Stream[Any] = Stream("results", kind, codec="json")
    return [one.fields for one in Results(into, "handler").additions(result)]


def test_a_named_tuple_is_one_result() -> None:
    assert published(Pair, Pair(1, 2)) == [[(b"data", b"[1,2]")]]
    assert published(Pair, [Pair(1, 2), Pair(3, 4)]) == [
        [(b"data", b"[1,2]")],
        [(b"data", b"[3,4]")],
    ]


@pytest.mark.parametrize("kind", [list[int], tuple[int, ...], list[int] | None])
def test_messages_that_are_lists_are_not_split(kind: Any) -> None:
    assert published(kind, [1, 2]) == [[(b"data", b"[1,2]")]]


def test_a_list_of_messages_is_one_result_for_each() -> None:
    assert published(dict[str, int], [{"a": 1}, {"b": 2}]) == [
        [(b"data", b'{"a":1}')],
        [(b"data", b'{"b":2}')],
    ]
