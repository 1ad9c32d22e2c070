"""The guide to moving keys: its program runs, from a real Redis to Headwater and back."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import redis

from headwater.rdb.values import STREAM_FORMS
from headwater.testing.server import server_process
from tests.guides import GUIDES, outputs
from tests.peers import PEERS, Peer

GUIDE = GUIDES / "dump.md"
SOURCE, TARGET = "redis://localhost:6379", "redis://localhost:7000"

pytestmark = [pytest.mark.peer, pytest.mark.slow]


def program(source: str, target: str) -> str:
    """Run the guide's program between two addresses and return its output."""
    (printed,) = outputs("dump.md", (SOURCE, source), (TARGET, target))
    return printed


def test_the_guides_program_moves_streams_from_redis_and_back(peer: Callable[..., Peer]) -> None:
    # Given two streams on a real Redis, one with a group, pending entries and an expiration
    server = peer("redis-8.2")
    with server_process() as ours, redis.Redis.from_url(server.url) as theirs:
        for number in range(5):
            theirs.xadd("orders", {"n": number})
        theirs.xgroup_create("orders", "billing", "0")
        theirs.xreadgroup("billing", "al", {"orders": ">"}, count=2)
        theirs.expire("orders", 1000)
        theirs.xadd("empty", {"n": 1}, maxlen=0)
        theirs.set("no stream", "stays")
        before = theirs.xinfo_stream("orders", full=True)

        # When the program runs
        printed = program(server.url, ours.url)

        # Then it lists the streams, and they are there
        assert sorted(printed.splitlines()) == [
            "empty 0 entries 0 groups",
            "orders 5 entries 1 groups",
        ]
        with redis.Redis.from_url(ours.url) as here:
            assert here.exists("orders", "empty", "no stream") == 2
            assert 0 < here.pttl("orders") <= 1_000_000
            assert here.xpending("orders", "billing")["pending"] == 2

            # And with the setting from the guide, it moves them back unchanged
            (setting,) = re.findall(r"CONFIG SET (\S+) (\S+)", GUIDE.read_text(encoding="utf-8"))
            here.config_set(*setting)
        theirs.delete("orders")
        program(ours.url, server.url)
        assert theirs.xinfo_stream("orders", full=True) == before


@pytest.mark.parametrize("name", PEERS)
def test_a_server_can_migrate_a_stream_to_headwater(peer: Callable[..., Peer], name: str) -> None:
    # Given a stream with a group and an expiration on a real server
    server = peer(name)
    with server_process() as ours, redis.Redis.from_url(server.url) as theirs:
        theirs.xadd("orders", {"n": 1})
        theirs.xgroup_create("orders", "billing", "0")
        theirs.expire("orders", 1000)

        # When MIGRATE moves it to Headwater
        moved = theirs.execute_command("MIGRATE", "127.0.0.1", ours.port, "orders", 3, 5000)

        # Then it is on Headwater only
        assert moved == b"OK"
        assert theirs.exists("orders") == 0
        with redis.Redis.from_url(ours.url, db=3) as here:
            assert here.xlen("orders") == 1
            assert len(here.xinfo_groups("orders")) == 1
            assert here.pttl("orders") > 0


def test_the_guide_names_every_form() -> None:
    # Given the table of forms
    rows = re.findall(
        r"^\| `([\d.]+)`.*? \| (\d+) \| (\d+) \|", GUIDE.read_text("utf-8"), re.MULTILINE
    )

    # Then it has the versions that are written
    assert {row[0]: (int(row[1]), int(row[2])) for row in rows} == STREAM_FORMS
