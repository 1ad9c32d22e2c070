"""Replaying dead letters: once, and to the group that could not handle them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis

from headwater.groups.dead_letters import bury, find, page
from headwater.groups.operation import run
from headwater.groups.replay import Replayed, ReplayResult, replay
from headwater.groups.settling import settle
from headwater.messages import DeadLetter
from tests.worker.core import Core

DEAD = "{s}.dead"


def _bury(core: Core, *values: bytes) -> list[DeadLetter]:
    """Add entries, have group ``g`` give them up, and group ``h`` handle them."""
    core.client.xgroup_create("s", "h", "$")
    ids: list[Any] = [core.client.xadd("s", {"v": value}) for value in values]
    core.client.xreadgroup("h", "other", {"s": ">"})
    core.client.xack("s", "h", *ids)
    for one in core.read():
        record = bury(
            core.member, DEAD, id=one.id, fields=one.fields, deliveries=5, error="E: x", at_ms=0
        )
        core.do(settle(core.member, [record]))
    letters: list[DeadLetter] = core.do(page(DEAD))
    assert len(letters) == len(values)
    return letters


def _replay(core: Core, *letters: DeadLetter, all_groups: bool = False) -> list[Replayed]:
    outcomes: list[Replayed] = core.do(replay(DEAD, letters, all_groups=all_groups))
    return outcomes


def test_a_replayed_entry_reaches_only_its_own_group(core: Core) -> None:
    # Given an entry that group g gave up, and that group h handled
    (letter,) = _bury(core, b"a")

    # When it is replayed
    (outcome,) = _replay(core, letter)

    # Then g gets the same entry at once, as if for the first time, and from nobody suspicious
    (again,) = core.read()
    assert (outcome.how, outcome.entry_id) == (ReplayResult.RETURNED, letter.entry_id)
    assert (again.id.decode(), again.fields) == (letter.entry_id, [b"v", b"a"])
    assert (again.delivery_count, again.from_silent) == (1, False)

    # And h gets nothing, and the record is gone
    assert core.client.xreadgroup("h", "other", {"s": ">"}) in ([], {})
    assert core.client.xlen("s") == 1
    assert core.client.xlen(DEAD) == 0


def test_two_operators_do_not_replay_a_record_twice(core: Core) -> None:
    # Given two operators who have listed the same record
    (letter,) = _bury(core, b"a")
    _replay(core, letter)
    (first,) = core.read()
    core.settle(first)

    # When the second replays it after it was replayed and handled
    (outcome,) = _replay(core, letter)

    # Then nothing happens
    assert outcome.how == ReplayResult.GONE
    assert core.read() == []


def test_two_operators_at_a_time_replay_each_record_once(core: Core) -> None:
    letters = _bury(core, *[b"x"] * 100)
    pool = core.client.connection_pool.connection_kwargs
    outcomes: list[list[Replayed]] = []

    def operator() -> None:
        with redis.Redis(host=pool["host"], port=pool["port"]) as client:
            outcomes.append(run(client, replay(DEAD, letters)))

    operators = [threading.Thread(target=operator) for _ in range(2)]
    for one in operators:
        one.start()
    for one in operators:
        one.join()
    returned = [
        one.letter.id for found in outcomes for one in found if one.how == ReplayResult.RETURNED
    ]
    assert sorted(returned) == sorted(letter.id for letter in letters)
    assert len(core.read()) == 100


def test_an_entry_that_is_gone_is_added_again_when_no_other_group_would_see_it(core: Core) -> None:
    (letter,) = _bury(core, b"a")
    core.client.xgroup_destroy("s", "h")
    core.client.xdel("s", letter.entry_id)

    (outcome,) = _replay(core, letter)

    assert outcome.how == ReplayResult.ADDED
    assert [one.id.decode() for one in core.read()] == [outcome.entry_id]
    assert core.client.xlen(DEAD) == 0


def test_an_entry_that_is_gone_reaches_other_groups_only_when_that_is_allowed(core: Core) -> None:
    (letter,) = _bury(core, b"a")
    core.client.xdel("s", letter.entry_id)

    (refused,) = _replay(core, letter)
    assert refused.how == ReplayResult.REFUSED
    assert "--all-groups" in refused.reason
    assert core.client.xlen(DEAD) == 1

    (outcome,) = _replay(core, letter, all_groups=True)
    assert outcome.how == ReplayResult.ADDED
    assert core.client.xlen(DEAD) == 0


def test_an_entry_whose_group_is_gone_is_refused(core: Core) -> None:
    (letter,) = _bury(core, b"a")
    core.client.xgroup_destroy("s", "g")

    (refused,) = _replay(core, letter)

    assert refused.how == ReplayResult.REFUSED
    assert "has no group 'g' any more" in refused.reason
    assert core.client.xlen(DEAD) == 1


@pytest.mark.parametrize("position", ["pending", "undelivered"])
def test_an_entry_that_the_group_has_still_to_handle_is_not_taken_from_it(
    core: Core, position: str
) -> None:
    # Given a record whose entry a worker holds, or whose group was put back before it
    (letter,) = _bury(core, b"a")
    core.client.xgroup_setid("s", "g", "0")
    held = core.read() if position == "pending" else []

    # When it is replayed
    (outcome,) = _replay(core, letter)

    # Then the worker keeps it, and the group handles it once
    assert outcome.how == ReplayResult.COMING
    (one,) = held or core.read()
    assert core.settle(one).done
    assert core.read() == []
    assert core.client.xlen(DEAD) == 0


def test_an_entry_with_more_fields_than_lua_takes_is_added_again(core: Core) -> None:
    core.client.xgroup_create("s", "other", "0")
    core.client.xgroup_destroy("s", "other")
    wide = {f"f{number}": "x" for number in range(5_000)}
    record = {**wide, "hw.stream": "s", "hw.group": "g", "hw.id": "5-5"}
    record_id: Any = core.client.xadd(DEAD, record)  # type: ignore[arg-type]
    letters = core.do(find(DEAD, [record_id.decode()]))

    (outcome,) = _replay(core, *letters)

    assert outcome.how == ReplayResult.ADDED
    (one,) = core.read()
    assert len(one.fields) == 10_000
    assert core.client.xlen(DEAD) == 0
