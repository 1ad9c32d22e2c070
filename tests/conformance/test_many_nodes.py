"""Trims and deletions in streams of many nodes, most of which are packed (engine/redis_nodes/packed_nodes.py)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from headwater.testing.replies import Reply
from tests.conformance.endpoints import Command, HeadwaterEndpoint, PeerEndpoint
from tests.peers import PEERS, Peer

pytestmark = pytest.mark.peer

_STEPS = 150


def history(seed: int) -> list[Command]:
    """Return commands on a stream of some hundred nodes, each followed by XINFO STREAM."""
    random = Random(seed)
    ids: list[bytes] = []
    found: list[Command] = [(b"CONFIG", b"SET", b"stream-node-max-entries", b"3")]

    def add(count: int) -> None:
        for _ in range(count):
            ids.append(b"%d-1" % (10 * len(ids) + random.randrange(9) + 1))
            found.append((b"XADD", b"s", ids[-1], random.choice((b"a", b"b")), b"1"))

    add(1500)
    for _ in range(_STEPS):
        step = random.randrange(6)
        at = random.randrange(len(ids))
        if step == 0:
            found.append((b"XDEL", b"s", *random.sample(ids, 5)))
        elif step == 1:
            found.append((b"XDEL", b"s", *ids[at : at + random.randrange(1, 60)]))
        elif step == 2:
            limit = random.choice(((), (b"LIMIT", b"0"), (b"LIMIT", b"40")))
            found.append((b"XTRIM", b"s", b"MINID", b"~", ids[at // 8], *limit))
        elif step == 3:
            limit = random.choice(((), (b"LIMIT", b"0"), (b"LIMIT", b"40")))
            most = b"%d" % (1500 - random.randrange(300))
            found.append((b"XTRIM", b"s", b"MAXLEN", b"~", most, *limit))
        elif step == 4:
            found.append((b"XTRIM", b"s", b"MAXLEN", b"%d" % (1500 - random.randrange(100))))
        else:
            add(random.randrange(1, 200))
        found.append((b"XINFO", b"STREAM", b"s"))
    return found


@pytest.mark.parametrize("server", PEERS)
@pytest.mark.parametrize("seed", range(3))
def test_many_nodes_are_trimmed_and_shown_as_by_the_server(
    seed: int, server: str, shared_peer: Callable[[str], Peer]
) -> None:
    # Given the same trims and deletions here and on a real server
    commands, peer = history(seed), PeerEndpoint(shared_peer(server))
    try:
        ours, theirs = HeadwaterEndpoint().run(commands), peer.run(commands)
    finally:
        peer.close()
    # Then all replies are equal, with the counts of radix-tree-keys and radix-tree-nodes
    for command, one, other in zip(commands, ours, theirs, strict=True):
        assert _counters(one) == _counters(other), command


def _counters(reply: Reply) -> Reply:
    """What all servers show: the counters of XINFO STREAM, or the reply of another command."""
    return reply[:14] if isinstance(reply, list) else reply
