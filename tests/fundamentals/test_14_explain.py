"""Explain: why a group is stuck, and the command that ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from headwater.cli.output import UNHEALTHY
from headwater.testing.server import server_process


@pytest.fixture
def store() -> Iterator[redis.Redis]:
    with server_process("--appendonly", "no") as server, redis.Redis.from_url(server.url) as client:
        client.xgroup_create("orders", "billing", id="0", mkstream=True)
        yield client


def url(store: redis.Redis) -> str:
    connection = store.connection_pool.connection_kwargs
    return f"redis://{connection['host']}:{connection['port']}"


def test_a_group_with_nothing_to_do_is_healthy(
    store: redis.Redis, run_headwater: Callable[..., str]
) -> None:
    assert "healthy" in run_headwater("explain", "--url", url(store))


def test_an_entry_that_nobody_claims_is_named_with_the_command_that_does(
    store: redis.Redis, run_headwater: Callable[..., str]
) -> None:
    # Given an entry that its consumer has left pending for ten minutes
    entry = store.xadd("orders", {"item": "tea"}, id="1-0")
    store.xreadgroup("billing", "ann", {"orders": ">"})
    store.xclaim("orders", "billing", "ann", 0, [entry], idle=600_000, justid=True)
    where = ("orders", "billing", "--url", url(store))

    said = run_headwater("explain", *where, status=UNHEALTHY)
    assert "1 entry can be claimed" in said
    assert "headwater pending claim orders billing" in said

    # When it is claimed, then the group is healthy
    run_headwater("pending", "claim", *where, "--to", "bob", "--idle", "10m", "--yes")
    assert "healthy" in run_headwater("explain", *where)


def test_a_pending_entry_can_be_acknowledged_by_hand(
    store: redis.Redis, run_headwater: Callable[..., str]
) -> None:
    store.xadd("orders", {"item": "tea"}, id="1-0")
    store.xreadgroup("billing", "ann", {"orders": ">"})
    where = ("orders", "billing", "--url", url(store))
    assert "1-0" in run_headwater("pending", "list", *where)

    run_headwater("pending", "ack", *where, "1-0", "--yes")
    assert store.xpending("orders", "billing")["pending"] == 0
