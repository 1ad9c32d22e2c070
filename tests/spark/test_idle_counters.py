"""An idle query recognises from one poll to the next that no stream has changed, or that one has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from headwater.spark.core.idle import IdleCounters
from headwater.spark.core.planning.lua_planning import LuaPlanner
from headwater.spark.core.planning.split_planning import SplitPlanner
from headwater.spark.core.store import SourceStore
from tests.spark.queries import Query
from tests.spark.stores import Shop, count_requests

pytestmark = pytest.mark.peer

STREAMS = ["a", "b", "c"]


def _renamed_over(shop: Shop) -> None:
    shop.add("x", [1, 2])
    shop.client.rename("x", "b")


CHANGES: dict[str, Callable[[Shop], Any]] = {
    "an entry is added": lambda shop: shop.add("b", [9]),
    "an entry is deleted": lambda shop: shop.delete("b", 2),
    "the last entry is deleted": lambda shop: shop.delete("b", 3),
    "it is trimmed": lambda shop: shop.client.xtrim("b", maxlen=1, approximate=False),
    "its last id is set": lambda shop: shop.client.execute_command("XSETID", "b", "70-1"),
    "the key is removed": lambda shop: shop.client.delete("b"),
    "the key is renamed over": _renamed_over,
    "a missing one is created": lambda shop: shop.add("c", [1]),
}


@pytest.fixture
def streams(shop: Shop) -> Shop:
    """Two streams of three entries each; the third does not exist."""
    for stream in STREAMS[:2]:
        shop.add(stream, [1, 2, 3])
    return shop


def test_what_is_seen_is_equal_while_nothing_changes(streams: Shop, store: SourceStore) -> None:
    counters = IdleCounters()
    seen = counters.now(store, STREAMS)
    streams.client.set("other", 1)
    assert seen is not None
    assert counters.now(store, list(STREAMS)) == seen


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_of_a_stream_is_seen(streams: Shop, store: SourceStore, change: str) -> None:
    counters = IdleCounters()
    before = counters.now(store, STREAMS)

    CHANGES[change](streams)

    after = counters.now(store, STREAMS)
    assert after is not None
    assert after != before
    assert counters.now(store, STREAMS) == after


def test_other_streams_are_something_else(streams: Shop, store: SourceStore) -> None:
    # Given streams with the same counters
    counters = IdleCounters()
    one = counters.now(store, ["a"])
    # When another is asked for, then the difference is seen, and the first is still what it was
    assert counters.now(store, ["b"]) != one
    assert counters.now(store, ["a"]) == one


def test_streams_with_large_entries_are_seen_whole(shop: Shop, store: SourceStore) -> None:
    # Given more bytes in first and last entries than a script copies at once
    names = [f"s{number}" for number in range(12)]
    for name in names:
        shop.client.xadd(name, {"body": b"x" * 1_000_000}, id="1-1")
    counters = IdleCounters()
    before = counters.now(store, names)
    assert before is not None
    assert counters.now(store, names) == before

    for name in names:
        # When one of them changes, then that is seen
        shop.client.xadd(name, {"n": 1}, id="2-1")
        after = counters.now(store, names)
        assert after not in (before, None)
        before = after


def test_small_entries_share_requests_again(
    shop: Shop, store: SourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given streams of which a script copies so much that it ends early
    names = [f"s{number}" for number in range(12)]
    for name in names:
        shop.client.xadd(name, {"body": b"x" * 1_000_000}, id="1-1")
    counters = IdleCounters()
    counters.now(store, names)
    counters.now(store, names)

    # When their entries are small
    for name in names:
        shop.client.xadd(name, {"n": 1}, id="2-1")
        shop.client.xtrim(name, maxlen=1, approximate=False)
    changed = counters.now(store, names)
    requests = count_requests(store, monkeypatch)

    # Then one request is enough again, and its reply is the same from then on
    seen = counters.now(store, names)
    assert len(requests) == 1
    assert changed is not None
    assert counters.now(store, names) == seen


def test_a_resting_query_asks_for_nothing_else_and_finds_what_is_added(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a query that has found nothing twice
    shop.add("s", [1, 2])
    query = Query(shop)
    assert query.batches() == [[1, 2]]
    assert not query.plan()
    looks: list[Any] = []
    kind = SplitPlanner if shop.name == "headwater" else LuaPlanner
    look_at_all = kind.look_at_all

    def counted(self: Any, wanted: Any) -> Any:
        looks.append(wanted)
        return look_at_all(self, wanted)

    monkeypatch.setattr(kind, "look_at_all", counted)

    # When it polls again, then it looks at no stream
    assert not query.plan()
    assert not query.plan()
    assert looks == []

    # When entries are added, then they are a batch
    shop.add("s", [3])
    assert query.batches() == [[3]]
    assert looks


def test_a_server_that_has_forgotten_scripts_and_connections_answers(
    streams: Shop, store: SourceStore
) -> None:
    counters = IdleCounters()
    before = counters.now(store, STREAMS)

    # When the server has no scripts any more, and has closed all other connections
    streams.client.script_flush()
    streams.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    assert counters.now(store, STREAMS) == before


def test_a_connection_that_is_lost_before_the_reply_is_replaced(
    streams: Shop, store: SourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = IdleCounters()
    before = counters.now(store, STREAMS)
    send: Any = redis.Connection.send_packed_command
    lost: list[redis.Connection] = []

    def send_and_lose(self: redis.Connection, *of: Any, **how: Any) -> None:
        send(self, *of, **how)
        if not lost:
            lost.append(self)
            self.disconnect()

    # When the connection ends after the request was sent, then it is sent again
    monkeypatch.setattr(redis.Connection, "send_packed_command", send_and_lose)
    assert counters.now(store, STREAMS) == before
    assert lost
    # Then the next answer belongs to the next request
    streams.add("b", [9])
    assert counters.now(store, STREAMS) not in (before, None)


def test_a_key_that_is_no_stream_leaves_the_answer_to_the_full_poll(
    streams: Shop, store: SourceStore
) -> None:
    streams.client.set("c", 1)
    assert IdleCounters().now(store, STREAMS) is None
