"""A query stores at the server how far it has committed, if it has the permission."""

from __future__ import annotations

import pytest

from headwater.common.model import StreamID
from headwater.errors import HeadwaterError
from headwater.spark.core.options import parse_options
from headwater.spark.core.queries import RENEW_MS, Register, committed
from headwater.spark.core.store import SourceStore
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer


def test_the_query_furthest_behind_comes_first_and_forgotten_ones_are_missing(
    shop: Shop, store: SourceStore
) -> None:
    Register(store, "ahead").record({"s": StreamID(9, 0), "t": StreamID(1, 1)}, now_ms=5)
    Register(store, "behind").record({"s": StreamID(10, 0)}, now_ms=6)
    Register(store, "behind").record({"s": StreamID(7, 3)}, now_ms=7)

    found = committed(shop.client, "s")

    assert [(one.query, one.id, one.at_ms) for one in found] == [
        ("behind", StreamID(7, 3), 7),
        ("ahead", StreamID(9, 0), 5),
    ]
    shop.client.hdel("{s}:hw:queries", "behind")
    assert [one.query for one in committed(shop.client, "s")] == ["ahead"]
    assert committed(shop.client, "none") == []


def test_a_line_is_written_if_it_changed_or_is_a_minute_old(shop: Shop, store: SourceStore) -> None:
    register = Register(store, "q")

    def written_at(ms: int, now_ms: int) -> int:
        register.record({"s": StreamID(ms, 0)}, now_ms=now_ms)
        return committed(shop.client, "s")[0].at_ms

    assert written_at(1, 1000) == 1000
    assert written_at(1, 1000 + RENEW_MS - 1) == 1000
    assert written_at(1, 1000 + RENEW_MS) == 1000 + RENEW_MS
    assert written_at(2, 1001 + RENEW_MS) == 1001 + RENEW_MS


def test_a_line_in_another_format_is_reported(shop: Shop) -> None:
    shop.client.hset("{s}:hw:queries", "mine", "5-0")

    with pytest.raises(HeadwaterError, match=r"HDEL \{s\}:hw:queries mine"):
        committed(shop.client, "s")


def test_a_query_without_permission_warns_once_and_continues(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    shop.client.execute_command("ACL SETUSER", "reader", "on", "nopass", "~*", "+@read")
    try:
        url = shop.url.replace("://", "://reader:x@")
        store = SourceStore(parse_options({"url": url, "stream": "s"}))
        register = Register(store, "q")
        for ms in (1, 2, 3):
            register.record({"s": StreamID(ms, 0)})
        store.close()
    finally:
        shop.client.execute_command("ACL DELUSER", "reader")

    assert len(warned.messages) == 1
    assert "HSET on {s}:hw:queries" in warned.messages[0]
    assert committed(shop.client, "s") == []
