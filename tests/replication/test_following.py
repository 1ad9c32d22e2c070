"""A replica that applies what its primary passes on has the primary's state at each offset (reliability.md, I9)."""

from __future__ import annotations

from random import Random

import pytest

from headwater.engine.check import broken_invariants
from headwater.server.services.replication.link import LinkRefused
from tests.conformance.histories import History
from tests.conformance.histories_keys import KeyHistory
from tests.property.state import picture
from tests.replication.pairs import Pair

COMMANDS = 250


@pytest.mark.parametrize("seed", range(12))
def test_a_replica_has_the_state_of_its_primary_at_each_offset(seed: int) -> None:
    # Given a primary, and a replica that gets what it writes in pieces
    pair, random = Pair(), Random(seed)
    history = (KeyHistory if seed % 2 else History)(seed, "redis-8.2")
    # When commands run at the primary, and time passes
    for command in history.commands(COMMANDS):
        pair.primary.run(command)
        if random.random() < 0.1:
            pair.clock.advance(random.random() * 3)
            pair.primary.node.tick()
        if random.random() < 0.3:
            pair.deliver(random)
            # Then the states are equal whenever the offsets are
            assert pair.offsets[0] == pair.offsets[1]
            if not pair.primary.node.keyspace.unseen:
                assert picture(pair.replica.keyspace) == picture(pair.primary.node.keyspace)
    assert list(broken_invariants(pair.replica.keyspace)) == []


def test_a_replica_does_nothing_by_time() -> None:
    # Given a replica with a key that expires
    pair = Pair()
    pair.primary.run((b"SET", b"k", b"v", b"PX", b"100"))
    pair.deliver()
    # When its time has passed here, and the primary has not deleted it
    pair.clock.advance(1)
    pair.replica.tick()
    # Then it is invisible, and nothing was written
    assert pair.ask(b"GET", b"k") == b"$-1\r\n"
    assert pair.replica.next_deadline() is None
    assert pair.offsets[0] == pair.offsets[1]
    # And goes when the primary deletes it
    pair.primary.node.tick()
    pair.deliver()
    assert pair.ask(b"DBSIZE") == b":0\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        (b"SET", b"k", b"v"),
        (b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", b"s", b">"),
        (b"DEL", b"missing"),
        (b"EVAL", b"return redis.call('SET', 'k', 'v')", b"0"),
    ],
)
def test_a_replica_refuses_writes(request_: tuple[bytes, ...]) -> None:
    pair = Pair()
    assert b"READONLY You can't write against a read only replica." in pair.ask(*request_)


def test_a_group_that_does_not_fit_changes_nothing() -> None:
    # Given a replica that lacks a group of its primary
    pair = Pair()
    pair.primary.run((b"XADD", b"s", b"1-1", b"a", b"1"))
    pair.sent.clear()
    pair.primary.run((b"XADD", b"s", b"2-1", b"a", b"1"))
    before = picture(pair.replica.keyspace)
    # When it gets the next one
    with pytest.raises(LinkRefused, match="does not fit this state"):
        pair.deliver()
    # Then its state is as before, in memory and in the journal, and it goes on
    assert picture(pair.replica.keyspace) == before
    assert pair.offsets[1] == 0
    assert pair.ask(b"PING") == b"+PONG\r\n"


def test_a_full_disk_delays_groups_and_loses_none() -> None:
    # Given a replica whose disk is full
    pair = Pair(capacity=8 * 1024 * 1024)
    while len(pair.sent) < 2500:
        pair.primary.run((b"XADD", b"s", b"*", b"a", b"x" * 4000))
    # When groups arrive, then it applies those for which it has room
    with pytest.raises(Pair.NoRoom):
        pair.deliver()
    written, applied = pair.offsets
    assert 0 < applied < written
    assert list(broken_invariants(pair.replica.keyspace)) == []
