"""DUMP and RESTORE between Headwater and each real server, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest

from headwater.engine.check import broken_invariants
from headwater.testing.replies import Reply, Simple
from tests.conformance import differences
from tests.conformance.endpoints import HeadwaterEndpoint, PeerEndpoint
from tests.conformance.histories import History
from tests.conformance.masks import Circumstances, comparable
from tests.conformance.moving import KEY, STREAMS, Command, many, pictures
from tests.peers import PEERS, Peer

pytestmark = [pytest.mark.peer, pytest.mark.slow]

FORMS = {"redis-7.0": ("7.0",), "redis-8.2": ("8.2", "7.0"), "valkey-9.1": ("8.2", "7.0")}
"""The formats of DUMP that each server reads."""

ACTIVE = frozenset({b"active-time", b"inactive"})
"""Fields that the format of 7.0 does not contain."""


class Ours:
    """A Headwater store."""

    def __init__(self) -> None:
        self.endpoint = HeadwaterEndpoint()
        self.restart()

    def restart(self) -> None:
        """Start with an empty store."""
        self.endpoint.run([])
        self.client = self.endpoint.store.client(resp=3)

    def run(self, commands: Sequence[Command]) -> list[Reply]:
        found: list[Reply] = []
        for command in commands:
            self.client.send(*command)
            while (reply := self.client.reply()) is None:
                self.endpoint.store.advance(self.endpoint.store.seconds_ahead())
            found.append(reply)
        return found

    def dump(self, form: str, key: bytes = KEY) -> bytes:
        self.client("CONFIG", "SET", "dump-format", form)
        payload = self.client("DUMP", key)
        assert isinstance(payload, bytes)
        return payload

    def check(self) -> None:
        assert broken_invariants(self.endpoint.store.node.keyspace) == []


@pytest.fixture
def ours() -> Ours:
    return Ours()


@pytest.fixture(params=PEERS)
def theirs(
    shared_peer: Callable[[str], Peer], request: pytest.FixtureRequest
) -> Iterator[PeerEndpoint]:
    endpoint = PeerEndpoint(shared_peer(request.param))
    endpoint.run([], resp=3)
    yield endpoint
    endpoint.close()


@pytest.fixture(params=STREAMS, ids=lambda name: name.replace(" ", "-"))
def stream(request: pytest.FixtureRequest) -> list[Command]:
    """The commands that create a stream."""
    return STREAMS[request.param]


def seen(
    side: Ours | PeerEndpoint, hidden: frozenset[bytes] = frozenset(), key: bytes = KEY
) -> list[Reply]:
    """Return everything that a client can see of a stream, with times."""
    run = side.run if isinstance(side, Ours) else side.connection.run
    endpoint = side.endpoint if isinstance(side, Ours) else side
    (groups,) = run([(b"XINFO", b"GROUPS", key)])
    assert isinstance(groups, list)
    names = [dict(group.pairs)[b"name"] for group in groups]  # type: ignore[union-attr]
    asked = pictures(key)
    for name in names:
        assert isinstance(name, bytes)
        asked += [
            (b"XPENDING", key, name),
            (b"XPENDING", key, name, b"-", b"+", b"10000"),
        ]
    # Ages change while a test runs; XINFO FULL has the times from which they are counted.
    return [*comparable(asked, run(asked), Circumstances(endpoint.now_ms(), hidden)), names]


def not_said_by(server: str) -> frozenset[bytes]:
    """Return the fields that a server does not have or counts differently."""
    return differences.hidden_fields(server) | differences.unlike_fields(server)


def put(side: Ours | PeerEndpoint, payload: bytes, key: bytes = KEY) -> None:
    run = side.run if isinstance(side, Ours) else side.connection.run
    assert run([(b"RESTORE", key, b"0", payload, b"REPLACE")]) == [Simple(b"OK")]


def test_a_stream_of_a_server_is_restored_unchanged(
    theirs: PeerEndpoint, ours: Ours, stream: list[Command]
) -> None:
    # Given a stream on a real server
    theirs.connection.run(stream)
    (payload,) = theirs.connection.run([(b"DUMP", KEY)])
    assert isinstance(payload, bytes)

    # When its payload is restored in Headwater
    put(ours, payload)

    # Then everything that both show is equal
    hidden = not_said_by(theirs.name)
    assert seen(ours, hidden) == seen(theirs, hidden)
    ours.check()

    # And it can be moved back unchanged, in every format that the server reads
    before = seen(theirs)
    for form in FORMS[theirs.name]:
        put(theirs, ours.dump(form))
        lost = ACTIVE if form == "7.0" else frozenset()
        if lost:
            before = seen_without(before, theirs, lost)
        assert seen_without(seen(theirs), theirs, lost) == before


def seen_without(picture: list[Reply], side: PeerEndpoint, hidden: frozenset[bytes]) -> list[Reply]:
    """Remove some fields from what was seen."""
    return [
        *comparable(pictures(), picture[: len(pictures())], Circumstances(side.now_ms(), hidden)),
        *picture[len(pictures()) :],
    ]


def test_a_stream_of_headwater_is_restored_unchanged_by_a_server(
    theirs: PeerEndpoint, ours: Ours, stream: list[Command]
) -> None:
    # Given a stream in Headwater
    ours.run(stream)
    for form in FORMS[theirs.name]:
        # When its payload, in a format that the server reads, is restored by the server
        put(theirs, ours.dump(form))

        # Then everything that both show is equal
        hidden = not_said_by(theirs.name) | (ACTIVE if form == "7.0" else frozenset())
        assert seen(theirs, hidden) == seen(ours, hidden)


@pytest.mark.parametrize(
    "name", ["one entry", "many entries", "integers", "integers as names", "large entries"]
)
@pytest.mark.parametrize("server", PEERS)
def test_a_payload_equals_that_of_the_server_byte_for_byte(
    peer: Callable[..., Peer], ours: Ours, server: str, name: str
) -> None:
    # Given a server that does not compress, and a stream without groups and deleted entries
    theirs = PeerEndpoint(peer(server, "--rdbcompression", "no"))
    theirs.connection.prepare(3)
    theirs.connection.run(STREAMS[name])
    ours.run(STREAMS[name])

    # Then both payloads are equal, except for version and checksum
    (payload,) = theirs.connection.run([(b"DUMP", KEY)])
    theirs.connection.close()
    assert isinstance(payload, bytes)
    assert ours.dump(FORMS[server][0])[:-10] == payload[:-10]


@pytest.mark.slow
def test_ten_thousand_entries_are_moved_both_ways(theirs: PeerEndpoint, ours: Ours) -> None:
    # Given ten thousand entries of all kinds on a real server, and 10,000 pending
    commands = [
        *many(10_000),
        (b"XGROUP", b"CREATE", KEY, b"g", b"0"),
        (b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"5000", b"STREAMS", KEY, b">"),
        (b"XREADGROUP", b"GROUP", b"g", b"d", b"COUNT", b"5000", b"STREAMS", KEY, b">"),
    ]
    theirs.connection.run(commands)
    (payload,) = theirs.connection.run([(b"DUMP", KEY)])
    assert isinstance(payload, bytes)

    # When they are moved to Headwater and back
    put(ours, payload)
    put(theirs, ours.dump(FORMS[theirs.name][0]), b"back")

    # Then all entries exist on both
    sides = (theirs.connection.run, KEY), (theirs.connection.run, b"back"), (ours.run, KEY)
    there, back, here = (paged(run, key) for run, key in sides)
    assert len(there) == 10_000
    assert back == here == there
    hidden = Circumstances(0, not_said_by(theirs.name))
    there, back, here = (
        comparable(asked, run(asked), hidden)
        for run, key in sides
        for asked in ([(b"XINFO", b"STREAM", key), (b"XPENDING", key, b"g")],)
    )
    assert back == here == there
    ours.check()


def paged(run: Callable[[Sequence[Command]], list[Reply]], key: bytes) -> list[Reply]:
    """Read all entries, a few hundred at a time, because parsing replies in Python is slow."""
    found: list[Reply] = []
    start = b"-"
    while True:
        (page,) = run([(b"XRANGE", key, start, b"+", b"COUNT", b"300")])
        assert isinstance(page, list)
        if not page:
            return found
        found += page
        last = page[-1]
        assert isinstance(last, list)
        assert isinstance(last[0], bytes)
        start = b"(" + last[0]


def test_a_restored_stream_behaves_like_the_original(
    theirs: PeerEndpoint, ours: Ours, stream: list[Command]
) -> None:
    # Given a stream that was moved to Headwater
    theirs.connection.run(stream)
    (payload,) = theirs.connection.run([(b"DUMP", KEY)])
    assert isinstance(payload, bytes)
    put(ours, payload)

    # When entries of both are added, read, claimed, deleted and trimmed
    history = [
        *[(b"XADD", KEY, b"18446744073709551615-18446744073709551615", b"n", b"1")],
        (b"XGROUP", b"CREATE", KEY, b"later", b"0"),
        (b"XREADGROUP", b"GROUP", b"later", b"c", b"COUNT", b"20", b"STREAMS", KEY, b">"),
        (b"XAUTOCLAIM", KEY, b"g", b"heir", b"0", b"0", b"COUNT", b"9", b"JUSTID"),
        (b"XTRIM", KEY, b"MAXLEN", b"~", b"200"),
        (b"XTRIM", KEY, b"MAXLEN", b"2"),
        (b"XLEN", KEY),
        (b"XINFO", b"STREAM", KEY),
        (b"XPENDING", KEY, b"later"),
        (b"XDEL", KEY, b"9-0"),
    ]

    # Then the replies are equal
    hidden = not_said_by(theirs.name)
    found = [
        comparable(history, run(history), Circumstances(0, hidden))
        for run in (ours.run, theirs.connection.run)
    ]
    assert found[0] == found[1]
    ours.check()


@pytest.mark.parametrize("seed", range(200, 206))
def test_a_history_continues_after_the_streams_were_exchanged(
    theirs: PeerEndpoint, ours: Ours, seed: int
) -> None:
    # Given a random history on both servers
    history = History(seed, theirs.name).commands(400)
    cut = next(at for at in range(200, len(history)) if not _in_transaction(history[:at]))
    runs = ours.run, theirs.connection.run
    for run in runs:
        run(history[:cut])

    # When each gets the other's streams
    for key in (b"s", b"t"):
        (payload,) = theirs.connection.run([(b"DUMP", key)])
        if isinstance(payload, bytes):
            own = ours.dump(FORMS[theirs.name][0], key)
            put(ours, payload, key)
            put(theirs, own, key)
    ours.check()

    # Then the rest of the history gives equal replies
    hidden = not_said_by(theirs.name)
    left = [*history[cut:], *pictures(b"s"), *pictures(b"t")]
    found = [
        comparable(left, run(left), Circumstances(ours.endpoint.now_ms(), hidden)) for run in runs
    ]
    for command, we, they in zip(left, *found, strict=True):
        assert we == they, command
    ours.check()


def _in_transaction(commands: Sequence[Command]) -> bool:
    ends = [command[0].upper() for command in commands]
    return ends.count(b"MULTI") > ends.count(b"EXEC") + ends.count(b"DISCARD")


VALUES: dict[str, list[Command]] = {
    "string": [(b"SET", KEY, b"tea")],
    "digits": [(b"SET", KEY, b"-120")],
    "empty string": [(b"SET", KEY, b"")],
    "compressed string": [(b"SET", KEY, b"abc" * 1000)],
    "list": [(b"RPUSH", KEY, b"a", b"1", b"a", b"")],
    "long list": [(b"RPUSH", KEY, *[b"item %d" % n for n in range(2000)])],
    "list of large items": [(b"RPUSH", KEY, b"x" * 20_000, b"y", b"z" * 9000)],
    "set of integers": [(b"SADD", KEY, b"1", b"-5", b"70000", b"9000000000")],
    "set": [(b"SADD", KEY, b"a", b"1")],
    "large set": [(b"SADD", KEY, *[b"member %d" % n for n in range(600)])],
    "hash": [(b"HSET", KEY, b"a", b"1", b"b", b"two")],
    "large hash": [(b"HSET", KEY, *[b"word %d" % n for n in range(2000)])],
    "hash of large values": [(b"HSET", KEY, b"a", b"x" * 5000)],
}
ASKED: dict[bytes, list[Command]] = {
    b"string": [(b"GET", KEY)],
    b"list": [(b"LRANGE", KEY, b"0", b"-1")],
    b"set": [(b"SMEMBERS", KEY)],
    b"hash": [(b"HGETALL", KEY)],
}


def value_of(run: Callable[[Sequence[Command]], list[Reply]]) -> tuple[bytes, list[Reply]]:
    """Return type and contents. Contents are sorted except in a list."""
    (kind,) = run([(b"TYPE", KEY)])
    assert isinstance(kind, Simple)
    (found,) = run(ASKED[kind.text])
    if kind.text in (b"set", b"hash"):
        parts = found if isinstance(found, list) else list(found.pairs)  # type: ignore[union-attr]
        return kind.text, sorted(parts)  # type: ignore[type-var]
    return kind.text, [found]


@pytest.mark.parametrize("name", VALUES)
def test_other_values_are_moved_both_ways(theirs: PeerEndpoint, ours: Ours, name: str) -> None:
    # Given a value on a real server
    theirs.connection.run(VALUES[name])
    (payload,) = theirs.connection.run([(b"DUMP", KEY)])
    assert isinstance(payload, bytes)

    # When it is moved to Headwater and back
    put(ours, payload)
    here, there = value_of(ours.run), value_of(theirs.connection.run)
    put(theirs, ours.dump("8.8"))

    # Then it is equal everywhere
    assert here == there == value_of(theirs.connection.run)
    ours.check()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("how", ["MAXLEN", "MINID"])
def test_a_restored_stream_is_trimmed_as_the_original(
    theirs: PeerEndpoint, ours: Ours, how: str, seed: int
) -> None:
    # Given nodes of three entries, of which any may be deleted, in a stream of each server
    random = Random(seed)
    count = random.randrange(5, 40)
    gone = random.sample(range(1, count + 1), random.randrange(count))
    made = [
        (b"CONFIG", b"SET", b"stream-node-max-entries", b"3"),
        *((b"XADD", KEY, b"%d-1" % at, b"ab"[at % 2 :][:1], b"1") for at in range(1, count + 1)),
        *((b"XDEL", KEY, b"%d-1" % at) for at in gone),
    ]
    sides = (ours, theirs)
    trim = [
        (b"XADD", KEY, b"99-1", b"a", b"1"),
        (b"XTRIM", KEY, how.encode(), b"~", b"%d" % random.randrange(count)),
        (b"XRANGE", KEY, b"-", b"+"),
    ]
    for side in sides:
        (side.run if isinstance(side, Ours) else side.connection.run)(made)
    own, (foreign,) = ours.dump(FORMS[theirs.name][0]), theirs.connection.run([(b"DUMP", KEY)])
    assert isinstance(foreign, bytes)

    # When they are trimmed with ~, as they are and after RESTORE of either payload on either side
    found = [ours.run(trim), theirs.connection.run(trim)]
    for payload in (own, foreign):
        for side in sides:
            put(side, payload)
            found.append((side.run if isinstance(side, Ours) else side.connection.run)(trim))

    # Then the same entries are left
    assert all(one == found[0] for one in found)
    ours.check()
