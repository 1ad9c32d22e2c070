"""A user with exactly the permissions in the guide can use each mode."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headwater.errors import HeadwaterError
from headwater.spark.core.idle import IdleCounters
from headwater.spark.core.options import parse_options
from headwater.spark.core.store import SourceStore
from tests.spark.members import member_query
from tests.spark.queries import Query
from tests.spark.stores import Shop
from tests.spark.writes import Writing, numbers

pytestmark = pytest.mark.peer

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "spark-cluster.md"

SIXTY = list(range(1, 61))


def rules(mode: str) -> list[str]:
    """Return the guide's ACL rules for ``mode``, for the stream ``s``."""
    (text,) = re.findall(r"```text\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    lines = text.splitlines()
    line: str = lines[lines.index(f"# {mode}") + 1]
    return line.replace("orders", "s").split()


def server_of(shop: Shop) -> str:
    return "Headwater" if shop.name == "headwater" else "Redis and Valkey"


def as_user(shop: Shop, *allowed: str) -> Shop:
    """Return the shop with the url of a user who has only these permissions."""
    shop.client.execute_command(
        "ACL", "SETUSER", "spark", "reset", "on", ">a secret", "resetchannels", *allowed
    )
    place = urlsplit(shop.url).netloc
    return Shop(shop.name, f"redis://spark:a%20secret@{place}", shop.client)


def all_of(query: Query) -> list[int]:
    return [number for batch in query.batches() for number in batch]


def test_log_mode(shop: Shop) -> None:
    user = as_user(shop, *rules(f"log mode, {server_of(shop)}"))
    shop.add("s", SIXTY)
    assert all_of(Query(user, maxEntriesPerTrigger="25")) == SIXTY


def test_an_idle_query_compares_counters_with_the_same_permissions(shop: Shop) -> None:
    # Given a user without EVAL, on a server that does not know the scripts
    user = as_user(shop, *rules(f"log mode, {server_of(shop)}"))
    shop.add("s", SIXTY)
    shop.client.script_flush()

    # When an idle query asks for the counters, then it gets them, and sees a change
    counters = IdleCounters()
    with closing(SourceStore(parse_options({"url": user.url, "stream": "s"}))) as store:
        before = counters.now(store, ["s"])
        assert before is not None
        shop.add("s", [61])
        assert counters.now(store, ["s"]) not in (before, None)


def test_log_mode_reads_without_permission_to_store_its_offset(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    allowed = [rule for rule in rules(f"log mode, {server_of(shop)}") if rule != "+hset"]
    user = as_user(shop, *allowed)
    shop.add("s", SIXTY)
    assert all_of(Query(user, maxEntriesPerTrigger="25")) == SIXTY
    assert "a%20secret" not in warned.text
    assert "a secret" not in warned.text


def test_a_pattern_and_a_limit_in_bytes_need_one_more_command_each(shop: Shop) -> None:
    base = rules(f"log mode, {server_of(shop)}")
    user = as_user(shop, *base, "+scan", "+memory|usage")
    shop.add("s", SIXTY)
    query = Query(user, stream="s*", maxBytesPerTrigger="1000000")
    assert all_of(query) == SIXTY

    # And whether a stream was removed must be known
    shop.client.delete("s")
    with pytest.raises(HeadwaterError, match=r"exists.*whether the streams s were removed"):
        query.plan()
    user = as_user(shop, *base, "+scan", "+memory|usage", "+exists", "+hdel")
    later = Query(user, log=query.log, stream="s*", ignoreDeletes="true")
    assert later.plan()
    assert not later.plan()


def test_group_mode(shop: Shop) -> None:
    user = as_user(shop, *rules(f"group mode, {server_of(shop)}"))
    shop.add("s", SIXTY)
    with member_query(user, maxEntriesPerTrigger="25") as query:
        assert sorted(query.read_all()) == SIXTY
        assert query.read_all() == []


@pytest.mark.parametrize(
    ("mode", "options"),
    [("exactly once", {}), ("at least once", {"delivery": "atLeastOnce"})],
)
def test_the_sink(shop: Shop, mode: str, options: dict[str, Any]) -> None:
    user = as_user(shop, *rules(f"sink, {mode}"))
    writing = Writing(user, **options)
    writing.epoch(0, numbers(20, 20))
    writing.epoch(1, numbers(20, start=41))
    assert sorted(shop.numbers("s")) == SIXTY


def test_a_missing_permission_is_reported_without_the_password(shop: Shop) -> None:
    user = as_user(shop, "~s", "+xadd")
    shop.add("s", SIXTY)
    with pytest.raises(Exception, match=r"redis://\*\*\*@.*(?i:permission)") as raised:
        Query(user).batches()
    assert "a%20secret" not in str(raised.value)
