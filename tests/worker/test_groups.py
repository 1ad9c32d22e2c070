"""A consumer of a group, one step at a time, on every kind of server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from headwater.groups.membership.member import retire
from headwater.groups.protocol.operation import run, single
from headwater.groups.settling.dead_letters import page
from headwater.groups.settling.replay import replay
from headwater.groups.settling.settling import Addition, How, Settlement, SettleOutcome, settle
from headwater.messages.dead import dead_letter_fields
from tests import peers
from tests.worker.core import CLAIM_AFTER_MS, Core

CLAIMABLE_IDLE_MS = CLAIM_AFTER_MS + 1

in_lua = pytest.mark.parametrize("core", ["redis-7.0", "redis-8.2", "valkey-9.1"], indirect=True)
"""For servers without Headwater's commands."""


def add(core: Core, *values: bytes) -> list[bytes]:
    return [core.client.xadd("s", {"v": value}) for value in values]  # type: ignore[misc]


def test_new_entries_are_delivered_once_with_count_one(core: Core) -> None:
    ids = add(core, b"a", b"b")

    found = core.read()

    assert [(one.id, one.fields, one.delivery_count) for one in found] == [
        (ids[0], [b"v", b"a"], 1),
        (ids[1], [b"v", b"b"], 1),
    ]
    assert not any(one.claimed for one in found)
    assert core.read() == []


def test_the_limit_of_a_read_includes_claimed_entries(core: Core) -> None:
    add(core, *[b"x"] * 10)
    for one in core.read(limit=6):
        core.age(one, CLAIMABLE_IDLE_MS)
    other = core.another("two")

    assert len(other.read(limit=4)) == 4
    assert len(other.read(limit=4)) == 4
    assert len(other.read(limit=4)) == 2


def test_an_entry_of_a_silent_owner_is_claimed_counted_and_marked_as_suspected(core: Core) -> None:
    (entry_id,) = add(core, b"a")
    (first,) = core.read()
    other = core.another("two")
    assert other.read() == []

    core.age(first, CLAIMABLE_IDLE_MS)
    (second,) = other.read()

    assert second.id == entry_id
    assert second.fields == [b"v", b"a"]
    assert second.delivery_count == 2
    assert second.claimed
    assert second.from_silent
    assert core.pending(entry_id) == ("two", 2)


def test_a_renewed_entry_is_not_claimed(core: Core) -> None:
    add(core, b"a")
    (first,) = core.read()
    core.age(first, CLAIMABLE_IDLE_MS)

    assert core.renew(first) == [True]

    assert core.another("two").read() == []
    assert core.pending(first.id) == ("one", 1)


def test_renewing_does_not_take_an_entry_back_from_its_new_owner(core: Core) -> None:
    add(core, b"a")
    (first,) = core.read()
    core.age(first, CLAIMABLE_IDLE_MS)
    other = core.another("two")
    (second,) = other.read()

    assert core.renew(first) == [False]

    assert core.pending(second.id) == ("two", 2)


def test_a_deleted_entry_can_be_renewed(core: Core) -> None:
    add(core, b"a")
    (first,) = core.read()
    core.client.xtrim("s", maxlen=0)

    assert core.renew(first) == [True]
    assert core.renew(first) == [True]
    assert core.settle(first).done


def test_an_acknowledged_entry_is_settled_once(core: Core) -> None:
    add(core, b"a")
    (first,) = core.read()

    assert core.settle(first).done
    assert not core.settle(first).done
    assert core.nothing_pending()


def test_ackdel_acknowledges_and_deletes_an_entry(core: Core) -> None:
    add(core, b"a")
    (first,) = core.read()

    assert core.settle(first, How.ACKDEL).done

    assert core.client.xlen("s") == 0
    assert core.nothing_pending()


def test_a_former_owner_can_neither_settle_nor_publish(core: Core) -> None:
    add(core, b"a")
    (first,) = core.read()
    core.age(first, CLAIMABLE_IDLE_MS)
    other = core.another("two")
    (second,) = other.read()
    result = Addition("results", [(b"r", b"1")])

    for how in How:
        assert not core.settle(first, how, to=[result] if how is How.ACK else []).done

    assert core.client.exists("results") == 0
    assert core.pending(second.id) == ("two", 2)
    assert other.settle(second, to=[result]).done
    assert core.client.xlen("results") == 1


def test_the_first_finisher_settles_regardless_of_the_owner(core: Core) -> None:
    # Given entries that another consumer owns, that wait for a retry, and that were handed back
    ids = add(core, b"a", b"b", b"c")
    claimed, failed, released = core.read()
    other = core.another("two")
    core.client.xclaim("s", "g", "two", 0, [claimed.id], justid=True)
    core.settle(failed, How.FAIL, delay_ms=3_600_000)
    core.settle(released, How.SILENT)

    # When their first consumer finishes with results, then they are settled
    def finish(one: Core, entry_id: bytes) -> SettleOutcome:
        done = Settlement(
            entry_id, How.ACK, 0, [Addition("out", [(b"of", entry_id)])], any_owner=True
        )
        outcomes: list[SettleOutcome] = one.do(settle(one.member, [done]))
        return outcomes[0]

    assert [finish(core, one).done for one in ids] == [True, True, True]
    assert core.nothing_pending()

    # And a later finisher publishes nothing
    late = [finish(other, one) for one in ids]
    assert [(one.done, [*one.missed]) for one in late] == [(False, [one]) for one in ids]
    published: Any = core.client.xrange("out")
    assert [fields[b"of"] for _id, fields in published] == ids
    # And nothing is delivered again
    assert core.read() == []


def test_a_failure_of_a_former_owner_changes_nothing(core: Core) -> None:
    (entry_id,) = add(core, b"a")
    (first,) = core.read()
    core.client.xclaim("s", "g", "two", 0, [entry_id], justid=True)
    for how in (How.FAIL, How.SILENT, How.ACK):
        assert core.settle(first, how).missed == [entry_id]
    assert core.pending(entry_id)[0] == "two"


def test_results_are_published_in_one_step_with_the_acknowledgement(core: Core) -> None:
    add(core, b"a")
    (first,) = core.read()
    results = [
        Addition("results", [(b"r", b"1"), (b"r", b"2")]),
        Addition("others", [(b"o", b"")], maxlen=1_000),
    ]

    outcome = core.settle(first, to=results)
    again = core.settle(first, to=results)

    assert outcome.done
    assert not again.done
    (added,) = core.client.xrange("results")  # type: ignore[misc]
    assert added[0] == outcome.added[0]
    assert core.client.xlen("others") == 1
    assert core.nothing_pending()


def test_a_result_that_cannot_be_added_settles_nothing(core: Core) -> None:
    add(core, b"a")
    (first,) = core.read()
    core.client.set("text", "x")

    outcome = core.settle(
        first, to=[Addition("results", [(b"r", b"1")]), Addition("text", [(b"r", b"1")])]
    )

    assert not outcome.done
    assert outcome.error is not None
    assert outcome.error.code == "WRONGTYPE"
    assert core.client.exists("results") == 0
    assert core.pending(first.id) == ("one", 1)


def test_a_failing_settlement_does_not_affect_others_sent_with_it(core: Core) -> None:
    add(core, b"a", b"b", b"c")
    first, second, third = core.read()
    core.client.set("text", "x")
    wrong = Settlement(second.id, How.ACK, additions=[Addition("text", [(b"r", b"1")])])
    batch = [Settlement(first.id, How.ACK), wrong, Settlement(third.id, How.FAIL)]

    outcomes = core.do(settle(core.member, batch))

    assert [outcome.done for outcome in outcomes] == [True, False, True]


def test_a_failed_entry_is_delivered_again_at_once_and_counted(core: Core) -> None:
    add(core, b"a")
    (first,) = core.read()

    assert core.settle(first, How.FAIL).done
    (again,) = core.another("two").read()

    assert again.delivery_count == 2
    assert again.claimed
    assert not again.from_silent


def test_a_released_entry_is_delivered_again_at_once_and_not_counted(core: Core) -> None:
    add(core, b"a")
    (first,) = core.read()

    assert core.settle(first, How.SILENT).done
    (again,) = core.another("two").read()

    assert again.delivery_count == 1
    assert not again.from_silent


def test_entries_of_a_lost_reply_are_recovered_with_their_delivery_count(core: Core) -> None:
    # Given three entries, of which two were delivered in a lost reply and one of those deleted
    add(core, b"a", b"b", b"c")
    first, second, third = core.read()
    core.client.xdel("s", third.id)

    # When the consumer recovers the entries that it owns and does not know
    found, gone = core.recover([first.id])

    assert [(one.id, one.fields, one.delivery_count) for one in found] == [
        (second.id, [b"v", b"b"], 1)
    ]
    assert gone == [third.id]


def test_a_consumer_is_removed_only_if_it_owns_nothing(core: Core) -> None:
    add(core, b"a")
    (first,) = core.read()

    assert not core.do(retire(core.member))
    core.settle(first)
    assert core.do(retire(core.member))

    names = [one["name"] for one in core.client.xinfo_consumers("s", "g")]
    assert b"one" not in names


@in_lua
def test_a_script_is_loaded_again_after_script_flush(core: Core) -> None:
    add(core, b"a")
    (first,) = core.read()
    core.client.script_flush()
    assert core.settle(first).done


@pytest.mark.slow
def test_in_a_cluster_results_in_another_slot_are_published_before_the_settlement(
    peer: Callable[..., peers.Peer],
) -> None:
    bus = str(peers.free_port())
    server = peer("redis-8.2", "--cluster-enabled", "yes", "--cluster-port", bus)
    with redis.Redis.from_url(server.url) as client:
        run(client, single("CLUSTER", "ADDSLOTSRANGE", 0, 16383))
        while b"cluster_state:ok" not in run(client, single("CLUSTER", "INFO")):
            pass
        core = Core.joined(server.url)
        assert core.member.able.cluster
        add(core, b"a", b"b")
        first, second = core.read()

        outcome = core.settle(first, to=[Addition("elsewhere", [(b"r", b"1")])])
        same_slot = core.settle(second, to=[Addition("{s}.dead", [(b"r", b"1")])])

        assert outcome.done
        assert same_slot.done
        assert client.xlen("elsewhere") == client.xlen("{s}.dead") == 1
        assert core.nothing_pending()

        # And a dead letter in another slot is replayed in two steps
        letter = dead_letter_fields(
            [b"v", b"a"],
            stream="s",
            group="g",
            entry_id="5-5",
            consumer="c",
            deliveries=1,
            error="",
            trace="",
            at_ms=0,
        )
        add(core, b"c")
        (third,) = core.read()
        core.settle(third, to=[Addition("elsewhere", letter)])
        letters = core.do(page("elsewhere"))[1:]
        assert len(core.do(replay("elsewhere", letters))) == 1
        assert client.xlen("elsewhere") == 1
        core.close()
