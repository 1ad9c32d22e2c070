"""Checks known_differences.toml: what it hides exists on one side and not on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import pytest

from headwater.testing.replies import Reply
from tests.conformance import differences
from tests.conformance.cases import Case, Line
from tests.conformance.differences import LINES, Difference, values
from tests.conformance.endpoints import HeadwaterEndpoint, PeerEndpoint
from tests.conformance.test_cases import ON_SERVERS, answers, disagreements
from tests.conformance.test_scenes import ON_SERVERS as SCENES_ON_SERVERS
from tests.conformance.test_scenes import disagreements as scene_disagreements
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


@pytest.mark.peer
@pytest.mark.parametrize(
    ("field", "server"),
    [(field, server) for field in differences.FIELDS.values() for server in field.servers],
    ids=lambda value: value.name if isinstance(value, Difference) else value,
)
def test_only_headwater_has_a_hidden_field(
    field: Difference, server: str, shared_peer: Callable[[str], Peer]
) -> None:
    assert is_ours_alone(field.name, shared_peer(server))


def is_ours_alone(field: str, peer: Peer) -> bool:
    """Return whether the field occurs in Headwater's replies and not in the peer's."""
    with closing(PeerEndpoint(peer)) as endpoint:
        theirs = values(endpoint.run(SHOWING, resp=3), field)
    return bool(values(HeadwaterEndpoint().run(SHOWING, resp=3), field)) and not theirs


def words(reply: Reply) -> Iterator[bytes]:
    """Yield every word and field of a user's description."""
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
def test_only_one_side_uses_a_hidden_word(
    word: Difference, server: str, shared_peer: Callable[[str], Peer]
) -> None:
    assert is_known_to_one(word.name, shared_peer(server))


def is_known_to_one(word: str, peer: Peer) -> bool:
    """Return whether exactly one side uses the word in a user's description."""
    asked = ((b"ACL", b"GETUSER", b"default"),)
    with closing(PeerEndpoint(peer)) as endpoint:
        theirs = endpoint.run(asked)[0]
    ours = HeadwaterEndpoint().run(asked)[0]
    return (word.encode() in words(ours)) != (word.encode() in words(theirs))


@pytest.mark.peer
@pytest.mark.parametrize(
    ("value", "server"),
    [(value, server) for value in differences.VALUES.values() for server in value.servers],
    ids=lambda value: value.name if isinstance(value, Difference) else value,
)
def test_a_value_that_histories_ignore_differs_in_a_written_case(
    value: Difference, server: str, shared_peer: Callable[[str], Peer]
) -> None:
    assert has_another_value(value.name, shared_peer(server))


def has_another_value(field: str, peer: Peer) -> bool:
    """Return whether a line with a known difference differs in this field."""
    with closing(PeerEndpoint(peer)) as endpoint:
        for case in (case for case, server in ON_SERVERS if server == peer.name):
            tags = [line.tag and peer.name in LINES[line.tag].servers for line in case.lines]
            if not any(tags):
                continue
            sides = (answers(case, side, 3) for side in (HeadwaterEndpoint(), endpoint))
            for tagged, ours, theirs in zip(tags, *sides, strict=True):
                if tagged and values(ours, field) != values(theirs, field):
                    return True
    return False


def test_every_known_difference_of_lines_is_tested() -> None:
    tried = {(line.tag, server) for case, server in ON_SERVERS for line in case.lines}
    tried |= {(line.tag, server) for scene, server in SCENES_ON_SERVERS for line in scene.lines}
    stated = {(one.name, server) for one in LINES.values() for server in one.servers}
    assert stated <= tried


# --- tests of the checks: differences that do not differ ----------------------------------------

PLANTED = Difference("planted", ("redis-8.2",), "does not differ")


@pytest.mark.peer
def test_a_line_that_no_longer_differs_fails(
    monkeypatch: pytest.MonkeyPatch, shared_peer: Callable[[str], Peer]
) -> None:
    monkeypatch.setitem(LINES, "planted", PLANTED)
    line = Line((b"XLEN", b"s"), "planted", 7)
    case = Case("planted", "a stream that is not there", ("redis-8.2",), (line,))
    with closing(PeerEndpoint(shared_peer("redis-8.2"))) as endpoint:
        assert disagreements(case, endpoint, 2) == ["line 7: XLEN s: no longer differs (planted)"]


@pytest.mark.peer
def test_a_line_of_a_scene_that_no_longer_differs_fails(
    monkeypatch: pytest.MonkeyPatch, shared_peer: Callable[[str], Peer]
) -> None:
    monkeypatch.setitem(LINES, "planted", PLANTED)
    scene = next(scene for scene, server in SCENES_ON_SERVERS if server == "redis-8.2")
    planted = scene._replace(lines=tuple(one._replace(tag="planted") for one in scene.lines))
    found = scene_disagreements(planted, shared_peer("redis-8.2"), 2)
    assert len(found) == len(scene.lines)
    assert all(text.endswith("no longer differs (planted)") for text in found)


@pytest.mark.peer
def test_a_field_a_value_and_a_word_that_no_longer_differ_fail(
    shared_peer: Callable[[str], Peer],
) -> None:
    peer = shared_peer("redis-8.2")
    assert not is_ours_alone("last-delivered-id", peer)
    assert not has_another_value("pending", peer)
    assert not is_known_to_one("on", peer)


@pytest.mark.peer
def test_a_field_that_headwater_no_longer_has_fails(shared_peer: Callable[[str], Peer]) -> None:
    assert not is_ours_alone("no-such-field", shared_peer("redis-8.2"))
