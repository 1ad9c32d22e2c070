"""A corrupted flight is wrong in exactly one way, and its dead letter says which."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.demo.corrupt import Corruption, corrupt, kind_of, plan
from headwater.demo.data import Flight
from headwater.demo.enrich import Enriched, Invalid, delay_class, enrich, on_a_clock
from headwater.errors import DecodeError
from headwater.messages import codec_for
from headwater.messages.codecs import DATA_FIELD

AIRLINES = {"UA": "United Air Lines Inc."}

FLIGHT = Flight(
    carrier="UA",
    flight=1545,
    origin="EWR",
    dest="IAH",
    day=date(2013, 1, 1),
    time_hour=datetime(2013, 1, 1, 10, tzinfo=UTC),
    sched_dep_time=515,
    sched_arr_time=819,
    distance=1400,
    tailnum="N14228",
    dep_time=517,
    dep_delay=2,
)


def handled(document: bytes) -> Enriched:
    """Process the document as a worker does: decode, validate, enrich."""
    flight = codec_for(Flight, "json").decode([(DATA_FIELD, document)])
    return enrich(flight, AIRLINES, source_id="5-1", worker="w", deliveries=1)


@given(seed=st.integers())
@pytest.mark.parametrize("kind", Corruption)
def test_every_corrupted_flight_is_refused_for_the_reason_of_its_kind(
    kind: Corruption, seed: int
) -> None:
    with pytest.raises((DecodeError, Invalid)) as refused:
        handled(corrupt(FLIGHT, kind, seed=seed))
    assert kind_of(str(refused.value)) == kind


def test_a_flight_that_is_not_corrupted_passes() -> None:
    ((_name, document),) = codec_for(Flight, "json").encode(FLIGHT)
    made = handled(document)
    assert made.airline == "United Air Lines Inc."
    assert made.delay_class == "on time"
    assert made.hour == 5


def test_a_reason_of_no_known_kind_is_reported_as_other() -> None:
    assert kind_of("ValueError: no") == "other"


@given(count=st.integers(0, 20_000), seed=st.integers())
def test_one_in_a_thousand_is_corrupted_and_each_kind_occurs(count: int, seed: int) -> None:
    corrupted = plan(count, seed=seed)
    assert len(corrupted) == min(count, max(round(count / 1000), 4))
    assert all(0 <= place < count for place in corrupted)
    kinds = Counter(corrupted.values())
    assert max(kinds.values(), default=0) - min(kinds.values(), default=0) <= 1
    assert corrupted == plan(count, seed=seed)


@given(hhmm=st.integers(-100, 10_000))
def test_a_time_on_a_clock_has_24_hours_of_60_minutes(hhmm: int) -> None:
    clock = {hour * 100 + minute for hour in range(24) for minute in range(60)} | {2400}
    assert on_a_clock(hhmm) == (hhmm in clock)


@pytest.mark.parametrize(
    ("minutes", "word"),
    [
        (None, "cancelled"),
        (-1, "early"),
        (0, "on time"),
        (15, "late"),
        (59, "late"),
        (60, "very late"),
    ],
)
def test_a_delay_is_classified(minutes: int | None, word: str) -> None:
    assert delay_class(minutes) == word
