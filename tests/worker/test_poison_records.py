"""A group's records of messages whose owners stopped renewing, on every server."""

from __future__ import annotations

from collections.abc import Sequence

import redis

from headwater.groups.protocol.operation import run, single
from headwater.groups.reading.claiming import Delivered
from headwater.groups.reading.poison import Record, alone, heard, judged, records, sweep, write
from headwater.groups.settling.settling import How
from tests.worker.core import CLAIM_AFTER_MS, Core
from tests.worker.test_groups import add


def judge(core: Core, found: Sequence[Delivered], *, leave: bool = False) -> dict[bytes, Record]:
    known: dict[bytes, Record] = core.do(judged(core.member, found, leave=leave))
    assert known == core.do(records(core.member))
    return known


def claimed_by(core: Core, name: str, entry: Delivered) -> tuple[Core, Delivered]:
    """Another consumer, which has claimed ``entry`` because its owner did not renew it."""
    core.age(entry, CLAIM_AFTER_MS + 1)
    other = core.another(name)
    (found,) = other.read()
    return other, found


def test_a_claim_from_a_silent_owner_counts_only_if_the_message_ran_alone(core: Core) -> None:
    # Given a message whose owners stop renewing, one after another
    (entry_id,) = add(core, b"a")
    (first,) = core.read()
    two, second = claimed_by(core, "two", first)
    assert judge(two, [second]) == {entry_id: Record(excused=1)}
    three, third = claimed_by(core, "three", second)
    suspect = judge(three, [third], leave=True)[entry_id]
    assert suspect == Record(excused=2, left=1)

    # When its process dies twice in quarantine, then it is condemned
    for name in ("four", "five"):
        core.do(write(core.member, {entry_id: alone(suspect, count=third.delivery_count)}))
        other, third = claimed_by(core, name, third)
        suspect = judge(other, [third])[entry_id]
    assert suspect == Record(excused=2, crashes=2)
    assert suspect.condemned()
    assert not suspect.condemned(3)


def test_silence_of_a_process_that_lives_is_not_a_death(core: Core) -> None:
    # Given a message whose owners are silent, one after another
    (entry_id,) = add(core, b"a")
    (found,) = core.read()
    owner = core
    for name in ("two", "three", "four", "five"):
        before, (owner, found) = (owner, found), claimed_by(owner, name, found)
        judge(owner, [found])
        # When each is heard of again, and says so twice
        for _ in range(2):
            core.do(heard(before[0].member, [(entry_id, before[1].delivery_count, False)]))
    # Then the message is not suspected, and the deliveries do not count
    record = core.do(records(core.member))[entry_id]
    assert record == Record(excused=4, forgiven=4)
    assert not record.suspect


def test_an_owner_known_to_live_is_not_accused(core: Core) -> None:
    # Given a message that ran alone in a process which is stopped, as its supervisor says
    (entry_id,) = add(core, b"a")
    (first,) = core.read()
    core.do(write(core.member, {entry_id: Record(excused=2, alone_at=1)}))
    core.do(heard(core.member, [(entry_id, 1, True)]))

    # When another process claims it, then no crash is recorded
    two, second = claimed_by(core, "two", first)
    assert judge(two, [second]) == {entry_id: Record(excused=3, forgiven=2)}


def test_a_process_that_is_heard_of_again_withdraws_a_crash(core: Core) -> None:
    (entry_id,) = add(core, b"a")
    (first,) = core.read()
    core.do(write(core.member, {entry_id: Record(excused=2, alone_at=1, crashes=1)}))
    two, second = claimed_by(core, "two", first)
    assert judge(two, [second])[entry_id].condemned()
    core.do(heard(core.member, [(entry_id, 1, True)]))
    assert not core.do(records(core.member))[entry_id].condemned()


def test_retries_and_releases_are_not_recorded(core: Core) -> None:
    add(core, b"a")
    (first,) = core.read()
    for how in (How.FAIL, How.SILENT):
        core.settle(first, how)
        (first,) = core.read()
        assert judge(core, [first]) == {}


def test_records_of_settled_messages_are_deleted(core: Core) -> None:
    add(core, b"a", b"b")
    first, second = core.read()
    for one in (first, second):
        core.do(write(core.member, {one.id: Record(excused=1)}))
    core.settle(first)

    core.do(sweep(core.member))

    assert core.do(records(core.member)) == {second.id: Record(excused=1)}


def test_claiming_works_without_rights_to_the_hash_of_records(core: Core) -> None:
    # Given a worker without rights to the hash of records
    add(core, b"a")
    (first,) = core.read()
    run(core.client, single("ACL", "SETUSER", "w", "on", ">w", "+@all", "~s", "~{s}:hw:group:g"))
    address = core.client.connection_pool.connection_kwargs
    with redis.Redis(
        host=address["host"], port=address["port"], username="w", password="w"
    ) as client:
        claimed = first._replace(claimed=True, from_silent=True, delivery_count=2)

        # When it claims, then it continues without records
        assert run(client, judged(core.member, [claimed], leave=False)) == {}
        run(client, sweep(core.member))
    run(core.client, single("ACL", "DELUSER", "w"))
