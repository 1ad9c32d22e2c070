"""Consumers of a group are listed with their state, and removed only if they own no entry."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import HeadwaterError
from headwater.groups.membership.consumers import ConsumerState, consumers, reap
from headwater.groups.settling.settling import How
from tests.worker.core import Core


def _states(core: Core, *, unseen_ms: int) -> dict[str, tuple[int, ConsumerState]]:
    found = core.do(consumers("s", "g", unseen_ms=unseen_ms))
    return {one.name: (one.pending, one.state) for one in found}


def test_consumers_are_listed_with_what_they_own_and_their_state(core: Core) -> None:
    # Given one consumer that owns an entry, one that owns nothing, and a retry that waits
    core.client.xadd("s", {"v": "a"})
    core.client.xadd("s", {"v": "b"})
    core.another("two").read()
    core.client.xgroup_createconsumer("s", "g", "three")
    core.client.xgroup_createconsumer("s", "g", "hw.parked")

    # Then each is listed with its state
    found = _states(core, unseen_ms=1_000_000)
    assert found["two"] == (2, ConsumerState.ACTIVE)
    assert found["three"] == (0, ConsumerState.ACTIVE)
    assert found["hw.parked"] == (0, ConsumerState.INTERNAL)

    # And a consumer that was not seen for long enough is expired only if it owns nothing
    found = _states(core, unseen_ms=0)
    assert found["two"] == (2, ConsumerState.ACTIVE)
    assert found["three"] == (0, ConsumerState.EXPIRED)
    assert found["hw.parked"] == (0, ConsumerState.INTERNAL)


def test_only_consumers_that_own_nothing_are_reaped(core: Core) -> None:
    # Given a dead consumer that owns an entry, one that owns nothing, a retry that waits, and the reaper
    core.client.xadd("s", {"v": "a"})
    core.client.xadd("s", {"v": "b"})
    (kept, parked) = core.another("two").read()
    core.another("two").settle(parked, How.FAIL, delay_ms=30_000)
    for name in ("one", "three", "hw.parked"):
        core.client.xgroup_createconsumer("s", "g", name)

    # When consumers that own nothing are reaped, with any unseen time
    removed = core.do(reap(core.member, unseen_ms=0))

    # Then no pending entry is lost
    assert removed == ["three"]
    assert sorted(_states(core, unseen_ms=0)) == ["hw.parked", "one", "two"]
    rows: Any = core.client.xpending_range("s", "g", "-", "+", 10)
    assert [row["message_id"] for row in rows] == [kept.id, parked.id]


def test_consumers_seen_within_the_day_are_not_reaped(core: Core) -> None:
    core.client.xgroup_createconsumer("s", "g", "two")
    assert core.do(reap(core.member)) == []
    assert "two" in _states(core, unseen_ms=0)


def test_listing_consumers_of_a_missing_group_raises(core: Core) -> None:
    with pytest.raises(HeadwaterError, match="no group 'nobody' of stream 's'"):
        core.do(consumers("s", "nobody"))
    with pytest.raises(HeadwaterError, match="there is no stream 'nothing': check the name"):
        core.do(consumers("nothing", "g"))
