"""Random histories on Headwater and on real servers; each reply is compared.

A history with a difference is shrunk before it is shown: the rest can become a case in cases/*.txt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from headwater.engine.check import broken_invariants
from headwater.engine.groups import pending
from headwater.testing.replies import Reply
from tests.blocks import tiny_blocks
from tests.conformance import differences
from tests.conformance.endpoints import Command, Endpoint, HeadwaterEndpoint, PeerEndpoint
from tests.conformance.histories import History, shrink
from tests.conformance.masks import Circumstances, comparable
from tests.peers import PEERS, Peer

pytestmark = pytest.mark.peer


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small blocks, so that a short history has many. A compiled engine has fixed limits."""
    tiny_blocks(monkeypatch, block_bytes=400)
    monkeypatch.setattr(pending, "PENDING_BLOCK_RECORDS", 8)


class Unlike(NamedTuple):
    """The first command whose replies differ."""

    at: int
    ours: Reply
    theirs: Reply


def first_unlike(
    history: list[Command], ours: HeadwaterEndpoint, theirs: PeerEndpoint
) -> Unlike | None:
    hidden = differences.hidden_fields(theirs.name) | differences.unlike_fields(theirs.name)
    found = []
    sides: tuple[Endpoint, ...] = (ours, theirs)
    for side in sides:
        replies = side.run(history)
        found.append(comparable(history, replies, Circumstances(side.now_ms(), hidden)))
    for at, (we, they) in enumerate(zip(*found, strict=True)):
        if we != they:
            return Unlike(at, we, they)
    return None


def agree(
    seed: int, server: Peer, commands: int, *before: Command, of: type[History] = History
) -> None:
    """Compare a history of the class ``of``, preceded by the commands ``before``."""
    ours, theirs = HeadwaterEndpoint(), PeerEndpoint(server)
    try:
        history = [*before, *of(seed, server.name).commands(commands)]
        unlike = first_unlike(history, ours, theirs)
        assert broken_invariants(ours.store.node.keyspace) == []
        if unlike is None:
            return
        history = history[: unlike.at + 1]
        history = shrink(history, lambda shorter: first_unlike(shorter, ours, theirs) is not None)
        unlike = first_unlike(history, ours, theirs)
        assert unlike is not None
        lines = [
            " ".join(word.decode() for word in command) for command in history[: unlike.at + 1]
        ]
        lines += [f"    we:   {unlike.ours!r}", f"    they: {unlike.theirs!r}"]
        pytest.fail("\n".join(lines), pytrace=False)
    finally:
        theirs.close()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("server", PEERS)
def test_a_random_history_gives_the_same_replies(
    server: str, seed: int, shared_peer: Callable[[str], Peer]
) -> None:
    agree(seed, shared_peer(server), 500)


@pytest.mark.parametrize(("max_entries", "max_bytes"), [(3, 0), (0, 200), (100, 400), (7, 300)])
def test_nodes_with_any_limits_are_those_of_redis(
    max_entries: int, max_bytes: int, shared_peer: Callable[[str], Peer]
) -> None:
    agree(
        1000 + max_entries + max_bytes,
        shared_peer("redis-8.2"),
        500,
        (b"CONFIG", b"SET", b"stream-node-max-entries", b"%d" % max_entries),
        (b"CONFIG", b"SET", b"stream-node-max-bytes", b"%d" % max_bytes),
    )


@pytest.mark.slice
@pytest.mark.parametrize("seed", range(100, 120))
def test_twenty_thousand_commands_give_the_same_replies(
    seed: int, shared_peer: Callable[[str], Peer]
) -> None:
    agree(seed, shared_peer("redis-8.2"), 1000)
