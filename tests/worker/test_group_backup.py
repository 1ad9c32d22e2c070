"""A group that another client destroys is restored from its backup, with its retries and pending entries."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from headwater.common.limits import LIMITED_LOG_LINES
from headwater.common.model import StreamID
from headwater.groups.membership.backup_writer import BackupWriter, Round, write_quiet
from headwater.groups.membership.group_backup import FIELDS, MOST, GroupBackup, Row, parse
from headwater.groups.membership.member import Remade, join, rejoin
from headwater.groups.protocol.operation import Operation, batched, server_ms
from headwater.groups.settling.session import ROUNDS, GroupSession
from headwater.groups.settling.settling import How, Settlement
from headwater.messages.keys import delays_key, group_backup_key
from headwater.worker import Again, Delivery, group_backup_task
from tests.worker.apps import (
    Invoice,
    Order,
    Store,
    buried,
    elapsed,
    eventually,
    invoices,
    killed,
    orders,
    worker,
    working,
)
from tests.worker.core import CLAIM_AFTER_MS, Core

pytestmark = pytest.mark.slow


def add(core: Core, *values: bytes) -> list[bytes]:
    return [core.client.xadd("s", {"v": value}) for value in values]  # type: ignore[misc]


def back_up(core: Core) -> Round:
    done: Round = core.do(BackupWriter(core.member).round())
    return done


def recreated(core: Core, *unsettled: tuple[bytes, int], seen: bytes | None = None) -> Remade:
    core.client.xgroup_destroy("s", "g")
    found: Remade = core.do(rejoin(core.member, unsettled=unsettled, seen=seen, mark="m1"))
    return found


# --- the core -------------------------------------------------------------------------------------


def test_a_waiting_retry_survives_its_destroyed_group(core: Core) -> None:
    # Given an entry that waits for a retry, and one that was settled
    first, second = add(core, b"a", b"b")
    one, two = core.read()
    core.settle(one, How.FAIL, delay_ms=CLAIM_AFTER_MS // 2)
    core.settle(two)
    assert back_up(core).written

    # When the group is destroyed and created again
    done = recreated(core, seen=second)

    # Then the retry still waits, with its count, and the settled entry is not delivered again
    assert (done.restored, str(done.position).encode()) == (1, second)
    assert core.pending(first)[1] == 1
    assert core.read() == []
    if core.member.able.verbs:
        assert core.advance is not None
        core.advance(CLAIM_AFTER_MS / 2_000)
    else:
        assert core.pending(first)[0] == "hw.parked"
        core.client.zadd(delays_key("s", "g"), {first: 1})
    assert [(entry.id, entry.delivery_count) for entry in core.read()] == [(first, 2)]
    assert core.read() == []


def test_a_retry_beyond_claim_after_keeps_its_due_time(core: Core) -> None:
    (first,) = add(core, b"a")
    core.settle(core.read()[0], How.FAIL, delay_ms=3 * CLAIM_AFTER_MS)
    back_up(core)

    recreated(core, seen=first)
    if not core.member.able.verbs:
        core.age(first, CLAIM_AFTER_MS + 1)

    assert core.read() == []
    assert core.pending(first) == ("" if core.member.able.verbs else "hw.parked", 1)


def test_the_backup_of_delayed_entries_does_not_change(core: Core) -> None:
    # Given delayed entries, and a backup of them
    add(core, *[b"a"] * 50)
    for entry in core.read():
        core.settle(entry, How.FAIL, delay_ms=CLAIM_AFTER_MS // 2)
    writer = BackupWriter(core.member)
    key = group_backup_key("s", "g")
    core.do(writer.round())
    before = core.client.hget(key, "pending")

    # When the backup is written again a little later
    for _ in range(3):
        core.client.hset(key, "at", 0)
        core.do(writer.round())

    # Then the text has not changed
    assert before
    assert core.client.hget(key, "pending") == before


def test_the_backups_of_quiet_groups_are_renewed_by_one_script(core: Core) -> None:
    # Given three groups whose last entry is settled, and a backup of each
    keys, writers = [], []
    for number in range(3):
        member = replace(core.member, stream=f"quiet{number}")
        core.client.xgroup_create(member.stream, "g", "0", mkstream=True)
        entry_id: Any = core.client.xadd(member.stream, {"v": b"a"})
        core.client.xreadgroup("g", "one", {member.stream: ">"})
        core.client.xack(member.stream, "g", entry_id)
        keys.append(group_backup_key(member.stream, "g"))
        writers.append(BackupWriter(member))
    now = server_ms(core.client.execute_command("TIME"))
    for writer in writers:
        core.do(writer.round(now - 4_000))  # which adds a consumer
        core.do(writer.round(now))
    later = now + 1_900
    assert all(writer.is_quiet(later) for writer in writers)
    assert not any(writer.is_quiet(now + 1) for writer in writers)

    # When an entry of one is read, another worker has backed up the next, and two seconds are over
    core.client.xadd("quiet0", {"v": b"b"})
    core.client.xreadgroup("g", "one", {"quiet0": ">"})
    core.client.hset(keys[1], "at", now + 1)
    core.do(write_quiet(writers, later))

    # Then the time is written of the third, and its round sends nothing more
    assert [core.client.hget(key, "at") for key in keys] == [
        b"%d" % one for one in (now, now + 1, later)
    ]
    with pytest.raises(StopIteration, match="written=True"):
        next(writers[2].round(later))
    # And the first is read again
    assert core.do(writers[0].round(later)).written
    assert not writers[0].is_quiet(later + 1_900)


@pytest.mark.parametrize("with_backup", [True, False])
def test_a_retry_handed_back_after_the_last_backup_survives_its_destroyed_group(
    core: Core, *, with_backup: bool
) -> None:
    # Given a backup of an entry that a consumer owns, and that it hands back after the backup
    (first,) = add(core, b"a")
    (entry,) = core.read()
    session = GroupSession(core.member, unsettled=lambda: ())
    session.seen = first
    if with_backup:
        back_up(core)
    core.do(session.settle([Settlement(first, How.FAIL, delay_ms=300)]))
    assert entry.id == first

    # When the group is destroyed, and created again by that consumer
    core.client.xgroup_destroy("s", "g")
    core.do(session.create_again())

    # Then the entry is delivered again, when it is due if that is known, with both deliveries counted
    if not core.member.able.verbs:
        core.client.zadd(delays_key("s", "g"), {first: 1})
    assert [(one.id, one.delivery_count) for one in core.read()] == [(first, 2)]


def test_a_retry_that_another_consumer_settled_is_not_restored(core: Core) -> None:
    # Given a group without a backup, and a retry that another consumer settled some rounds ago
    (first,) = add(core, b"a")
    core.read()
    session = GroupSession(core.member, unsettled=lambda: ())
    session.seen = first
    core.do(session.settle([Settlement(first, How.FAIL)]))
    (again,) = core.another("two").read()
    assert core.another("two").settle(again).done
    for _ in range(ROUNDS):
        session.backed_up()

    # When the group is destroyed, and created again by the consumer that had handed it back
    core.client.xgroup_destroy("s", "g")
    core.do(session.create_again())

    # Then no entry is pending
    assert core.nothing_pending()
    assert core.read() == []


def test_entries_of_a_dead_worker_survive_their_destroyed_group(core: Core) -> None:
    (first,) = add(core, b"a")
    dead = core.another("dead")
    (entry,) = dead.read()
    back_up(core)

    recreated(core)

    assert core.pending(first) == ("dead", 1)
    core.age(entry, CLAIM_AFTER_MS + 1)
    assert [(one.id, one.delivery_count) for one in core.read()] == [(first, 2)]


def test_a_live_owner_settles_an_entry_restored_for_it(core: Core) -> None:
    add(core, b"a")
    other = core.another("two")
    (entry,) = other.read()
    back_up(core)

    recreated(core)

    assert other.settle(entry).done
    assert core.nothing_pending()


def test_a_consumer_does_not_restore_what_it_settled_after_the_last_backup(
    core: Core,
) -> None:
    (first,) = add(core, b"a")
    (entry,) = core.read()
    back_up(core)
    core.settle(entry)

    assert recreated(core, seen=first).restored == 0
    assert core.nothing_pending()
    assert core.read() == []


def test_the_second_consumer_that_finds_the_group_destroyed_changes_nothing(core: Core) -> None:
    (first,) = add(core, b"a")
    core.settle(core.read()[0], How.FAIL)
    back_up(core)
    recreated(core, seen=first)

    second = core.another("two")
    done = second.do(rejoin(second.member, unsettled=(), seen=None, mark="m2"))

    assert not done.made
    assert done.mark == b"m1"


def test_joining_a_destroyed_group_continues_at_its_last_delivered_id(core: Core) -> None:
    (first,) = add(core, b"a")
    core.settle(core.read()[0])
    back_up(core)
    core.client.xgroup_destroy("s", "g")

    core.do(join(core.member))

    assert core.read() == []
    assert core.client.xinfo_groups("s")[0]["last-delivered-id"] == first


def test_a_group_with_too_many_pending_entries_is_restored_at_a_position_before_them(
    core: Core,
) -> None:
    with core.client.pipeline(transaction=False) as pipeline:
        for _ in range(MOST + 1):
            pipeline.xadd("s", {"v": "x"})
        pipeline.execute()
    found = core.read(limit=MOST + 1)
    back_up(core)
    values: Any = core.client.hmget(group_backup_key("s", "g"), list(FIELDS))
    backup = parse(values)
    assert backup is not None
    assert backup.rows == []

    done = recreated(core)

    assert str(done.position).encode() < found[0].id
    assert len(core.read(limit=MOST + 1)) == MOST + 1


def test_only_one_worker_per_round_writes_the_backup(core: Core) -> None:
    add(core, b"a")
    assert back_up(core).written
    other = core.another("two")
    assert not back_up(other).written


def test_a_clock_that_was_set_back_is_detected_by_the_last_backup(core: Core) -> None:
    back_up(core)
    before = int(core.client.hget(group_backup_key("s", "g"), "at") or 0)
    core.client.hset(group_backup_key("s", "g"), "at", str(before + 3_600_000))

    done = back_up(core)

    assert done.written
    assert 3_590_000 < done.set_back_ms <= 3_600_000


NAMES = [
    b"one",
    "caf\N{LATIN SMALL LETTER E WITH ACUTE}".encode(),
    b"caf\xe9",
    b"caf\\xe9",
    b'a\0\n"',
    b"",
]


def test_a_backup_keeps_the_names_of_owners_whatever_their_bytes() -> None:
    rows = [Row(b"5-%d" % number, 1, name, 0) for number, name in enumerate(NAMES)]
    backup = GroupBackup(7, StreamID(5, 9), None, rows)
    fields = {str(one): two for one, two in batched(backup.words(), 2)}
    assert parse([str(fields[name]).encode() for name in FIELDS[:3]] + [backup.text()]) == backup


def test_a_backup_of_an_earlier_version_is_read() -> None:
    text = '{"owners":["","caf\N{LATIN SMALL LETTER E WITH ACUTE}"],"rows":[["5-1",2,1,0],["5-2",1,0,9]]}'
    backup = parse([b"7", b"5-2", b"", text.encode()])
    rows = [Row(b"5-1", 2, b"caf\xc3\xa9", 0), Row(b"5-2", 1, b"", 9)]
    assert backup == GroupBackup(7, StreamID(5, 2), None, rows)


# --- workers --------------------------------------------------------------------------------------


async def test_workers_restore_the_retries_and_entries_of_a_destroyed_group(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given published results, an entry of a worker that was killed, and a waiting retry
    dying, surviving = store.app(), store.app()
    stuck = asyncio.Event()
    counts: dict[int, list[int]] = {}

    @dying.consumer(orders, group="g", claim_after="4s", concurrency=1, prefetch=1)
    async def die(order: Order) -> None:
        stuck.set()
        await asyncio.Event().wait()

    @surviving.consumer(orders, group="g", claim_after="4s", into=invoices)
    async def bill(order: Order, delivery: Delivery) -> Invoice:
        counts.setdefault(order.id, []).append(delivery.count)
        if order.id == 2 and delivery.count == 1:
            raise Again(after="3900ms")
        return Invoice(order.id)

    dead = worker(dying)
    dead.start()
    await store.look.xadd("orders", {"id": "1"})
    await stuck.wait()
    killed(dead)
    async with working(surviving):
        for number in range(2, 22):
            await store.look.xadd("orders", {"id": str(number)})
        await eventually(lambda: len(counts) == 20)
        await eventually(lambda: backed_up(store, pending=2))

        # When another client destroys the group
        await store.look.xgroup_destroy("orders", "g")

        # Then each message has one result, including the dead worker's and the retry
        await eventually(lambda: "was gone and has been created again" in caplog.text)
        await eventually(lambda: 1 in counts and len(counts[2]) == 2)
        await eventually(store.settled)
    await buried(dead)
    results = sorted(one.order for one in await store.results())
    assert results == list(range(1, 22))
    assert counts[2] == [1, 2]
    assert counts[1] == [2]


async def backed_up(store: Store, *, pending: int) -> bool:
    values: Any = await store.look.hmget(group_backup_key("orders", "g"), list(FIELDS))
    backup = parse(values)
    groups: Any = await store.look.xinfo_groups("orders")
    return (
        backup is not None
        and len(backup.rows) == pending
        and str(backup.last).encode() == groups[0]["last-delivered-id"]
    )


@pytest.mark.parametrize("store", ["redis-8.2"], indirect=True)
async def test_a_store_whose_clock_was_set_back_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app = store.app()
    app.consumer(orders, group="g")(lambda order: None)
    async with working(app):
        await eventually(lambda: store.look.hget(group_backup_key("orders", "g"), "at"))
        seconds, _micros = await store.look.time()
        ahead = str((seconds + 3_600) * 1000)
        await store.look.hset(group_backup_key("orders", "g"), "at", ahead)
        await eventually(lambda: "the clock of the store was set back by 3" in caplog.text)


async def test_the_log_names_the_new_owner_of_a_lost_entry_if_there_is_one(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    app = store.app()
    begun: list[str] = []
    go_on = asyncio.Event()

    @app.consumer(orders, group="g", claim_after="20s")
    async def bill(order: Order, delivery: Delivery) -> None:
        begun.append(delivery.id)
        await go_on.wait()
        if order.id == 2:
            raise ValueError("a success would settle it")

    async with working(app):
        await orders.send_many([Order(1), Order(2)])
        await eventually(lambda: len(begun) == 2)
        await store.look.xack("orders", "g", begun[0])
        await store.look.xclaim("orders", "g", "other", 0, [begun[1]])
        go_on.set()
        await eventually(lambda: caplog.text.count("was not settled by this worker") == 2)
        await eventually(elapsed(0.05))
    logged = {line.message for line in caplog.records if "was not settled" in line.message}
    what = "it was not settled by this worker"
    nobody = (
        "it is not pending: another client acknowledged it, deleted it, or removed its consumer; "
    )
    nobody += "or the server lost it in a failover"
    assert logged == {
        f"{begun[0]} of orders: {what}; {nobody}",
        f"{begun[1]} of orders: {what}; consumer other owns it",
    }
    await store.look.xack("orders", "g", begun[1])


@pytest.mark.parametrize("core", ["headwater"], indirect=True)  # its clock is the test's
def test_workers_that_start_together_write_one_backup_each_round(core: Core) -> None:
    # Given three workers of a group, whose first rounds run at the same time
    assert core.advance is not None
    writers = [BackupWriter(core.another(name).member) for name in ("one", "two", "three")]
    for writer in writers:
        core.client.hdel(group_backup_key("s", "g"), "at")
        assert core.do(writer.round()).written
        core.advance(0.002)
    # When they run again, then only the last one writes
    core.advance(2)
    assert [core.do(writer.round()).written for writer in writers] == [False, False, True]
    # And when it has stopped, another one writes before the group counts as without workers
    core.advance(2.4)
    assert [core.do(writer.round()).written for writer in writers[:2]] == [True, False]


async def test_a_group_that_cannot_be_backed_up_ends_no_worker(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a worker of two groups, and a mistake in the program that affects the backup of one
    app = store.app()
    app.consumer(orders, group="g")(lambda order: None)
    app.consumer(invoices, group="g")(lambda invoice: None)
    read, failed = BackupWriter._read, 0

    def wrong(self: BackupWriter, now: int) -> Operation[GroupBackup | None]:
        nonlocal failed
        if self.member.stream == "orders":
            failed += 1
            raise ValueError("a mistake")
        return (yield from read(self, now))

    monkeypatch.setattr(BackupWriter, "_read", wrong)
    monkeypatch.setattr(group_backup_task, "BACKUP_SECONDS", 0.3)
    async with working(app) as running:
        # When the worker tries again and again
        await eventually(lambda: store.look.hget(group_backup_key("invoices", "g"), "at"))
        await eventually(lambda: failed > LIMITED_LOG_LINES + 1)

        # Then it goes on, and the log says so a few times
        assert not any(one.done() for one in running.failures())
        said = [one for one in caplog.records if "was not backed up; this is tried" in one.message]
        assert len(said) == LIMITED_LOG_LINES
        assert said[0].getMessage().startswith("group g of stream orders")
        assert said[0].exc_info is not None

        # And it writes the backup as soon as it can
        monkeypatch.setattr(BackupWriter, "_read", read)
        await eventually(lambda: store.look.hget(group_backup_key("orders", "g"), "at"))
