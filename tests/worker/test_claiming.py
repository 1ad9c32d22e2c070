"""Delayed retries wait in the pending entries list. A claim reads the entries that are due, not all that
wait. Entries deleted from the stream are reported."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from headwater.groups.membership.member import join
from headwater.groups.protocol.operation import Operation, single
from headwater.groups.reading.claiming import Delivered
from headwater.groups.reports.trimmed import unread_lost
from headwater.groups.settling.settling import How
from headwater.messages.keys import delays_key
from tests.worker.core import CLAIM_AFTER_MS, Core
from tests.worker.test_groups import CLAIMABLE_IDLE_MS, add, in_lua

DELAYS = delays_key("s", "g")

WAITING = 200_000

T = TypeVar("T")

headwater_only = pytest.mark.parametrize("core", ["headwater"], indirect=True)
"""For behaviour that differs on a server that claims while it reads."""

PARK = """
for first = 1, ARGV[1], 1000 do
  for i = 1, 1000 do redis.call('XADD', KEYS[1], '*', 'v', 'x') end
  local read = redis.call('XREADGROUP', 'GROUP', 'g', 'one', 'COUNT', 1000, 'STREAMS', KEYS[1], '>')
  for _, entry in ipairs(read[1][2]) do
    redis.call('XCLAIM', KEYS[1], 'g', 'hw.parked', 0, entry[1], 'IDLE', 0, 'JUSTID')
    redis.call('ZADD', KEYS[2], ARGV[2], entry[1])
  end
end
"""


@pytest.mark.parametrize("delay_ms", [40_000, 3 * CLAIM_AFTER_MS])
def test_a_delayed_entry_stays_pending_and_is_delivered_when_due(core: Core, delay_ms: int) -> None:
    # Given an entry that failed, with a delay shorter or longer than claim_after
    (entry_id,) = add(core, b"a")
    (first,) = core.read()
    assert core.settle(first, How.FAIL, delay_ms=delay_ms).done
    other = core.another("two")

    # When it is not due, then no consumer gets it, however long it has been idle
    assert core.read() == []
    assert other.read() == []
    if core.advance is not None:
        core.advance(delay_ms / 1000 - 1)
        assert other.read() == []
        core.advance(1)
    else:
        core.age(entry_id, CLAIMABLE_IDLE_MS)  # its idle time does not make it due
        assert other.read() == []
        core.client.zadd(DELAYS, {entry_id: 1})

    # When it is due, then it is delivered with the correct count, and its due time is deleted
    (again,) = other.read()
    assert again.delivery_count == 2
    assert not again.from_silent
    assert core.client.exists(DELAYS) == 0


@in_lua
def test_due_times_of_entries_that_are_no_longer_pending_are_deleted(core: Core) -> None:
    core.client.zadd(DELAYS, {"5-5": 1})

    core.read()

    assert core.client.exists(DELAYS) == 0


@in_lua
def test_parked_entries_without_a_due_time_are_delivered_when_due(core: Core) -> None:
    # Given two parked entries whose delays only their idle times show, as in a group that was restored
    add(core, b"a", b"b")
    short, long = core.read()
    core.client.xclaim("s", "g", "hw.parked", 0, [short.id], idle=CLAIMABLE_IDLE_MS, justid=True)
    core.client.xclaim("s", "g", "hw.parked", 0, [long.id], idle=0, justid=True)

    # When another consumer reads, then it gets the first, and the second once it is due
    other = core.another("two")
    found = [*other.read(), *other.read()]
    assert [(one.id, one.from_silent) for one in found] == [(short.id, False)]
    assert core.client.zrange(DELAYS, 0, -1) == [long.id]

    core.client.zadd(DELAYS, {long.id: 1})
    assert [one.id for one in other.read()] == [long.id]
    assert core.client.exists(DELAYS) == 0


@in_lua
def test_settling_an_entry_deletes_its_due_time(core: Core) -> None:
    # Given a delayed entry that another client claimed
    (entry_id,) = add(core, b"a")
    (first,) = core.read()
    core.settle(first, How.FAIL, delay_ms=1_000)
    core.client.xclaim("s", "g", "one", 0, [entry_id])

    assert core.settle(first).done

    assert core.client.exists(DELAYS) == 0


def test_a_sweep_of_a_long_pending_entries_list_takes_several_reads(core: Core) -> None:
    # Given 2,500 pending entries of which the last two can be claimed
    with core.client.pipeline(transaction=False) as pipeline:
        for _ in range(2_500):
            pipeline.xadd("s", {"v": "x"})
        pipeline.execute()
    found = core.read(limit=2_500)
    for one in found[-2:]:
        core.age(one, CLAIMABLE_IDLE_MS)
    other = core.another("two")

    # When another consumer reads a few times, then it has claimed those two
    claimed = [one.id for _ in range(4) for one in other.read()]
    assert claimed == [one.id for one in found[-2:]]


def test_a_deleted_entry_is_not_delivered_and_reported_once(core: Core) -> None:
    add(core, b"a", b"b")
    first, second = core.read()
    core.age(first, CLAIMABLE_IDLE_MS)
    core.client.xdel("s", first.id)

    other, third = core.another("two"), core.another("three")
    found = [one for reader in (other, third, other) for one in reader.read()]
    assert found == []
    assert other.gone + third.gone == [first.id]
    core.settle(second)
    assert core.nothing_pending()


@in_lua
def test_settling_a_deleted_entry_for_a_retry_reports_it(core: Core) -> None:
    add(core, b"a", b"b")
    first, second = core.read()
    core.client.xtrim("s", maxlen=0)

    outcome = core.settle(first, How.FAIL, delay_ms=1_000)

    assert (outcome.done, outcome.gone) == (True, True)
    assert core.settle(second).done
    assert core.nothing_pending()
    assert core.client.exists(DELAYS) == 0


def test_a_trimmed_entry_is_reported_when_its_retry_is_due(core: Core) -> None:
    # Given a retry that waits, and whose entry is trimmed
    add(core, b"a")
    (first,) = core.read()
    core.settle(first, How.FAIL, delay_ms=1_000)
    core.client.xtrim("s", maxlen=0)

    # When it is due
    if core.advance is None:
        core.client.zadd(DELAYS, {first.id: 1})
    else:
        core.advance(120)

    other = core.another("two")
    assert other.read() == []
    assert other.gone == [first.id]
    assert core.nothing_pending()


@headwater_only
def test_a_trimmed_entry_with_a_long_delay_is_reported_before_it_is_due(core: Core) -> None:
    # Given a retry that waits for an hour, among others, and whose entry is trimmed with all before it
    add(core, b"a", b"b", b"c")
    first, second, _third = core.read()
    core.settle(first, How.FAIL, delay_ms=3_600_000)
    core.settle(second, How.FAIL, delay_ms=3_600_000)
    core.client.xtrim("s", maxlen=2, approximate=False)

    # When another consumer reads, then it reports that entry
    other = core.another("two")
    assert other.read() == []
    assert other.gone == [first.id]
    assert core.pending(second.id) == ("", 1)


@headwater_only
def test_finding_deleted_entries_takes_few_commands_however_many_retries_wait(core: Core) -> None:
    # Given 10,000 retries that wait for an hour, and one deleted entry whose owner did not renew it
    add(core, *(b"x" for _ in range(10_000)))
    while found := core.read(limit=1_000):
        ids = [one.id for one in found]
        delay = ("FAIL", "DELAY", 3_600_000)
        core.do(single("XSETTLE", "s", "g", "one", *delay, "IDS", len(ids), *ids))
    add(core, b"a")
    (last,) = core.read()
    core.age(last, CLAIMABLE_IDLE_MS)
    core.client.xdel("s", last.id)

    # When a consumer has checked all of them
    other, commands = core.another("two"), 0
    while not other.gone:
        other.now += 1
        steps = counted(other.reader.read(limit=100, now=other.now))
        found, more = other.do(steps)
        assert found == []
        commands += more

    # Then that took a few commands for each thousand, and the deleted entry was reported
    assert other.gone == [last.id]
    assert commands <= 11 * 4 + 2


def counted(operation: Operation[T]) -> Operation[tuple[T, int]]:
    """The same operation, which also returns how many commands it sent."""
    count, commands = 0, next(operation)
    while True:
        count += len(commands)
        replies = yield commands
        try:
            commands = operation.send(replies)
        except StopIteration as finished:
            return finished.value, count


@headwater_only
def test_deleted_entries_are_found_without_the_right_to_count(core: Core) -> None:
    found = add(core, *(b"x" for _ in range(30)))
    core.read(limit=30)
    for one in found:
        core.age(one, CLAIMABLE_IDLE_MS)
    core.client.xdel("s", found[5], found[20])
    other = core.another("two")
    core.client.execute_command("ACL", "SETUSER", "default", "-xsplit")
    try:
        other.read(limit=1)
    finally:
        core.client.execute_command("ACL", "SETUSER", "default", "+xsplit")
    assert other.gone == [found[5], found[20]]


def test_finding_deleted_entries_transfers_no_others(core: Core) -> None:
    # Given ten large entries that can be claimed, and one that is deleted
    found = add(core, *(bytes(200_000) for _ in range(11)))
    core.read(limit=11)
    for one in found:
        core.age(one, CLAIMABLE_IDLE_MS)
    core.client.xdel("s", found[5])
    # When a consumer that checks them reads one of them
    other, size = core.another("two"), 0

    def measured(reading: Operation[list[Delivered]]) -> Operation[list[Delivered]]:
        nonlocal size
        commands = next(reading)
        try:
            while True:
                replies = yield commands
                size += len(repr(replies)) // len(repr(b"\0")[2:-1])
                commands = reading.send(replies)
        except StopIteration as finished:
            claimed: list[Delivered] = finished.value
            return claimed

    (claimed,) = other.do(measured(other.reader.read(limit=1, now=other.now + 1)))
    # Then it gets the content of that one, and at most of the first one of the stream
    assert claimed.id == found[0]
    assert 200_000 <= size < 500_000


@pytest.mark.slow
@in_lua
def test_claiming_costs_the_same_however_many_retries_wait(core: Core) -> None:
    # Given 200,000 retries that wait for an hour, and four idle consumers that have swept once
    for _part in range(20):  # one script would take longer than the client waits for a reply
        core.client.eval(PARK, 2, "s", DELAYS, WAITING // 20, 2**50)
    members = [core.another(name) for name in ("a", "b", "c", "d")]
    for member in members:
        while member.reader.passing:
            member.read()

    # When each of them reads ten times
    core.client.config_resetstat()
    for _ in range(10):
        for member in members:
            assert member.read() == []

    # Then each read is one script that reads one row, and one XREADGROUP for new entries
    stats: Any = core.client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): one["calls"] for name, one in stats.items()}
    assert calls["evalsha"] == calls["xreadgroup"] == calls["xpending"] == 40
    assert sum(calls.values()) <= 40 * 11
    assert "xclaim" not in calls


@in_lua
def test_one_consumer_a_minute_sweeps_the_whole_pending_entries_list(core: Core) -> None:
    # Given an entry that its live owner does not renew, and consumers that have swept once
    add(core, b"a")
    (first,) = core.read()
    members = [core.another(name) for name in ("a", "b")]
    assert [one.read() for one in members] == [[], []]
    core.age(first, CLAIMABLE_IDLE_MS)

    # When the minute is over, then one of them claims it
    found = [one for member in members for one in member.read()]
    assert [one.id for one in found] == [first.id]
    assert sum(member.reader.passing for member in members) == 0


@pytest.mark.slow
@in_lua
def test_entries_of_a_silent_consumer_are_claimed_without_a_sweep(core: Core) -> None:
    # Given a consumer that claims after a second and has swept, and another that stops calling the server
    core = core.claiming_after(1_000)
    add(core, b"a", b"b")
    (first, second) = core.read()
    other = core.another("two")
    while other.reader.passing:
        assert other.read() == []

    # When the server has not seen the other for that long
    while core.client.xinfo_consumers("s", "g")[0]["idle"] < 1_000:  # "one" is the first by name
        pass

    # Then the next read claims the entries that it owned
    assert [one.id for one in other.read()] == [first.id, second.id]


@in_lua
def test_a_retry_without_delay_is_claimable_at_once(core: Core) -> None:
    # Given a consumer that has just looked for claimable entries
    add(core, b"a")
    (first,) = core.read()
    core.settle(first, How.FAIL)

    # When it expects its own retry, then a read at the same time returns it
    core.reader.expect(core.now)
    core.now -= 1
    assert [one.id for one in core.read()] == [first.id]


def test_entries_trimmed_unread_are_counted_once_in_a_group(core: Core) -> None:
    # Given a group that has read one of five entries, of which four are trimmed
    add(core, b"a", b"b", b"c", b"d", b"e")
    core.read(limit=1)
    core.client.xtrim("s", maxlen=1, approximate=False)
    other = core.another("two")

    # When two consumers count, then one of them counts three
    assert core.do(unread_lost(core.member)) == 3
    assert other.do(unread_lost(other.member)) == 0

    # And the second counts a later loss
    add(core, b"f")
    core.client.xtrim("s", maxlen=1, approximate=False)
    assert other.do(unread_lost(other.member)) == 1


def test_entries_deleted_after_they_were_read_are_not_counted_as_lost(core: Core) -> None:
    add(core, b"a", b"b", b"c")
    for one in core.read(limit=2):
        core.settle(one, How.ACKDEL)

    assert core.do(unread_lost(core.member)) == 0


def test_entries_trimmed_before_the_group_was_created_are_not_counted_as_lost(core: Core) -> None:
    add(core, b"a", b"b", b"c")
    core.client.xtrim("s", maxlen=1, approximate=False)
    core.client.xgroup_destroy("s", "g")
    core.do(join(core.member))

    assert core.do(unread_lost(core.member)) == 0
    assert len(core.read()) == 1
    assert core.do(unread_lost(core.member)) == 0
