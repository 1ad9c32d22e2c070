"""When another client destroys a group and creates it again, its pending entries are restored."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.groups.membership.backup_writer import BackupWriter, Round
from headwater.groups.settling.session import GroupSession
from headwater.groups.settling.settling import How
from headwater.messages.keys import SIGN_CONSUMER, group_backup_key
from headwater.worker import Again, Delivery
from tests.worker.apps import Invoice, Order, Store, eventually, invoices, orders, working
from tests.worker.core import CLAIM_AFTER_MS, Core
from tests.worker.test_group_backup import add, back_up, backed_up

pytestmark = pytest.mark.slow


def age_backup(core: Core) -> None:
    """Make the backup old enough for the next round."""
    key = group_backup_key("s", "g")
    at: Any = core.client.hget(key, "at")
    core.client.hset(key, "at", int(at) - 2_000)


@pytest.mark.parametrize("position", ["0", "$"])
def test_the_pending_entries_of_a_replaced_group_are_restored_from_the_backup(
    core: Core, position: str
) -> None:
    # Given a backup of a group with a delayed, an owned and a settled entry
    first, second, third = add(core, b"a", b"b", b"c")
    one, _two, three = core.read()
    core.settle(one, How.FAIL, delay_ms=CLAIM_AFTER_MS // 2)
    core.settle(three)
    writer = BackupWriter(core.member)
    assert core.do(writer.round()).written

    # When another client destroys the group and creates it
    core.client.xgroup_destroy("s", "g")
    core.client.xgroup_create("s", "g", position)

    # Then the next round detects that it was replaced
    age_backup(core)
    assert core.do(writer.round()) == Round(written=False, set_back_ms=0, replaced=True)

    # And its pending entries are restored
    session = GroupSession(core.member, unsettled=lambda: [(second, 1)])
    session.seen = third
    core.do(session.create_again(replaced=True))
    assert core.pending(first)[1] == 1
    assert core.pending(second) == (core.member.consumer, 1)
    assert core.read() == []
    age_backup(core)
    assert core.do(writer.round()) == Round(written=True, set_back_ms=0)


def test_a_group_that_lost_only_its_sign_consumer_is_not_replaced(core: Core) -> None:
    # Given a backup of an owned entry
    (first,) = add(core, b"a")
    core.read()
    back_up(core)

    # When another client removes the consumers that own no entries
    core.client.xgroup_delconsumer("s", "g", SIGN_CONSUMER)

    # Then the group counts as the same
    age_backup(core)
    assert back_up(core) == Round(written=True, set_back_ms=0)
    assert core.pending(first) == (core.member.consumer, 1)


async def test_workers_restore_the_retries_of_a_replaced_group(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a retry that waits and is in the backup
    app = store.app()

    @app.consumer(orders, group="g", into=invoices, claim_after="4s")
    async def bill(order: Order, delivery: Delivery) -> Invoice:
        if not delivery.redelivered:
            raise Again(after="3900ms")
        return Invoice(order.id)

    async with working(app):
        await app.send(orders, Order(1))
        await eventually(lambda: backed_up(store, pending=1))
        await eventually(lambda: store.look.hget(group_backup_key("orders", "g"), "signed"))

        # When another client destroys the group and creates it in one step, as deploy scripts do
        async with store.look.pipeline() as pipe:
            pipe.xgroup_destroy("orders", "g")
            pipe.xgroup_create("orders", "g", "$")
            await pipe.execute()

        # Then the retry is delivered once, and the log has a line
        await eventually(lambda: "created again by another client" in caplog.text)
        await eventually(store.settled)
    assert await store.results() == [Invoice(1)]
