"""Names and values that other clients have chosen stop no worker: bytes that are not UTF-8, control characters, quotes,
nothing, a megabyte."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headwater.common.names import bytes_of, text_of
from headwater.groups.membership.consumers import consumers
from headwater.groups.membership.group_backup import FIELDS, parse
from headwater.groups.protocol.operation import perform
from headwater.groups.reading.limits import limit_state_key
from headwater.groups.reports.early_claims import early_claims
from headwater.groups.reports.expired import read_expired
from headwater.groups.reports.held import read_held
from headwater.groups.reports.hung import read_said
from headwater.groups.reports.pending import pending
from headwater.messages.keys import (
    delays_key,
    early_claims_key,
    expired_key,
    group_backup_key,
    group_settings_key,
    heard_key,
    held_key,
    hung_key,
    later_key,
    limit_key,
    limited_key,
    poison_key,
    queries_key,
    transfers_key,
)
from headwater.worker import Delivery, Limit, Stream
from tests.worker.apps import Order, Store, eventually, orders, working

pytestmark = pytest.mark.slow

NAMES = {
    "not UTF-8": b"caf\xe9",
    "NUL": b"a\0b",
    "newlines": b"a\r\nb\n",
    "quotes": b"'\"\\ {}%s",
    "long": b"x" * 1_000_000,
}
"""Names of streams, groups, consumers and fields, and values of fields."""

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ordered": {"order_by": lambda fields: fields[b"n"]},
    "limited": {"limit": [Limit(1_000, per="1s"), Limit(concurrent=5, by=lambda f: f[b"n"])]},
}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> bytes:
    found: bytes = NAMES[request.param]
    return found


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep names out of the reports of the tests, which must be UTF-8. Headwater's own handlers escape them."""
    caplog.set_level(logging.CRITICAL, logger="headwater")


@pytest.mark.parametrize("options", OPTIONS)
async def test_a_worker_handles_its_entries_whatever_others_call_things(
    any_store: Store, name: bytes, options: str
) -> None:
    # Given a stream and a group of this name, an entry with a field of this name, and other clients that own entries under
    # this name and under none, in this group and in another one
    look, stream = any_store.look, text_of(name)
    for number in range(4):
        await look.xadd(name, {"n": number, name: name})
    for group in (name, b"other " + name):
        await look.xgroup_create(name, group, "0")
        for consumer in (name, b""):
            read = ["GROUP", group, consumer, "COUNT", 1, "STREAMS", name, ">"]
            await look.execute_command("XREADGROUP", *read)
    entries, handled = {b"0", b"1", b"2", b"3"}, dict[bytes, int]()
    app = any_store.app()

    @app.consumer(
        Stream(stream, dict[bytes, bytes], codec="bytes"),
        group=stream,
        claim_after="2s",
        into=Stream("out", dict[bytes, bytes], codec="bytes"),
        **OPTIONS[options],
    )
    async def take(fields: dict[bytes, bytes], delivery: Delivery) -> dict[bytes, bytes]:
        handled[fields[b"n"]] = delivery.count
        return fields

    # When a worker runs
    async with working(app) as running:
        (loop,) = running.loops.values()

        async def settled() -> bool:
            return loop.failed.done() or (
                handled.keys() >= entries and not await _pending(any_store, name)
            )

        await eventually(lambda: loop.failed.done() or _owners(any_store, stream, {name, b""}))
        # And its group is destroyed after a backup
        await look.xgroup_destroy(name, name)
        # Then it handles all entries, those of the others after claim_after
        await eventually(settled)
        assert not loop.failed.done()
    assert handled == {b"0": 2, b"1": 2, b"2": 1, b"3": 1}


async def _owners(store: Store, stream: str, owners: set[bytes]) -> bool:
    """Whether the group's backup has entries of these owners."""
    values: Any = await store.look.hmget(bytes_of(group_backup_key(stream, stream)), list(FIELDS))
    backup = parse(values)
    return backup is not None and owners <= {row.owner for row in backup.rows}


async def _pending(store: Store, name: bytes) -> int:
    summary: Any = await store.look.xpending(name, name)
    found: int = summary["pending"]
    return found


async def _write_everywhere(store: Store, group: str, name: bytes) -> None:
    """Write values that no worker writes to all keys of a group, and of messages that are scheduled for its stream."""
    look = store.look
    for key, fields in {
        group_settings_key("orders", group): (
            "claim_after_ms",
            "seen_at",
            "made",
            "swept_ms",
            "lost_upto",
            "limits",
        ),
        group_backup_key("orders", group): ("at", "last", "floor", "pending", "signed"),
        poison_key("orders", group): (),
        heard_key("orders", group): (),
        limit_key("orders", group): (limit_key("orders", group) + ":places1:1",),
        limited_key("orders", group): (),
        early_claims_key("orders", group): (),
        expired_key("orders", group): ("since", "dropped", "dead"),
        hung_key("orders", group): (),
        transfers_key("orders", group): (),
        limit_state_key("orders", group, "places1", "1"): (),
        limit_state_key("orders", group, "places1", "1") + ":waits": (),
        queries_key("orders"): (),
    }.items():
        written: dict[Any, Any] = dict.fromkeys((name, *fields), name)
        await look.hset(key, mapping=written)
    await look.hset(poison_key("orders", group), name, "2 0 0 0")
    await look.set(held_key("orders", group), name)
    await look.set(limit_state_key("orders", group, "rate0", ""), name)
    await look.rpush(limit_state_key("orders", group, "places1", "1") + ":line", name)
    for due in ("-inf", 0, "inf") if store.name != "headwater" else ():  # it has no ZADD
        await look.zadd(delays_key("orders", group), {name + str(due).encode(): due})
    await look.xadd(later_key("orders"), {name: name, "hw.maxlen": name, "hw.after": name})
    await look.xadd(later_key("orders"), {name: name, "hw.after": b"9" * 5_000})


async def test_a_worker_handles_its_entries_whatever_others_write_to_its_keys(
    any_store: Store, name: bytes
) -> None:
    # Given values that no worker writes in all keys of a group
    look, group = any_store.look, "g"
    await _write_everywhere(any_store, group, name)
    handled: dict[int, int] = {}
    app = any_store.app()

    @app.consumer(
        orders,
        group=group,
        claim_after="1s",
        retry=None,
        limit=[Limit(1_000, per="1s"), Limit(concurrent=5, by="id")],
    )
    async def bill(order: Order, delivery: Delivery) -> None:
        handled[order.id] = delivery.count
        if delivery.count == 1:
            raise ValueError("not yet")

    # When a worker runs, then it handles all entries, even one that another client owned
    await look.xadd("orders", {"id": 1})
    await look.xgroup_create("orders", group, "0")
    await look.xreadgroup(group, "another", {"orders": ">"})
    async with working(app) as running:
        (loop,) = running.loops.values()
        await orders.send_many([Order(2), Order(3)])
        await orders.send(Order(4), after="10ms")
        await eventually(lambda: loop.failed.done() or handled == {1: 2, 2: 2, 3: 2, 4: 2})
        assert not loop.failed.done()
        assert not running.scheduler.failed.done()

    # And the reports can be read
    for report in (
        pending("orders"),
        consumers("orders", group),
        early_claims("orders", group),
        read_expired("orders", group),
        read_held("orders", group),
        read_said("orders", group),
    ):
        await perform(look, report)
