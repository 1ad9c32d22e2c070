"""Random pipelines of streams on Headwater and on Redis, byte for byte. `make conform` runs a
million commands."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from headwater.engine.groups import pending
from headwater.testing.node import request
from tests.blocks import tiny_blocks
from tests.conformance.agreement import first_unlike
from tests.conformance.histories_streams import JUDGED, StreamHistory, Unit
from tests.conformance.pipelines import MARK, LocalPipeline, SocketPipeline, cut
from tests.conformance.stream_campaign import SERVER, Comparison
from tests.peers import Peer
from tests.samples import sampled

SLICE_COMMANDS = sampled(10_000)


def differs(server: Peer, seed: int) -> str:
    comparison = Comparison(server)
    try:
        return comparison.differs(seed)
    finally:
        comparison.close()


@pytest.mark.peer
@pytest.mark.parametrize("seed", [0, 3])
def test_a_pipeline_cut_anywhere_gives_the_same_replies(
    seed: int, shared_peer: Callable[[str], Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 0 runs over a socket, 3 in this process. A compiled engine has fixed block sizes."""
    tiny_blocks(monkeypatch, block_bytes=400)
    monkeypatch.setattr(pending, "PENDING_BLOCK_RECORDS", 8)
    assert not differs(shared_peer(SERVER), seed)


@pytest.mark.peer
@pytest.mark.slow
def test_a_large_pipeline_gives_the_same_replies(shared_peer: Callable[[str], Peer]) -> None:
    assert not differs(shared_peer(SERVER), 7)


@pytest.mark.peer
@pytest.mark.slice
def test_thousands_of_pipelined_commands_give_the_same_replies(
    shared_peer: Callable[[str], Peer],
) -> None:
    comparison = Comparison(shared_peer(SERVER))
    try:
        seed = 100
        while comparison.judged() < SLICE_COMMANDS:
            assert not comparison.differs(seed)
            seed += 1
    finally:
        comparison.close()


@pytest.mark.peer
def test_a_difference_is_found(shared_peer: Callable[[str], Peer]) -> None:
    # Given two stores, one with an additional entry
    theirs = SocketPipeline(shared_peer(SERVER))

    class Different(LocalPipeline):
        def prepare(self, resp: int) -> None:
            super().prepare(resp)
            self.exchange([request(("XADD", "s", "1-1", "f", "v")) + MARK])

    units = [Unit(1, ((b"XADD", b"a", b"*@1", b"f", b"v"), (b"XRANGE", b"s", b"-", b"+")))]
    # When both run a history
    found = first_unlike(units, 0, Different(), theirs)
    # Then the differing reply and the difference are reported
    assert found is not None
    assert found.command == units[0].commands[1]
    assert (found.ours, found.theirs) == ([[b"1-1", [b"f", b"v"]]], [])
    theirs.close()


def test_a_seed_determines_the_history() -> None:
    one, other = StreamHistory(5).units(300), StreamHistory(5).units(300)
    assert one == other
    assert one != StreamHistory(6).units(300)
    judged = sum(command[0] in JUDGED for unit in one for command in unit.commands)
    assert judged >= 300


def test_a_cut_loses_nothing() -> None:
    data = bytes(range(256)) * 3
    for seed in range(50):
        pieces = cut(data, Random(seed))
        assert b"".join(pieces) == data
        assert all(pieces)
