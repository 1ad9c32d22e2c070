"""Approximate trimming without LIMIT has a default limit: the entries of a hundred nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.testing.replies import Reply
from tests.conformance.endpoints import Command, HeadwaterEndpoint, PeerEndpoint
from tests.peers import PEERS, Peer

pytestmark = pytest.mark.peer

BOUND = b"stream-node-max-entries"


def history(entries: int, node_max_entries: int, *trim: bytes) -> list[Command]:
    """Return commands that add entries to nodes of the given size, and trim them."""
    adds = [(b"XADD", b"s", b"1-%d" % seq, b"a", b"1") for seq in range(1, entries + 1)]
    return [
        (b"CONFIG", b"SET", BOUND, b"%d" % node_max_entries),
        *adds,
        (b"XTRIM", b"s", *trim),
        (b"XLEN", b"s"),
    ]


HISTORIES = {
    "a node an entry": history(250, 1, b"MAXLEN", b"~", b"0"),
    "two entries a node": history(250, 2, b"MAXLEN", b"~", b"0"),
    "by id": history(250, 2, b"MINID", b"~", b"9"),
    "nodes without a bound of entries": history(12000, 0, b"MAXLEN", b"~", b"0"),
    "no limit": history(250, 1, b"MAXLEN", b"~", b"0", b"LIMIT", b"0"),
    "an exact trim": history(250, 1, b"MAXLEN", b"=", b"0"),
}


@pytest.mark.parametrize("server", PEERS)
@pytest.mark.parametrize("name", HISTORIES)
def test_the_limit_is_that_of_the_server(
    name: str, server: str, shared_peer: Callable[[str], Peer]
) -> None:
    peer = PeerEndpoint(shared_peer(server))
    try:
        found: list[list[Reply]] = [
            side.run(HISTORIES[name])[-2:] for side in (HeadwaterEndpoint(), peer)
        ]
    finally:
        peer.close()
    assert found[0] == found[1]


def test_without_a_limit_a_hundred_nodes_are_trimmed() -> None:
    """Shows that the comparison above is not trivial."""
    assert HeadwaterEndpoint().run(HISTORIES["a node an entry"])[-2:] == [100, 150]
