"""The list of known differences is true: what it hides is there on one side and not on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from headwater.testing.replies import Map, Reply
from tests.conformance import differences
from tests.conformance.differences import LINES, Difference
from tests.conformance.endpoints import HeadwaterEndpoint, PeerEndpoint
from tests.conformance.test_cases import ON_SERVERS
from tests.conformance.test_scenes import ON_SERVERS as SCENES_ON_SERVERS
from tests.peers import Peer

SHOWING: Sequence[tuple[bytes, ...]] = (
    (b"XADD", b"s", b"1-1", b"a", b"1"),
    (b"XGROUP", b"CREATE", b"s", b"g", b"0"),
    (b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", b"s", b">"),
    (b"XINFO", b"STREAM", b"s"),
    (b"XINFO", b"STREAM", b"s", b"FULL"),
    (b"XINFO", b"GROUPS", b"s"),
    (b"XINFO", b"CONSUMERS", b"s", b"g"),
)


def names(reply: Reply) -> Iterator[Reply]:
    """Every name of every map in a RESP3 reply."""
    if isinstance(reply, Map):
        for name, value in reply.pairs:
            yield name
            yield from names(value)
    elif isinstance(reply, list):
        for item in reply:
            yield from names(item)


@pytest.mark.peer
@pytest.mark.parametrize(
    ("field", "server"),
    [(field, server) for field in differences.FIELDS.values() for server in field.servers],
    ids=lambda value: value.name if isinstance(value, Difference) else value,
)
def test_a_hidden_field_is_ours_alone(
    field: Difference, server: str, shared_peer: Callable[[str], Peer]
) -> None:
    ours = HeadwaterEndpoint().run(SHOWING, resp=3)
    endpoint = PeerEndpoint(shared_peer(server))
    theirs = endpoint.run(SHOWING, resp=3)
    endpoint.close()
    assert field.name.encode() in names(ours)
    assert field.name.encode() not in names(theirs)


def words(reply: Reply) -> Iterator[bytes]:
    """Every word and field of a description of a user."""
    if isinstance(reply, list):
        for item in reply:
            yield from words(item)
    elif isinstance(reply, bytes):
        yield from reply.split()


@pytest.mark.peer
@pytest.mark.parametrize(
    ("word", "server"),
    [(word, server) for word in differences.WORDS.values() for server in word.servers],
    ids=lambda value: value.name if isinstance(value, Difference) else value,
)
def test_a_word_of_users_is_known_to_one_side_only(
    word: Difference, server: str, shared_peer: Callable[[str], Peer]
) -> None:
    ours = HeadwaterEndpoint().run(((b"ACL", b"GETUSER", b"default"),))
    endpoint = PeerEndpoint(shared_peer(server))
    theirs = endpoint.run(((b"ACL", b"GETUSER", b"default"),))
    endpoint.close()
    known = word.name.encode()
    assert (known in words(ours[0])) != (known in words(theirs[0]))


def test_every_known_difference_of_lines_is_tried() -> None:
    tried = {(line.tag, server) for case, server in ON_SERVERS for line in case.lines}
    tried |= {(line.tag, server) for scene, server in SCENES_ON_SERVERS for line in scene.lines}
    stated = {(one.name, server) for one in LINES.values() for server in one.servers}
    assert stated <= tried
