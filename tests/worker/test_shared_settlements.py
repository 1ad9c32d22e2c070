"""Settlements with results share a command, with the same outcome as if each had its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headwater.groups.settling.settling import (
    SHARED_WORDS,
    Addition,
    How,
    Settlement,
    SettleOutcome,
    settle,
)
from tests.worker.core import Core

RESULTS = 40


def claimed(core: Core, count: int = RESULTS) -> list[bytes]:
    """Add entries and read them. Returns their ids."""
    for number in range(count):
        core.client.xadd("s", {"n": number})
    return [one.id for one in core.read(limit=count)]


def with_result(entry_id: bytes, *, stream: str = "results", pairs: int = 1) -> Settlement:
    fields = [(b"of", entry_id), *[(b"f", b"v")] * (pairs - 1)]
    return Settlement(entry_id, How.ACK, additions=(Addition(stream, fields),))


def settled(core: Core, settlements: list[Settlement]) -> list[SettleOutcome]:
    outcomes: list[SettleOutcome] = core.do(settle(core.member, settlements))
    return outcomes


def results(core: Core) -> Counter[bytes]:
    """How many results each entry has."""
    entries: Any = core.client.xrange("results")
    return Counter(fields[b"of"] for _id, fields in entries)


def calls(core: Core, command: str) -> int:
    """How many times clients have called the command."""
    found: Any = core.client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})
    return int(found["calls"])


def test_the_results_of_a_batch_are_published_by_one_command(core: Core) -> None:
    ids = claimed(core)
    command = "xsettle" if core.member.able.verbs else "evalsha"
    settled(core, [with_result(ids[0])])  # loads the script
    before = calls(core, command)

    outcomes = settled(core, [with_result(one) for one in ids[1:]])

    assert calls(core, command) - before == 1
    assert all(one.done and len(one.added) == 1 for one in outcomes)
    assert results(core) == Counter(ids)
    assert core.nothing_pending()


def test_each_outcome_has_the_results_of_its_own_settlement(core: Core) -> None:
    first, second, third = claimed(core, 3)
    two = Settlement(second, How.ACK, additions=[*with_result(second).additions] * 2)

    outcomes = settled(core, [with_result(first), two, with_result(third)])

    entries: Any = core.client.xrange("results")
    added = [entry_id for entry_id, _fields in entries]
    assert [list(one.added) for one in outcomes] == [added[:1], added[1:3], added[3:]]


def test_a_lost_entry_does_not_affect_other_results(core: Core) -> None:
    # Given a batch of which another consumer has claimed one entry
    ids = claimed(core, 5)
    core.client.xclaim("s", "g", "other", 0, [ids[2]])

    # When all are settled
    outcomes = settled(core, [with_result(one) for one in ids])

    # Then that entry has no result, and each other entry has one
    assert [one.done for one in outcomes] == [True, True, False, True, True]
    assert results(core) == Counter(ids) - Counter([ids[2]])


def test_a_refused_result_does_not_affect_other_results(core: Core) -> None:
    ids = claimed(core, 4)
    core.client.set("text", "not a stream")
    batch = [with_result(one) for one in ids]
    batch[1] = with_result(ids[1], stream="text")

    outcomes = settled(core, batch)

    assert [one.done for one in outcomes] == [True, False, True, True]
    assert outcomes[1].error is not None
    assert outcomes[1].error.code == "WRONGTYPE"
    assert results(core) == Counter(ids) - Counter([ids[1]])


def test_a_batch_that_is_sent_twice_publishes_once(core: Core) -> None:
    ids = claimed(core)
    batch = [with_result(one) for one in ids]
    settled(core, batch)

    again = settled(core, batch)

    assert not any(one.done for one in again)
    assert results(core) == Counter(ids)


def test_a_settlement_with_results_that_names_an_entry_twice_is_refused(core: Core) -> None:
    # Given a settlement of several entries, one of them named twice
    ids = claimed(core, 2)
    additions = [*with_result(ids[0]).additions] * 3
    twice = Settlement(ids[0], How.ACK, 0, additions, [ids[1], ids[0]])

    # Then it is refused as a whole
    (outcome,) = settled(core, [twice])
    assert not outcome.done
    assert outcome.missed
    assert not results(core)
    assert core.pending(ids[1]) == ("one", 1)


def test_an_entry_that_is_settled_twice_in_a_batch_has_one_result(core: Core) -> None:
    ids = claimed(core, 3)
    batch = [with_result(one) for one in [*ids, ids[1]]]

    outcomes = settled(core, batch)

    assert [one.done for one in outcomes] == [True, True, True, False]
    assert outcomes[3].missed == [ids[1]]
    assert results(core) == Counter(ids)


@pytest.mark.parametrize("core", ["headwater"], indirect=True)
def test_long_results_are_split_into_several_commands(core: Core) -> None:
    # Given results of which three fit into a command
    ids = claimed(core, 7)
    batch = [with_result(one, pairs=SHARED_WORDS // 6 - 10) for one in ids]
    before = calls(core, "xsettle")

    outcomes = settled(core, batch)

    assert calls(core, "xsettle") - before == 3
    assert all(one.done for one in outcomes)
    assert len(results(core)) == 7


def test_all_kinds_of_settlements_in_a_batch_are_carried_out(core: Core) -> None:
    ids = claimed(core, 6)
    batch = [
        Settlement(ids[0], How.ACK),
        with_result(ids[1]),
        Settlement(ids[2], How.FAIL, 0),
        with_result(ids[3]),
        Settlement(ids[4], How.SILENT, 0),
        Settlement(ids[5], How.ACK),
    ]

    outcomes = settled(core, batch)

    assert all(one.done for one in outcomes)
    assert results(core) == Counter([ids[1], ids[3]])
    again = {one.id: one.delivery_count for one in core.read()}
    assert again == {ids[2]: 2, ids[4]: 1}


def test_a_settlement_of_several_entries_reports_those_that_are_not_owned(
    core: Core,
) -> None:
    # Given four owned entries, of which another client acknowledges two
    ids = claimed(core, 4)
    core.client.xack("s", core.member.group, ids[1], ids[3])

    # When they are settled as one
    (outcome,) = settled(core, [Settlement(ids[0], How.ACK, others=ids[1:])])

    # Then the other two are settled, and these two are reported
    assert not outcome.done
    assert list(outcome.missed) == [ids[1], ids[3]]
    assert core.nothing_pending()


def test_a_settlement_of_several_entries_with_results_is_atomic(core: Core) -> None:
    # Given three owned entries, of which another client acknowledges one
    ids = claimed(core, 3)
    core.client.xack("s", core.member.group, ids[2])
    results_of_all = [with_result(one).additions[0] for one in ids]

    # When they are settled as one, with a result for each
    (outcome,) = settled(core, [Settlement(ids[0], How.ACK, 0, results_of_all, ids[1:])])

    # Then none of them is settled
    assert not outcome.done
    assert set(outcome.missed) == set(ids)
    assert results(core) == Counter()
    assert {core.pending(one)[0] for one in ids[:2]} == {core.member.consumer}
