"""The judge finds each planted violation in logs written by hand, and nothing in a log without one."""

from __future__ import annotations

from tests.failover import judge
from tests.failover.judge import Window
from tests.failover.logs import Event

WINDOWS = [Window("kill", 10.0, 20.0), Window("stop", 30.0, 40.0)]


def sent(at: float, what: str, id: str, *, who: str = "p", stream: str = "raw") -> list[Event]:
    """A write that was answered a millisecond after it was tried."""
    return [
        Event(at, who, "tried", stream, what=what),
        Event(at + 0.001, who, "answered", stream, what=what, id=id),
    ]


def entries(*numbers: str) -> list[tuple[str, dict[str, str]]]:
    return [(f"{place}-0", {"n": number}) for place, number in enumerate(numbers, 1)]


def read(asked: float, id: str, *, did: str = "delivered", at: float = 0.0) -> Event:
    return Event(at or asked + 0.001, "r", did, "raw", id=id, asked=asked)


# --- lost -----------------------------------------------------------------------------------------


def test_an_answered_write_that_is_gone_is_lost_in_its_window() -> None:
    events = sent(1, "p:1", "1-0") + sent(31, "p:2", "2-0")
    (found,) = judge.lost(events, {"raw": entries("p:1")}, WINDOWS)
    assert "p:2" in found.text
    assert found.fault == 1
    assert judge.lost(events, {"raw": entries("p:1", "p:2")}, WINDOWS) == []


def test_all_is_lost_if_the_stream_is_gone() -> None:
    assert len(judge.lost(sent(1, "p:1", "1-0") + sent(2, "p:2", "2-0"), {}, WINDOWS)) == 2


def test_a_write_in_another_stream_does_not_count() -> None:
    events = sent(1, "p:1", "1-0", stream="orders")
    assert len(judge.lost(events, {"raw": entries("p:1"), "orders": []}, WINDOWS)) == 1


def test_a_write_that_was_not_answered_cannot_be_lost() -> None:
    events = [Event(1, "p", "tried", "raw", what="p:1"), Event(2, "p", "failed", "raw", what="p:1")]
    assert judge.lost(events, {"raw": []}, WINDOWS) == []


def test_a_loss_after_the_last_fault_is_assigned_to_it() -> None:
    (found,) = judge.lost(sent(50, "p:1", "1-0"), {"raw": []}, WINDOWS)
    assert found.fault == 1


def test_a_gap_is_a_loss_before_a_write_that_survived() -> None:
    events = sent(1, "p:1", "1-0") + sent(2, "p:2", "2-0") + sent(3, "p:3", "3-0")
    (found,) = judge.gaps(events, {"raw": entries("p:1", "p:3")}, WINDOWS)
    assert "p:2" in found.text
    assert "p:3" in found.text


def test_a_lost_end_is_no_gap() -> None:
    events = sent(1, "p:1", "1-0") + sent(2, "p:2", "2-0") + sent(3, "p:3", "3-0")
    assert judge.gaps(events, {"raw": entries("p:1")}, WINDOWS) == []
    # Nor is it one if writes after the fault survive
    events += sent(15, "p:4", "4-0") + sent(25, "p:5", "5-0")
    assert judge.gaps(events, {"raw": entries("p:1", "p:4", "p:5")}, WINDOWS) == []


# --- twice ----------------------------------------------------------------------------------------


def test_a_message_that_was_added_twice_is_found() -> None:
    events = sent(25, "p:1", "1-0")
    (found,) = judge.repeated(events, {"raw": entries("p:1", "p:1")}, WINDOWS)
    assert found.fault == 1
    assert judge.repeated(events, {"raw": entries("p:1")}, WINDOWS) == []


def test_a_delivery_after_the_answered_acknowledgement_is_found() -> None:
    events = [read(1, "1-0"), read(0, "1-0", did="acked", at=2), read(15, "1-0")]
    (found,) = judge.redelivered(events, WINDOWS)
    assert "1-0" in found.text
    assert "13.000 s" in found.text
    assert found.fault == 0


def test_a_delivery_that_was_requested_before_the_acknowledgement_is_none() -> None:
    # The read was sent before the acknowledgement was answered, and its reply came after it
    events = [read(1, "1-0"), read(0, "1-0", did="acked", at=2), read(1.5, "1-0", at=3)]
    assert judge.redelivered(events, WINDOWS) == []


def test_a_delivery_after_an_acknowledgement_without_an_answer_is_none() -> None:
    events = [read(1, "1-0"), read(0, "1-0", did="acking", at=2), read(15, "1-0")]
    assert judge.redelivered(events, WINDOWS) == []


def test_the_log_of_another_actor_counts_as_well() -> None:
    # Actors have logs of their own, so the events are not in the order of their times
    events = [read(15, "1-0"), read(0, "1-0", did="acked", at=2)]
    assert len(judge.redelivered(events, WINDOWS)) == 1


def test_results_that_were_published_twice_are_found() -> None:
    (found,) = judge.results_twice(entries("a", "b"), entries("a", "b", "a"))
    assert "a has 2 results" in found
    assert judge.results_twice(entries("a", "a"), entries("a", "a")) == []
    assert judge.results_twice([], entries("a", "a")) == ["a has 2 results"]


# --- missing and stuck ----------------------------------------------------------------------------


def test_a_settled_message_without_a_result_is_found() -> None:
    assert judge.results_missing(entries("a", "b"), entries("a")) == ["b has no result"]


def test_an_entry_that_nobody_got_is_found() -> None:
    found = judge.never_delivered([read(1, "1-0")], "raw", entries("a", "b"))
    assert found == ["raw never delivered 2-0"]


def test_a_producer_without_answers_after_the_last_fault_is_stuck() -> None:
    events = sent(1, "p:1", "1-0") + sent(41, "p:2", "2-0") + sent(1, "q:1", "3-0", who="q")
    (found,) = judge.stuck(events, since=40, until=100)
    assert found.startswith("q ")


def test_an_answer_after_more_than_thirty_seconds_is_too_late() -> None:
    assert len(judge.stuck(sent(71, "p:1", "1-0"), since=40, until=100)) == 1
    assert judge.stuck(sent(69, "p:1", "1-0"), since=40, until=100) == []


def test_a_producer_that_was_never_answered_is_stuck() -> None:
    events = [Event(1, "p", "tried", "raw", what="p:1")]
    assert len(judge.stuck(events, since=40, until=100)) == 1


# --- times ----------------------------------------------------------------------------------------


def test_the_first_answer_is_to_a_write_that_was_sent_after_the_fault() -> None:
    late = [
        Event(9.9, "p", "tried", "raw", what="p:1"),
        Event(10.1, "p", "answered", "raw", what="p:1"),
    ]
    assert judge.first_answer(late, 10) is None
    found = judge.first_answer(late + sent(12, "p:2", "2-0"), 10)
    assert found is not None
    assert abs(found - 2.001) < 1e-9


def test_the_longest_silence_lies_between_two_answers_or_at_an_end() -> None:
    events = sent(11, "p:1", "1-0") + sent(15, "p:2", "2-0")
    assert abs(judge.longest_silence(events, 10, 16) - 4) < 1e-9
    assert abs(judge.longest_silence(events, 10, 25) - 9.999) < 1e-9
    assert judge.longest_silence([], 10, 16) == 6


# --- members --------------------------------------------------------------------------------------


def test_a_reply_is_compared_without_times_and_layout() -> None:
    reply = [
        b"length",
        2,
        b"radix-tree-nodes",
        3,
        b"groups",
        [[b"name", b"g", b"consumers", [[b"name", b"c", b"idle", 5]]]],
    ]
    assert judge.comparable(reply) == {
        "length": 2,
        "groups": [{"name": "g", "consumers": [{"name": "c"}]}],
    }


def test_entries_stay_lists() -> None:
    assert judge.comparable([[b"1-0", [b"n", b"1"]]]) == [["1-0", {"n": "1"}]]
    assert judge.pending([[b"1-0", b"c", 77, 2]]) == [("1-0", "c", 2)]


def test_a_member_with_another_entry_is_found() -> None:
    states = {
        "one": {"XRANGE s": [["1-0", {"n": "1"}]]},
        "two": {"XRANGE s": [["1-0", {"n": "2"}]]},
    }
    (found,) = judge.differences(states)
    assert "two differs from one in XRANGE s" in found
    assert "n: '1' and '2'" in found


def test_a_member_without_a_stream_or_with_one_more_is_found() -> None:
    assert len(judge.differences({"one": {"XRANGE s": []}, "two": {}})) == 1
    assert len(judge.differences({"one": {}, "two": {"XRANGE s": []}})) == 1
    assert len(judge.differences({"one": {"XRANGE s": [1, 2]}, "two": {"XRANGE s": [1]}})) == 1


def test_equal_members_do_not_differ() -> None:
    assert judge.differences({"one": {"a": [1]}, "two": {"a": [1]}, "three": {"a": [1]}}) == []
