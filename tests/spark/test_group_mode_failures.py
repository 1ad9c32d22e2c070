"""Failures in group mode: removed entries, vanished groups, lost connections, other readers, invalid input."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import DataLoss, DeclarationError, Disconnected, HeadwaterError
from headwater.messages.keys import reader_key
from headwater.spark.core.options import parse_options
from headwater.spark.group_mode.settling import settle_committed
from tests.spark.members import (
    CLAIM_AFTER_MS,
    Consumer,
    GroupQuery,
    checkpoint,
    member_query,
    owners,
)
from tests.spark.queries import Query
from tests.spark.stores import Shop
from tests.waiting import eventually

pytestmark = pytest.mark.peer

STORES = ("headwater", "redis-8.2", "valkey-9.1")


@pytest.fixture
def worker(shop: Shop) -> Iterator[Consumer]:
    consumer = Consumer(shop)
    yield consumer
    consumer.close()


# --- removed entries ------------------------------------------------------------------------------


def test_entries_removed_before_they_are_read_are_data_loss(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", range(1, 11))
    with member_query(shop) as query:
        query.plan()
        shop.delete("s", 3, 4)
        with pytest.raises(DataLoss, match=r"2 of 10 entries that were delivered to 'spark'"):
            query.read()
    with member_query(shop, log=query.log, failOnDataLoss="false") as accepting:
        assert accepting.read() == [1, 2, 5, 6, 7, 8, 9, 10]
        assert not accepting.plan()
    assert "2 of 10" in warned.text
    assert owners(shop) == {}


def test_own_entries_removed_before_a_batch_named_them_are_data_loss(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", range(1, 5))
    first = GroupQuery(shop)
    first.plan()
    first.kill()
    shop.delete("s", 2)

    with member_query(shop) as query:
        for _attempt in range(2):
            with pytest.raises(
                DataLoss, match=r"delivered to 'spark' .* \(1 in total, the first is 2-1\)"
            ):
                query.plan()
    with member_query(shop, failOnDataLoss="false") as accepting:
        assert accepting.read_all() == [1, 3, 4]
    assert owners(shop) == {}


def test_trimming_read_entries_is_not_data_loss(shop: Shop) -> None:
    shop.add("s", range(1, 11))
    with member_query(shop) as query:
        query.plan()
        assert len(query.read()) == 10
        shop.client.xtrim("s", maxlen=0, approximate=False)
        shop.add("s", [11])
        assert query.plan()
        assert query.read() == [11]
        assert owners(shop) == {11: "spark"}


# --- vanished groups ------------------------------------------------------------------------------


def test_a_destroyed_group_continues_after_the_last_seen_entry(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", range(1, 6))
    with member_query(shop) as query:
        assert query.read_all() == [1, 2, 3, 4, 5]
        shop.client.xgroup_destroy("s", "g")
        shop.add("s", [6])
        assert query.read_all() == [6]
        shop.client.xgroup_destroy("s", "g")
        shop.add("s", [7])
    assert "was gone and has been created again, and continues after 5-1" in warned.text

    # The same if it vanishes while no query runs
    with member_query(shop, log=query.log) as later:
        assert later.read_all() == [7]


def test_a_recreated_stream_is_read_from_its_beginning(shop: Shop) -> None:
    shop.add("s", range(1, 6))
    with member_query(shop) as query:
        assert len(query.read_all()) == 5
        shop.client.delete("s")
        shop.add("s", [2, 3])
        assert query.read_all() == [2, 3]
        shop.client.delete("s")
    with member_query(shop, log=query.log) as later:
        shop.add("s", [2, 3])
        assert later.read_all() == [2, 3]


def test_a_group_that_vanishes_while_a_batch_runs_does_not_stop_it(shop: Shop) -> None:
    shop.add("s", range(1, 6))
    with member_query(shop) as query:
        query.plan()
        shop.client.xgroup_destroy("s", "g")
        assert query.read() == [1, 2, 3, 4, 5]
        shop.add("s", [6])
        assert query.read_all() == [6]
        assert owners(shop) == {}


def test_entries_that_another_member_registered_again_are_settled(
    shop: Shop, worker: Consumer
) -> None:
    from headwater.groups.membership.member import rejoin
    from headwater.groups.protocol.operation import run

    shop.add("s", range(1, 6))
    with member_query(shop) as query:
        query.plan()
        shop.client.xgroup_destroy("s", "g")
        run(worker.client, rejoin(worker.member, unsettled=(), seen=b"5-1", mark="again"))
        assert query.read() == [1, 2, 3, 4, 5]
        assert not query.plan()
        assert owners(shop) == {}


# --- connections ----------------------------------------------------------------------------------


def test_a_lost_connection_is_reopened_and_loses_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a connection that is lost after each of the first read replies, together with the reply
    from headwater.groups.reading import claiming

    shop.add("s", range(1, 1001))
    lost = 0
    new = claiming.MemberReader._new

    def losing(self: Any, limit: int, **rest: Any) -> Any:
        nonlocal lost
        found = yield from new(self, limit, **rest)
        if lost < 2 and found:
            lost += 1
            raise ConnectionResetError("as if the reply were lost")
        return found

    monkeypatch.setattr(claiming.MemberReader, "_new", losing)
    with member_query(shop) as query:
        assert query.read_all() == list(range(1, 1001))
    assert lost == 2
    assert owners(shop) == {}


def test_an_unreachable_store_is_reported_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headwater.spark.core.connection.PATIENCE_SECONDS", 0.2)
    unreachable = Shop("nowhere", "redis://:hunter2@127.0.0.1:1", None)  # type: ignore[arg-type]
    with pytest.raises(Disconnected, match="cannot reach the store") as said:
        GroupQuery(unreachable)
    assert "hunter2" not in str(said.value)


# --- one query per name ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_query_with_the_same_name_is_refused(shop: Shop) -> None:
    shop.add("s", range(1, 4))
    with member_query(shop) as query:
        query.plan()
        with pytest.raises(HeadwaterError, match="another query reads as 'spark'"):
            GroupQuery(shop)
        # Another name shares the group
        with member_query(shop, consumerPrefix="other") as other:
            assert not other.plan()
        assert query.read() == [1, 2, 3]
        assert not query.plan()


@pytest.mark.slow
def test_the_name_of_a_dead_query_is_free_after_its_lease(shop: Shop) -> None:
    shop.add("s", range(1, 4))
    key = reader_key("s", "g", "spark")
    shop.client.set(key, "a driver that is dead", px=1_000)

    with member_query(shop) as query:
        assert query.read_all() == [1, 2, 3]
        assert shop.client.get(key) != b"a driver that is dead"
    assert not shop.client.exists(key)


def test_a_query_that_has_lost_its_name_ends(shop: Shop) -> None:
    shop.add("s", range(1, 4))
    key = reader_key("s", "g", "spark")
    with member_query(shop) as query:
        query.plan()
        shop.client.set(key, "somebody else")
        driver: Any = query.reader._driver
        eventually(lambda: driver._name_lease._lost, "noticing the lost name")
        with pytest.raises(HeadwaterError, match="held by somebody else"):
            query.plan()
    assert shop.client.get(key) == b"somebody else"


def test_an_expired_name_is_leased_again(shop: Shop) -> None:
    shop.add("s", range(1, 4))
    key = reader_key("s", "g", "spark")
    with member_query(shop) as query:
        query.plan()
        shop.client.delete(key)
        eventually(lambda: shop.client.exists(key), "leasing the name again")
        assert query.read() == [1, 2, 3]
        assert not query.plan()


def test_renewal_ends_with_the_parent_process(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    others = {*threading.enumerate()}
    with member_query(shop):
        (thread,) = {
            one for one in threading.enumerate() if one.name == "headwater-leases"
        } - others
        monkeypatch.setattr(os, "getppid", lambda: 1)
        eventually(lambda: not thread.is_alive(), "the end of the renewing thread")


# --- disagreements --------------------------------------------------------------------------------


def test_a_query_with_another_min_idle_time_than_the_group_is_refused(
    shop: Shop, worker: Consumer
) -> None:
    with pytest.raises(DeclarationError, match=rf"claims after {CLAIM_AFTER_MS} ms.*60000 ms"):
        GroupQuery(shop, minIdleTime="1m")


def test_a_query_without_min_idle_time_uses_the_groups_value(shop: Shop, worker: Consumer) -> None:
    from headwater.spark.core.ddl import parse_schema
    from headwater.spark.source import HeadwaterSource

    options = {"url": shop.url, "stream": "s", "group": "g"}
    reader = HeadwaterSource(options).streamReader(parse_schema("n bigint"))
    reader.initialOffset()
    assert reader._driver._membership.member("s").claim_after_ms == CLAIM_AFTER_MS
    reader.stop()


def test_a_checkpoint_of_another_kind_or_name_is_refused(shop: Shop) -> None:
    shop.add("s", [1])
    in_log_mode = Query(shop)
    in_log_mode.plan()
    with member_query(shop) as query:
        query.plan()
        with pytest.raises(DeclarationError, match="not from a query in group mode"):
            query.reader.partitions({}, in_log_mode.log[-1])
    with pytest.raises(DeclarationError, match="not from a query in log mode"):
        in_log_mode.reader.latestOffset(query.log[-1], in_log_mode.reader.getDefaultReadLimit())
    for option, name in (("group", "h"), ("consumerPrefix", "tables")):
        other = GroupQuery(shop, log=query.log, **{option: name})
        with pytest.raises(DeclarationError, match=f"{option}: the checkpoint was written with"):
            other.plan()
        other.stop()


def test_a_key_of_another_type_is_reported(shop: Shop) -> None:
    shop.client.rpush("s", "not a stream")
    with pytest.raises(DeclarationError, match="the key 's' holds a list, not a stream"):
        GroupQuery(shop)


def test_missing_permissions_are_listed(shop: Shop) -> None:
    shop.add("s", range(1, 4))
    words = ("on", ">pw", "resetkeys", "~s", "~{s}*", "-@all")
    shop.client.execute_command("ACL SETUSER", "tables", "reset", *words, "+xinfo")
    url = shop.url.replace("://", "://tables:pw@")
    allowed = Shop(shop.name, url, shop.client)
    try:
        with pytest.raises(HeadwaterError, match=r"NOPERM.*Group mode needs") as said:
            GroupQuery(allowed)
        assert "pw" not in str(said.value)

        # And the listed permissions are sufficient
        needed = re.findall(r"[+-]@?[a-z]+(?=[ ,])", str(said.value).partition("needs")[2])
        shop.client.execute_command("ACL SETUSER", "tables", *needed)
        with member_query(allowed) as query:
            assert query.read_all() == [1, 2, 3]
            assert owners(shop) == {}
    finally:
        shop.client.execute_command("ACL DELUSER", "tables")


# --- after the end of a query ---------------------------------------------------------------------


def test_the_last_committed_batch_is_settled_after_the_query_has_ended(
    shop: Shop, tmp_path: Path
) -> None:
    # Given a query with two batches, of which the second is not committed
    shop.add("s", range(1, 8))
    query = GroupQuery(shop, maxEntriesPerTrigger="4")
    query.plan()
    query.plan()
    query.kill()
    options = parse_options({"url": shop.url, "stream": "s", "group": "g"})

    # When it has ended, then the last batch that its checkpoint has as committed is settled once
    assert settle_committed(options, tmp_path / "nothing") == 0
    none = checkpoint(tmp_path / "none", query.log, committed=None)
    assert settle_committed(options, none) == 0
    one = checkpoint(tmp_path / "one", query.log, committed=0)
    assert settle_committed(options, one) == 0  # the query settled that batch itself
    assert len(owners(shop)) == 3
    both = checkpoint(tmp_path / "both", query.log, committed=1)
    assert settle_committed(options, both) == 3
    assert settle_committed(options, both) == 0
    assert owners(shop) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("v2\n{}\n{}", "has the format 'v2'"),
        ("v1\n{}", "not an offset file of a query with a source at index 0"),
        ("v1\n{}\n{", "not an offset file"),
        ('v1\n{}\n{"s": {"from": "0-0"}}', "not from a query in group mode"),
        (
            'v1\n{}\n{"group": "g", "consumer": "spark", "batch": 1, "streams": {"s": {"runs": [[]]}}}',
            "not from a query in group mode",
        ),
    ],
)
def test_an_unreadable_checkpoint_is_reported(text: str, said: str, tmp_path: Path) -> None:
    options = parse_options({"url": "redis://localhost:1", "stream": "s", "group": "g"})
    where = checkpoint(tmp_path / "c", [{}], committed=0)
    (where / "offsets" / "0").write_text(text)
    with pytest.raises(HeadwaterError, match=said):
        settle_committed(options, where)
