"""A group that somebody destroys while its stream stays: nothing that was noted is lost."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from headwater.groups.backup_writer import BackupWriter, Round
from headwater.groups.group_backup import FIELDS, MOST, parse
from headwater.groups.member import Remade, join, rejoin
from headwater.groups.session import ROUNDS, GroupSession
from headwater.groups.settling import How, Settlement
from headwater.messages import delays_key, group_backup_key
from headwater.worker import Again, Delivery
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


def note(core: Core) -> Round:
    done: Round = core.do(BackupWriter(core.member).round())
    return done


def remade(core: Core, *unsettled: tuple[bytes, int], seen: bytes | None = None) -> Remade:
    core.client.xgroup_destroy("s", "g")
    found: Remade = core.do(rejoin(core.member, unsettled=unsettled, seen=seen, mark="m1"))
    return found


# --- the core -------------------------------------------------------------------------------------


def test_a_waiting_retry_survives_its_group(core: Core) -> None:
    # Given an entry that waits for a retry, and one that was settled
    first, second = add(core, b"a", b"b")
    one, two = core.read()
    core.settle(one, How.FAIL, delay_ms=CLAIM_AFTER_MS // 2)
    core.settle(two)
    assert note(core).written

    # When the group is destroyed and created again
    done = remade(core, seen=second)

    # Then the retry waits still, with its count, and the settled one does not come again
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
    note(core)

    remade(core, seen=first)
    if not core.member.able.verbs:
        core.age(first, CLAIM_AFTER_MS + 1)

    assert core.read() == []
    assert core.pending(first) == ("" if core.member.able.verbs else "hw.parked", 1)


def test_a_note_of_entries_that_wait_is_written_once(core: Core) -> None:
    # Given entries that wait, and a note of them
    add(core, *[b"a"] * 50)
    for entry in core.read():
        core.settle(entry, How.FAIL, delay_ms=CLAIM_AFTER_MS // 2)
    noter = BackupWriter(core.member)
    key = group_backup_key("s", "g")
    core.do(noter.round())
    before = core.client.hget(key, "pending")

    # When the group is noted again a little later
    for _ in range(3):
        core.client.hset(key, "at", 0)
        core.do(noter.round())

    # Then the text is the same
    assert before
    assert core.client.hget(key, "pending") == before


@pytest.mark.parametrize("noted", [True, False])
def test_a_retry_that_was_handed_back_after_the_note_survives_its_group(
    core: Core, *, noted: bool
) -> None:
    # Given a note of an entry that a member owns, and that it hands back after the note
    (first,) = add(core, b"a")
    (entry,) = core.read()
    session = GroupSession(core.member, unsettled=lambda: ())
    session.seen = first
    if noted:
        note(core)
    core.do(session.settle([Settlement(first, How.FAIL, delay_ms=300)]))
    assert entry.id == first

    # When the group is destroyed, and created again by that member
    core.client.xgroup_destroy("s", "g")
    core.do(session.create_again())

    # Then the entry comes again, where its due time is known when it is due, and counts both deliveries
    if not core.member.able.verbs:
        core.client.zadd(delays_key("s", "g"), {first: 1})
    assert [(one.id, one.delivery_count) for one in core.read()] == [(first, 2)]


def test_a_retry_that_was_settled_by_another_since_does_not_come_again(core: Core) -> None:
    # Given a group of which nothing is noted, and a retry that another member settled some rounds later
    (first,) = add(core, b"a")
    core.read()
    session = GroupSession(core.member, unsettled=lambda: ())
    session.seen = first
    core.do(session.settle([Settlement(first, How.FAIL)]))
    (again,) = core.beside("two").read()
    assert core.beside("two").settle(again).done
    for _ in range(ROUNDS):
        session.backed_up()

    # When the group is destroyed, and created again by the member that had handed it back
    core.client.xgroup_destroy("s", "g")
    core.do(session.create_again())

    # Then nothing is pending in it
    assert core.nothing_pending()
    assert core.read() == []


def test_entries_of_a_dead_worker_survive_their_group(core: Core) -> None:
    (first,) = add(core, b"a")
    dead = core.beside("dead")
    (entry,) = dead.read()
    note(core)

    remade(core)

    assert core.pending(first) == ("dead", 1)
    core.age(entry, CLAIM_AFTER_MS + 1)
    assert [(one.id, one.delivery_count) for one in core.read()] == [(first, 2)]


def test_a_living_owner_settles_what_was_registered_for_it(core: Core) -> None:
    add(core, b"a")
    other = core.beside("two")
    (entry,) = other.read()
    note(core)

    remade(core)

    assert other.settle(entry).done
    assert core.nothing_pending()


def test_what_a_member_settled_after_the_note_is_not_registered_again_by_itself(
    core: Core,
) -> None:
    (first,) = add(core, b"a")
    (entry,) = core.read()
    note(core)
    core.settle(entry)

    assert remade(core, seen=first).restored == 0
    assert core.nothing_pending()
    assert core.read() == []


def test_the_second_who_finds_the_group_gone_changes_nothing_more(core: Core) -> None:
    (first,) = add(core, b"a")
    core.settle(core.read()[0], How.FAIL)
    note(core)
    remade(core, seen=first)

    second = core.beside("two")
    done = second.do(rejoin(second.member, unsettled=(), seen=None, mark="m2"))

    assert not done.made
    assert done.mark == b"m1"


def test_a_worker_that_starts_just_after_goes_on_where_the_group_was(core: Core) -> None:
    (first,) = add(core, b"a")
    core.settle(core.read()[0])
    note(core)
    core.client.xgroup_destroy("s", "g")

    core.do(join(core.member))

    assert core.read() == []
    assert core.client.xinfo_groups("s")[0]["last-delivered-id"] == first


def test_of_too_many_pending_entries_the_group_begins_below_the_smallest(core: Core) -> None:
    with core.client.pipeline(transaction=False) as pipeline:
        for _ in range(MOST + 1):
            pipeline.xadd("s", {"v": "x"})
        pipeline.execute()
    found = core.read(limit=MOST + 1)
    note(core)
    values: Any = core.client.hmget(group_backup_key("s", "g"), list(FIELDS))
    noted = parse(values)
    assert noted is not None
    assert noted.rows == []

    done = remade(core)

    assert str(done.position).encode() < found[0].id
    assert len(core.read(limit=MOST + 1)) == MOST + 1


def test_one_worker_notes_and_the_others_see_that_it_did(core: Core) -> None:
    add(core, b"a")
    assert note(core).written
    other = core.beside("two")
    assert not note(other).written


def test_a_clock_that_was_set_back_is_found_by_the_last_note(core: Core) -> None:
    note(core)
    before = int(core.client.hget(group_backup_key("s", "g"), "at") or 0)
    core.client.hset(group_backup_key("s", "g"), "at", str(before + 3_600_000))

    done = note(core)

    assert done.written
    assert 3_590_000 < done.set_back_ms <= 3_600_000


# --- workers --------------------------------------------------------------------------------------


async def test_a_destroyed_group_loses_no_retry_and_no_entry_of_a_dead_worker(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given results already published, an entry of a worker that was killed, and a waiting retry
    dying, living = store.app(), store.app()
    stuck = asyncio.Event()
    counts: dict[int, list[int]] = {}

    @dying.consumer(orders, group="g", claim_after="4s", concurrency=1, prefetch=1)
    async def die(order: Order) -> None:
        stuck.set()
        await asyncio.Event().wait()

    @living.consumer(orders, group="g", claim_after="4s", into=invoices)
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
    async with working(living):
        for number in range(2, 22):
            await store.look.xadd("orders", {"id": str(number)})
        await eventually(lambda: len(counts) == 20)
        await eventually(lambda: noted(store, pending=2))

        # When somebody destroys the group
        await store.look.xgroup_destroy("orders", "g")

        # Then it goes on: each has one result, the dead worker's and the retry too
        await eventually(lambda: "was gone and is created again" in caplog.text)
        await eventually(lambda: 1 in counts and len(counts[2]) == 2)
        await eventually(store.settled)
    await buried(dead)
    results = sorted(one.order for one in await store.results())
    assert results == list(range(1, 22))
    assert counts[2] == [1, 2]
    assert counts[1] == [2]


async def noted(store: Store, *, pending: int) -> bool:
    values: Any = await store.look.hmget(group_backup_key("orders", "g"), list(FIELDS))
    noted = parse(values)
    groups: Any = await store.look.xinfo_groups("orders")
    return (
        noted is not None
        and len(noted.rows) == pending
        and str(noted.last).encode() == groups[0]["last-delivered-id"]
    )


@pytest.mark.parametrize("store", ["redis-8.2"], indirect=True)
async def test_a_store_whose_clock_was_set_back_is_a_warning(
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


async def test_who_has_a_lost_entry_is_said_only_when_somebody_has_it(
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

    async with working(app):
        await orders.send_many([Order(1), Order(2)])
        await eventually(lambda: len(begun) == 2)
        await store.look.xack("orders", "g", begun[0])
        await store.look.xclaim("orders", "g", "thief", 0, [begun[1]])
        go_on.set()
        await eventually(lambda: caplog.text.count("was not settled by this worker") == 2)
        await eventually(elapsed(0.05))
    said = {line.message for line in caplog.records if "was not settled" in line.message}
    what = "it was not settled by this worker"
    nobody = (
        "it is not pending: another client acknowledged it, deleted it, or removed its consumer; "
    )
    nobody += "or the server lost it in a failover"
    assert said == {
        f"{begun[0]} of orders: {what}; {nobody}",
        f"{begun[1]} of orders: {what}; consumer thief owns it",
    }
    await store.look.xack("orders", "g", begun[1])
