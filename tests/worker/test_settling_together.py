"""A batch of settlements is one command, and each of them succeeds or fails by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headwater.groups.reading.claiming import Delivered
from headwater.groups.settling.settling import (
    MOST_WORDS,
    Addition,
    How,
    Settlement,
    SettleOutcome,
    settle,
)
from tests.worker.core import Core

ENTRIES = 100

headwater_only = pytest.mark.parametrize("core", ["headwater"], indirect=True)


def read(core: Core, count: int = ENTRIES) -> list[Delivered]:
    for number in range(count):
        core.client.xadd("s", {"n": number})
    return core.read(limit=count)


def result(entry: Delivered, *, stream: str = "results") -> Settlement:
    return Settlement(entry.id, How.ACK, additions=[Addition(stream, [(b"of", entry.id)])])


def together(core: Core, settlements: Sequence[Settlement]) -> list[SettleOutcome]:
    outcomes: list[SettleOutcome] = core.do(settle(core.member, settlements))
    return outcomes


def published(core: Core) -> list[bytes]:
    entries: Any = core.client.xrange("results")
    return [fields[b"of"] for _id, fields in entries]


def calls(core: Core, command: str) -> int:
    stats: Any = core.client.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


@headwater_only
def test_settlements_with_results_are_one_command(core: Core) -> None:
    entries = read(core)
    before = calls(core, "xsettle")

    outcomes = together(core, [result(one) for one in entries])

    assert calls(core, "xsettle") - before == 1
    assert [len(one.added) for one in outcomes] == [1] * ENTRIES
    assert published(core) == [one.id for one in entries]
    assert core.nothing_pending()


def test_only_the_results_of_a_lost_entry_are_dropped(
    core: Core,
) -> None:
    entries = read(core)
    lost = entries[7]
    core.client.xclaim("s", "g", "another", 0, [lost.id])

    outcomes = together(core, [result(one) for one in entries])

    assert [one.done for one in outcomes] == [one is not lost for one in entries]
    assert published(core) == [one.id for one in entries if one is not lost]
    assert core.pending(lost.id)[0] == "another"


def test_a_result_that_the_store_refuses_fails_only_its_settlement(core: Core) -> None:
    core.client.set("text", "no stream")
    entries = read(core)
    refused = entries[7]
    settlements = [result(one, stream="text" if one is refused else "results") for one in entries]

    outcomes = together(core, settlements)

    errors = [one.error for one in outcomes if one.error is not None]
    assert [error.code for error in errors] == ["WRONGTYPE"]
    assert published(core) == [one.id for one in entries if one is not refused]
    assert core.pending(refused.id) == ("one", 1)


def test_results_too_long_for_one_command_fail_only_their_settlement(core: Core) -> None:
    few, many, last = read(core, 3)
    results = [Addition("results", [(b"of", many.id)])] * (MOST_WORDS // 12 + 1)

    outcomes = together(
        core, [result(few), Settlement(many.id, How.ACK, additions=results), result(last)]
    )

    assert [one.done for one in outcomes] == [True, False, True]
    assert "Return fewer results" in str(outcomes[1].error)
    assert published(core) == [few.id, last.id]
    assert core.pending(many.id) == ("one", 1)


@pytest.mark.slow
def test_settlements_too_long_for_one_command_are_split(core: Core) -> None:
    entries = read(core, 4)
    wide = [(b"of", b"all"), *[(b"%d" % n, b"") for n in range(3_000)]]
    settlements = [
        Settlement(one.id, How.ACK, additions=[Addition("results", wide)] * 60) for one in entries
    ]

    outcomes = together(core, settlements)

    assert [len(one.added) for one in outcomes] == [60] * 4
    assert core.client.xlen("results") == 240
    assert core.nothing_pending()


# --- several entries with one result --------------------------------------------------------------


def whole(*entries: Delivered, stream: str = "results") -> Settlement:
    first, *others = [one.id for one in entries]
    result = Addition(stream, [(b"of", first)])
    return Settlement(first, How.ACK, additions=[result], others=others)


def test_a_result_of_several_entries_is_published_in_one_step_with_their_acknowledgement(
    core: Core,
) -> None:
    # Given two batches of entries with one result each, and a single entry
    entries = read(core, 7)

    # When all are settled
    outcomes = together(core, [whole(*entries[:3]), result(entries[3]), whole(*entries[4:])])

    # Then each result is published once
    assert [one.done for one in outcomes] == [True] * 3
    assert published(core) == [entries[0].id, entries[3].id, entries[4].id]
    assert core.nothing_pending()


def test_a_result_of_several_entries_is_not_published_if_one_of_them_was_lost(core: Core) -> None:
    # Given two batches with results, and an entry of the first that another consumer has claimed
    entries = read(core, 6)
    core.age(entries[1], 90_000)
    core.another("two").read()

    # When both are settled
    outcomes = together(core, [whole(*entries[:3]), whole(*entries[3:])])

    # Then the first is unchanged, and the second is settled
    assert [one.done for one in outcomes] == [False, True]
    assert published(core) == [entries[3].id]
    assert core.pending(entries[0].id) == ("one", 1)
    assert core.pending(entries[2].id) == ("one", 1)


def test_a_result_of_several_entries_that_is_sent_twice_is_published_once(core: Core) -> None:
    entries = read(core, 3)
    together(core, [whole(*entries)])

    (again,) = together(core, [whole(*entries)])

    assert not again.done
    assert published(core) == [entries[0].id]


def test_a_refused_result_of_several_entries_acknowledges_none_of_them(core: Core) -> None:
    entries = read(core, 3)
    core.client.set("taken", "a string")

    (outcome,) = together(core, [whole(*entries, stream="taken")])

    assert outcome.error is not None
    assert outcome.error.code == "WRONGTYPE"
    assert [core.pending(one.id) for one in entries] == [("one", 1)] * 3
