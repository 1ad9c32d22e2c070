"""How a group is created, agrees on its settings, and is created again after it was destroyed."""

from __future__ import annotations

import pytest
import redis

from headwater.errors import DeclarationError
from headwater.groups.membership.member import join, look_again, rejoin, retire
from headwater.groups.protocol.operation import GroupVanished, Refused
from headwater.messages.keys import PARKED_CONSUMER, SIGN_CONSUMER, group_settings_key
from tests.worker.core import Core


def add(core: Core, *values: bytes) -> list[bytes]:
    return [core.client.xadd("s", {"v": value}) for value in values]  # type: ignore[misc]


def test_a_second_value_of_claim_after_is_refused(core: Core) -> None:
    with pytest.raises(
        DeclarationError, match="claims after 60000 ms, but this consumer declares 5000"
    ):
        Core.joined(_url(core.client), "two", claim_after_ms=5_000)


def _seen_long_ago(core: Core) -> None:
    core.client.hset(group_settings_key("s", "g"), "seen_at", "1")


def test_another_claim_after_is_refused_while_a_consumer_uses_the_group(core: Core) -> None:
    add(core, b"a")
    core.read()
    _seen_long_ago(core)
    with pytest.raises(DeclarationError, match="consumer one was seen"):
        Core.joined(_url(core.client), "two", claim_after_ms=5_000)


def test_claim_after_can_change_when_all_workers_of_the_group_have_stopped(core: Core) -> None:
    # Given a group whose only worker has left it
    add(core, b"a")
    core.settle(core.read()[0])
    core.do(retire(core.member))
    core.client.xgroup_createconsumer("s", "g", PARKED_CONSUMER)
    core.client.xgroup_createconsumer("s", "g", SIGN_CONSUMER)
    _seen_long_ago(core)

    # When a consumer with another claim_after joins
    other = Core.joined(_url(core.client), "two", claim_after_ms=5_000)

    # Then its value applies, and the old value is refused
    assert other.client.hget(group_settings_key("s", "g"), "claim_after_ms") == b"5000"
    with pytest.raises(DeclarationError, match="claims after 5000 ms"):
        core.do(join(core.member))
    other.close()


def test_joining_an_existing_group_does_not_require_the_right_to_create_one(core: Core) -> None:
    core.client.execute_command(
        "ACL", "SETUSER", "reader", "on", "nopass", "+@all", "-xgroup|create", "~*"
    )
    url = _url(core.client).replace("redis://", "redis://reader:x@")

    Core.joined(url, "two").close()

    core.client.xgroup_destroy("s", "g")
    with pytest.raises(Refused, match="NOPERM"):
        Core.joined(url, "two")


def test_joining_a_group_twice_changes_nothing(core: Core) -> None:
    add(core, b"a")
    assert len(core.read()) == 1
    core.do(join(core.member))
    assert core.read() == []


def test_a_missing_group_raises_group_vanished(core: Core) -> None:
    core.client.delete("s")
    with pytest.raises(GroupVanished):
        core.read()
    with pytest.raises(GroupVanished):
        core.settle(b"5-5")
    core.client.set("s", "x")
    with pytest.raises(Refused, match="WRONGTYPE"):
        core.read()


def test_a_destroyed_group_is_created_again_at_a_position_before_its_unsettled_entries(
    core: Core,
) -> None:
    # Given three entries, the first settled, and a group that another client destroys
    first, second, third = add(core, b"a", b"b", b"c")
    one, two, _three = core.read()
    core.settle(one)
    core.client.xgroup_destroy("s", "g")

    # When the worker joins again with the entries that it has not settled
    unsettled = [(two.id, 4), (third, 1)]
    core.do(rejoin(core.member, unsettled=unsettled, seen=third, mark="m1"))

    # Then it owns those with their counts, and the settled entry is not delivered again
    assert core.pending(second) == ("one", 4)
    assert core.pending(third) == ("one", 1)
    assert core.settle(two).done
    groups = core.client.xinfo_groups("s")
    assert groups[0]["last-delivered-id"] < second
    assert first not in [entry.id for entry in core.read()]
    assert core.client.exists(group_settings_key("s", "g")) == 1


def test_a_group_without_unsettled_entries_continues_after_the_last_entry_seen(core: Core) -> None:
    (first,) = add(core, b"a")
    (one,) = core.read()
    core.settle(one)
    core.client.xgroup_destroy("s", "g")

    core.do(rejoin(core.member, unsettled=[], seen=first, mark="m1"))

    assert core.read() == []


def test_a_stream_created_again_with_smaller_ids_is_read_from_its_beginning(core: Core) -> None:
    (first,) = add(core, b"a")
    core.client.delete("s")
    core.client.xadd("s", {"v": "new"}, id="1-1")

    core.do(rejoin(core.member, unsettled=[(first, 1)], seen=first, mark="m1"))

    assert [one.id for one in core.read()] == [b"1-1"]


def test_a_consumer_detects_that_another_created_the_group_again(core: Core) -> None:
    # Given two consumers that own an entry each, and a destroyed group
    first, second = add(core, b"a", b"b")
    (one,) = core.read(limit=1)
    other = core.another("two")
    (two,) = other.read(limit=1)
    core.client.xgroup_destroy("s", "g")

    # When the second creates the group again, at a position after the first one's entry
    core.do(rejoin(other.member, unsettled=[(two.id, 1)], seen=second, mark="m1"))
    assert not core.settle(one).done

    # Then the first recognises this by the mark, and owns its entry again
    mark, kept = core.do(look_again(core.member, unsettled=[(one.id, 1)], mark=None))
    assert (mark, kept) == (b"m1", {first})
    assert core.settle(one).done
    assert core.do(look_again(core.member, unsettled=[(one.id, 1)], mark=mark)) == (mark, set())


def test_registering_again_does_not_take_entries_from_a_live_owner(core: Core) -> None:
    add(core, b"a")
    (one,) = core.read()
    other = core.another("two")

    _mark, kept = other.do(look_again(other.member, unsettled=[(one.id, 7)], mark=b"older"))

    assert kept == set()
    assert core.pending(one.id) == ("one", 1)


def _url(client: redis.Redis) -> str:
    settings = client.connection_pool.connection_kwargs
    return f"redis://{settings['host']}:{settings['port']}"
