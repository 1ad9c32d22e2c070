"""Replaying dead letters: once, and only to the group that could not handle them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis

from headwater.groups.protocol.content import CONTENT_BYTES
from headwater.groups.protocol.operation import Command, Operation, run
from headwater.groups.settling.dead_letters import bury, find, page
from headwater.groups.settling.replay import Replayed, ReplayResult, replay
from headwater.groups.settling.settling import settle
from headwater.messages.dead import DeadLetter
from tests.worker.core import Core, stepped

DEAD = "{s}.dead"


def _dead_letters(core: Core, *values: bytes) -> list[DeadLetter]:
    """Add entries, make them dead letters of group ``g``, and let group ``h`` handle them."""
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


def test_a_replayed_entry_is_delivered_only_to_its_own_group(core: Core) -> None:
    # Given an entry that is a dead letter of group g and was handled by group h
    (letter,) = _dead_letters(core, b"a")

    # When it is replayed
    (outcome,) = _replay(core, letter)

    # Then g gets the same entry at once, as a first delivery that is not suspected poison
    (again,) = core.read()
    assert (outcome.how, outcome.entry_id) == (ReplayResult.RETURNED, letter.entry_id)
    assert (again.id.decode(), again.fields) == (letter.entry_id, [b"v", b"a"])
    assert (again.delivery_count, again.from_silent) == (1, False)

    # And h gets nothing, and the dead letter is deleted
    assert core.client.xreadgroup("h", "other", {"s": ">"}) in ([], {})
    assert core.client.xlen("s") == 1
    assert core.client.xlen(DEAD) == 0


def test_a_dead_letter_that_was_replayed_already_is_not_replayed_again(core: Core) -> None:
    # Given two operators who have listed the same dead letter
    (letter,) = _dead_letters(core, b"a")
    _replay(core, letter)
    (first,) = core.read()
    core.settle(first)

    # When the second replays it after it was replayed and handled
    (outcome,) = _replay(core, letter)

    # Then nothing happens
    assert outcome.how == ReplayResult.GONE
    assert core.read() == []


def test_concurrent_replays_replay_each_dead_letter_once(core: Core) -> None:
    letters = _dead_letters(core, *[b"x"] * 100)
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


def before_the_change(
    do: Callable[[], object], operation: Operation[list[Replayed]]
) -> Operation[list[Replayed]]:
    """The operation, with ``do`` called before its first MULTI."""
    started: list[object] = []

    def before(_step: int, commands: Sequence[Command]) -> None:
        if commands[0][0] == "MULTI" and not started:
            started.append(do())

    return stepped(operation, before)


def test_a_dead_letter_that_is_added_meanwhile_hinders_no_replay(core: Core) -> None:
    letters = _dead_letters(core, b"a", b"b")

    outcomes = core.do(
        before_the_change(lambda: core.client.xadd(DEAD, {"hw.stream": "s"}), replay(DEAD, letters))
    )

    assert [one.how for one in outcomes] == [ReplayResult.RETURNED] * 2
    assert len(core.read(2)) == 2
    assert core.client.xlen(DEAD) == 1


@pytest.mark.parametrize("what", ["group", "entry"])
def test_a_dead_letter_stays_if_its_group_or_entry_is_deleted_in_that_moment(
    core: Core, what: str
) -> None:
    letters = _dead_letters(core, b"a")

    def delete() -> None:
        if what == "group":
            core.client.xgroup_destroy("s", "g")
        else:
            core.client.xdel("s", letters[0].entry_id)

    outcomes = core.do(before_the_change(delete, replay(DEAD, letters)))

    assert [one.how for one in outcomes] == [ReplayResult.REFUSED]
    assert ("NOGROUP" if what == "group" else "was deleted at that moment") in outcomes[0].reason
    (again,) = core.do(page(DEAD))
    assert again._replace(id="") == letters[0]._replace(id="")


def test_a_dead_letter_that_is_named_twice_is_replayed_once(core: Core) -> None:
    (letter,) = _dead_letters(core, b"a")
    core.client.xgroup_destroy("s", "h")
    core.client.xdel("s", letter.entry_id)

    outcomes = _replay(core, letter, letter)

    assert [one.how for one in outcomes] == [ReplayResult.ADDED, ReplayResult.GONE]
    assert len(core.read(2)) == 1


def test_dead_letters_with_much_content_are_replayed_in_several_steps(core: Core) -> None:
    letters = _dead_letters(core, *[bytes(CONTENT_BYTES // 3)] * 5)

    outcomes = _replay(core, *letters)

    assert [one.how for one in outcomes] == [ReplayResult.RETURNED] * 5
    assert len(core.read(5)) == 5
    assert core.client.xlen(DEAD) == 0


def test_a_deleted_entry_is_added_again_if_the_stream_has_no_other_group(core: Core) -> None:
    (letter,) = _dead_letters(core, b"a")
    core.client.xgroup_destroy("s", "h")
    core.client.xdel("s", letter.entry_id)

    (outcome,) = _replay(core, letter)

    assert outcome.how == ReplayResult.ADDED
    assert [one.id.decode() for one in core.read()] == [outcome.entry_id]
    assert core.client.xlen(DEAD) == 0


def test_a_deleted_entry_of_a_stream_with_other_groups_is_added_only_with_all_groups(
    core: Core,
) -> None:
    (letter,) = _dead_letters(core, b"a")
    core.client.xdel("s", letter.entry_id)

    (refused,) = _replay(core, letter)
    assert refused.how == ReplayResult.REFUSED
    assert "--all-groups" in refused.reason
    assert core.client.xlen(DEAD) == 1

    (outcome,) = _replay(core, letter, all_groups=True)
    assert outcome.how == ReplayResult.ADDED
    assert core.client.xlen(DEAD) == 0


def test_replaying_to_a_missing_group_is_refused(core: Core) -> None:
    (letter,) = _dead_letters(core, b"a")
    core.client.xgroup_destroy("s", "g")

    (refused,) = _replay(core, letter)

    assert refused.how == ReplayResult.REFUSED
    assert "has no group 'g' any more" in refused.reason
    assert core.client.xlen(DEAD) == 1


@pytest.mark.parametrize("position", ["pending", "undelivered"])
def test_an_entry_that_the_group_will_handle_anyway_is_not_replayed(
    core: Core, position: str
) -> None:
    # Given a dead letter whose entry is owned by a worker, or will be delivered to the group again
    (letter,) = _dead_letters(core, b"a")
    core.client.xgroup_setid("s", "g", "0")
    owned = core.read() if position == "pending" else []

    # When it is replayed
    (outcome,) = _replay(core, letter)

    # Then the worker keeps it, and the group handles it once
    assert outcome.how == ReplayResult.COMING
    (one,) = owned or core.read()
    assert core.settle(one).done
    assert core.read() == []
    assert core.client.xlen(DEAD) == 0


def test_an_entry_with_more_fields_than_lua_accepts_is_added_again(core: Core) -> None:
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
