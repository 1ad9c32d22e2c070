"""Missing entries are detected from the stream's counters, and never ignored."""

from __future__ import annotations

import logging

import pytest

from headwater.common.model import MIN_ID, StreamID
from headwater.errors import DataLoss, DeclarationError
from headwater.spark.core.completeness import (
    Finding,
    LastSeen,
    judge,
    judge_range,
    report,
    set_back,
    was_set_back,
)
from headwater.spark.core.options import QUERY, SourceOptions, parse_options
from headwater.spark.core.positions import Position, ReadSpan, StreamState
from headwater.spark.log_mode.offsets import (
    end_offset,
    initial_offset,
    positions_of,
    query_of,
    spans_of,
)

AT = Position(StreamID(5, 0), 10)


def state(
    *, length: int = 4, last: int = 9, deleted: int = 0, added: int = 14, first: int = 6
) -> StreamState:
    return StreamState(length, StreamID(last, 0), StreamID(deleted, 0), added, StreamID(first, 0))


def options(**given: str) -> SourceOptions:
    return parse_options({"url": "redis://localhost", "stream": "s"} | given)


def test_a_stream_with_all_added_entries_is_complete() -> None:
    assert judge("s", AT, state(), live=4) is None


def test_fewer_entries_without_a_deletion_in_the_range_are_loss() -> None:
    found = judge("s", AT, state(deleted=5), live=1)

    assert found is not None
    assert found.certain
    assert "3 of 4 entries after 5-0 up to 9-0" in found.text


def test_fewer_entries_with_a_deletion_in_the_range_are_uncertain() -> None:
    found = judge("s", AT, state(deleted=7), live=1)

    assert found is not None
    assert not found.certain


@pytest.mark.parametrize(("added", "live"), [(9, 1), (12, 4)])
def test_more_entries_than_were_added_mean_another_stream(added: int, live: int) -> None:
    found = judge("s", AT, state(added=added, deleted=7), live=live)

    assert found is not None
    assert found.certain


def test_a_stream_that_ends_before_the_position_was_set_back() -> None:
    assert was_set_back(AT, None)
    assert was_set_back(AT, state(last=4))
    assert not was_set_back(AT, state(last=5))
    assert not was_set_back(Position(MIN_ID, 0), None)
    assert set_back("s", AT, state(last=4)).certain
    assert "the key is gone" in set_back("s", AT, None).text


def test_a_range_is_checked_when_it_is_read() -> None:
    start, end = StreamID(5, 0), StreamID(9, 0)

    def judged(found: int, at: StreamState | None) -> Finding | None:
        return judge_range("s", start, end, expected=4, found=found, state=at)

    assert judged(4, state()) is None
    trimmed, deleted = judged(3, state()), judged(3, state(deleted=6))
    assert trimmed
    assert trimmed.certain
    assert deleted
    assert not deleted.certain
    for at, found in ((None, 0), (state(last=8), 3), (state(deleted=6), 5)):
        finding = judged(found, at)
        assert finding
        assert finding.certain


@pytest.mark.parametrize(
    ("certain", "given", "fails"),
    [
        (True, {}, True),
        (False, {}, True),
        (True, {"ignoreDeletes": "true"}, True),
        (False, {"ignoreDeletes": "true"}, False),
        (True, {"failOnDataLoss": "false"}, False),
        (False, {"failOnDataLoss": "false"}, False),
    ],
)
def test_options_decide_between_an_error_and_a_warning(
    certain: bool, given: dict[str, str], fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    finding = Finding("s", certain=certain, text="stream 's': 3 of 4 entries were removed")

    with caplog.at_level(logging.WARNING, "headwater.spark"):
        if fails:
            with pytest.raises(DataLoss, match="3 of 4 entries") as raised:
                report(finding, options(**given))
            assert ("failOnDataLoss" if certain else "ignoreDeletes") in str(raised.value)
        else:
            report(finding, options(**given))

    assert bool(caplog.messages) is not fails


def test_an_offset_describes_its_batch_and_can_be_written_as_json() -> None:
    span = ReadSpan(Position(StreamID(5, 0), 10), Position(StreamID(9, 3), 14))

    offset = end_offset({"s": span})

    assert offset == {"s": {"from": "5-0", "added_from": 10, "to": "9-3", "added_to": 14}}
    assert spans_of(offset) == {"s": span}
    assert positions_of(offset) == {"s": span.end}


def test_the_offset_before_the_first_batch_differs_from_every_later_one() -> None:
    before = initial_offset({"s": AT})

    assert before != end_offset({"s": ReadSpan(AT, AT)})
    assert positions_of(before) == {"s": AT}
    assert spans_of(before) == {}


def test_a_checkpoint_of_group_mode_is_reported_as_such() -> None:
    of_a_group = {"group": "g", "consumer": "spark", "batch": 7, "streams": {"s": {"seen": "9-3"}}}

    with pytest.raises(DeclarationError, match="with the option group"):
        positions_of(of_a_group)


def test_the_querys_own_id_is_not_a_stream() -> None:
    span = ReadSpan(AT, AT)
    offset = end_offset({"s": span}, query="q")

    assert query_of(offset) == "q"
    assert query_of({"s": {}}) is None
    assert spans_of(offset) == {"s": span}
    assert positions_of(initial_offset({"s": AT}, query="q")) == {"s": AT}
    with pytest.raises(DeclarationError, match="is a reserved name"):
        options(stream=f"s,{QUERY}")


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (state(added=13), "entries-added went back from 14 to 13"),
        (state(last=8), "last-generated-id went back from 9-0 to 8-0"),
        (state(deleted=6), "max-deleted-entry-id went back from 7-0 to 6-0"),
        (state(length=5, deleted=7), "the number of removed entries went back from 10 to 9"),
        (state(first=5, deleted=7), "the first entry went back from 6-0 to 5-0"),
        (None, "the key is gone; it had counted 14 added"),
        (state(deleted=7), None),
        (state(length=0, last=20, deleted=9, added=15, first=0), None),
    ],
)
def test_a_decreasing_counter_means_another_stream(
    now: StreamState | None, said: str | None
) -> None:
    memory = LastSeen()

    assert memory.compare("s", state(deleted=7)) is None
    assert memory.compare("s", now) == said
    assert memory.compare("s", now) is None


def test_a_stream_that_never_had_entries_may_be_deleted() -> None:
    memory = LastSeen()
    memory.compare("s", state(length=0, last=0, added=0, first=0))

    assert memory.compare("s", None) is None
    assert judge("s", AT, state(), live=4, changed="entries-added went back") is not None


@pytest.mark.parametrize("strange", [{"s": 5}, {"s": {"to": "x", "added_to": 1}}, {"s": {"to": 3}}])
def test_another_sources_checkpoint_is_refused(strange: dict[str, object]) -> None:
    with pytest.raises(DeclarationError, match="checkpointLocation"):
        positions_of(strange)
