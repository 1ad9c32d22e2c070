"""Which entries of an archived stream are trimmed: those that are no longer needed, and no others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import redis

from headwater.common.model import StreamID
from headwater.spark.archive.archiver import Archiver
from headwater.spark.archive.trimming import Hold, Trimmer, Trimming
from headwater.spark.core.queries import committed
from tests.spark.archives import Table, archive
from tests.spark.queries import Query
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer

STORES = ("headwater", "redis-8.2", "redis-7.0", "valkey-9.1")


def read(shop: Shop, group: str, count: int) -> list[Any]:
    replies: Any = shop.client.xreadgroup(group, "me", {"s": ">"}, count=count)
    return [id_ for id_, _fields in replies[0][1]] if replies else []


def test_a_group_keeps_undelivered_entries(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 11))
    shop.client.xgroup_create("s", "g", "0")
    shop.client.xack("s", "g", *read(shop, "g", 6))

    archive(shop, tmp_path)

    assert shop.numbers("s") == [7, 8, 9, 10]
    assert Table(shop, tmp_path).numbers() == list(range(1, 11))


def test_a_group_keeps_pending_entries(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 11))
    shop.client.xgroup_create("s", "g", "0")
    ids = read(shop, "g", 10)
    shop.client.xack("s", "g", *ids[:3], *ids[4:])

    archive(shop, tmp_path)
    assert shop.numbers("s") == list(range(4, 11))

    shop.client.xack("s", "g", ids[3])
    archive(shop, tmp_path)
    assert shop.numbers("s") == []
    assert Table(shop, tmp_path).numbers() == list(range(1, 11))


def test_a_group_can_have_any_name(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 11))
    shop.client.xgroup_create("s", b"\xff", "0")
    shop.client.xreadgroup(b"\xff", "me", {"s": ">"}, count=10)  # type: ignore[arg-type]
    shop.client.xack("s", b"\xff", "1-1", "2-1")

    archive(shop, tmp_path)

    assert shop.numbers("s") == list(range(3, 11))


def test_the_slowest_group_limits_trimming(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 11))
    for group, count in (("fast", 10), ("slow", 2)):
        shop.client.xgroup_create("s", group, "0")
        shop.client.xack("s", group, *read(shop, group, count))

    archive(shop, tmp_path)

    assert shop.numbers("s") == list(range(3, 11))


def test_a_query_keeps_uncommitted_entries(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 11))
    query = Query(shop, maxEntriesPerTrigger="4")
    query.plan()
    query.plan()  # this reports that the first batch is committed
    (line,) = committed(shop.client, "s")
    assert line.id < StreamID(5, 1)

    archive(shop, tmp_path)

    assert shop.numbers("s") == [5, 6, 7, 8, 9, 10]
    assert query.read() == [5, 6, 7, 8]


def test_a_query_that_was_not_seen_for_long_can_be_ignored(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 11))
    Query(shop, maxEntriesPerTrigger="4").plan()
    line = '{"to": "4-1", "at": %d, "app": "old:1"}'
    shop.client.delete("{s}:hw:queries")
    week = 7 * 86_400_000
    shop.client.hset("{s}:hw:queries", "q", line % (int(time.time() * 1000) - week))

    archive(shop, tmp_path, trimming=Trimming(forget_queries_after_ms=week + 60_000))
    assert shop.numbers("s") == list(range(5, 11))
    archive(shop, tmp_path, trimming=Trimming(forget_queries_after_ms=week - 60_000))
    assert shop.numbers("s") == []


def test_a_query_that_was_not_seen_for_days_is_named(
    shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a query that has not run for three days, and one that runs
    shop.add("s", range(1, 11))
    day = 86_400_000
    now = int(time.time() * 1000)
    shop.client.hset(
        "{s}:hw:queries", "old", f'{{"to": "4-1", "at": {now - 3 * day}, "app": "h:1"}}'
    )
    shop.client.hset(
        "{s}:hw:queries", "new", f'{{"to": "6-1", "at": {now - day // 2}, "app": "h:2"}}'
    )

    # When the archive trims
    archive(shop, tmp_path, trimming=Trimming(forget_queries_after_ms=7 * day))

    # Then what the query has not read stays, and the log names it, but not the other
    assert shop.numbers("s") == list(range(5, 11))
    (said,) = [
        record.getMessage() for record in caplog.records if "not been seen" in record.getMessage()
    ]
    assert "the query old of h:1 has not been seen for 3 days" in said
    assert "until it has not been seen for 7 days" in said
    assert "HDEL {s}:hw:queries old" in said


def test_keep_retains_the_youngest_entries(shop: Shop, tmp_path: Path) -> None:
    hour = 3_600_000
    seconds, _microseconds = shop.client.time()
    now = seconds * 1000
    shop.add("s", [now - 3 * hour, now - 2 * hour, now - hour])

    archive(shop, tmp_path, trimming=Trimming(keep_ms=hour * 3 // 2))

    assert shop.numbers("s") == [now - hour]


def test_without_trimming_the_stream_is_unchanged(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 11))

    archive(shop, tmp_path, trimming=None)

    assert shop.numbers("s") == list(range(1, 11))


@pytest.mark.parametrize("change", ["set back", "made"])
def test_a_group_that_changes_between_the_check_and_the_trim_keeps_its_entries(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    shop.add("s", range(1, 11))
    if change == "set back":
        shop.client.xgroup_create("s", "g", "0")
        shop.client.xack("s", "g", *read(shop, "g", 10))
    asked = Trimmer.holds

    def then_change(self: Trimmer) -> list[Hold]:
        holds = asked(self)
        if change == "set back":
            shop.client.xgroup_setid("s", "g", "5-1")
        else:
            shop.client.xgroup_create("s", "g", "5-1")
        return holds

    monkeypatch.setattr(Trimmer, "holds", then_change)
    archive(shop, tmp_path)

    assert shop.numbers("s") == [6, 7, 8, 9, 10]
    assert len(read(shop, "g", 10)) == 5


@pytest.mark.parametrize(
    "ids",
    [
        ["9-9", "9-10", "10-2", "10-10"],
        ["1-99", "1-100", "2-0"],
        ["1-18446744073709551615", "2-0", "18446744073709551615-5"],
        ["9007199254740992-1", "9007199254740993-1", "9007199254740993-2"],
    ],
)
def test_ids_are_compared_as_numbers_of_64_bits(shop: Shop, tmp_path: Path, ids: list[str]) -> None:
    for count in range(len(ids)):
        shop.client.delete("s")
        for number, id_ in enumerate(ids):
            shop.client.xadd("s", {"n": number}, id=id_)
        shop.client.xgroup_create("s", "g", "0")
        if count:
            shop.client.xack("s", "g", *read(shop, "g", count))

        archive(shop, tmp_path / str(count))

        assert shop.numbers("s") == list(range(count, len(ids)))


def test_a_long_stream_is_trimmed_in_steps(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.spark.archive.trimming.STEP_ENTRIES", 300)
    removed: list[int] = []
    step = Trimmer._remove_below

    def noted(self: Trimmer, *of: Any) -> int:
        removed.append(step(self, *of))
        return removed[-1]

    monkeypatch.setattr(Trimmer, "_remove_below", noted)
    shop.add("s", range(1, 1001))
    shop.delete("s", 5)

    archive(shop, tmp_path)

    assert removed == [300, 300, 300, 99]


def test_entries_that_the_manifest_does_not_name_are_not_trimmed(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("s", range(1, 11))
    archive(shop, tmp_path)
    shop.add("s", range(11, 21))

    def fail(*_of: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Archiver, "_write", fail)
    with pytest.raises(OSError, match="No space"):
        archive(shop, tmp_path)

    assert shop.numbers("s") == list(range(11, 21))


def test_a_missing_permission_to_trim_is_reported(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 11))
    shop.client.execute_command("ACL SETUSER", "reader", "on", ">secret", "~*", "+@all", "-xtrim")
    try:
        address = shop.url.removeprefix("redis://")
        other = Shop(shop.name, f"redis://reader:secret@{address}", shop.client)
        with pytest.raises(Exception, match=r"(?i)noperm|no permissions") as raised:
            archive(other, tmp_path)
        assert "secret" not in str(raised.value)
    finally:
        shop.client.execute_command("ACL DELUSER", "reader")

    assert Table(shop, tmp_path).numbers() == list(range(1, 11))
    assert isinstance(shop.client, redis.Redis)
