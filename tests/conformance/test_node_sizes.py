"""The size of a node equals that of Redis's listpack, measured on a real server.

XINFO's radix-tree-keys tells whether an entry opened a new node. A binary search over
stream-node-max-bytes finds how large the node was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest

from headwater.engine.redis_nodes.nodes import NodeIndex
from tests.conformance.endpoints import RESET, Connection
from tests.peers import Peer

Fields = tuple[bytes, ...]
Entries = Sequence[tuple[tuple[int, int], Fields]]

LAST: Fields = (b"a", b"1")

LENGTHS = (0, 1, 63, 64, 125, 126, 4095, 4096, 16377, 16378, 16379, 2097145, 2097146)


def our_size(entries: Entries) -> int:
    index = NodeIndex()
    for at, (entry_id, fields) in enumerate(entries):
        wire = bytearray(b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in fields))
        index.add(*entry_id, wire, 0, len(wire), at == 0)
    return index.size(0)


def their_size(connection: Connection, entries: Entries) -> int:
    """Return the largest limit at which one more entry opens a new node, minus that entry's bytes."""
    bound = (b"CONFIG", b"SET", b"stream-node-max-bytes")
    unbound = [(b"DEL", b"s"), (*bound, b"0")]
    adds = [(b"XADD", b"s", b"%d-%d" % entry_id, *fields) for entry_id, fields in entries]
    low, high = 1, 1 << 26
    while high - low > 1:
        middle = (low + high) // 2
        last = (b"XADD", b"s", b"1000000000000000-0", *LAST)
        *_, reply = connection.run(
            [*unbound, *adds, (*bound, b"%d" % middle), last, (b"XINFO", b"STREAM", b"s")]
        )
        assert isinstance(reply, list)
        low, high = (middle, high) if reply[3] == 2 else (low, middle)
    return low - sum(map(len, LAST))


def drawn(seed: int) -> Entries:
    """Draw a node of many entries: close and distant ids, integers and texts, varying field names."""
    random = Random(seed)
    entries: list[tuple[tuple[int, int], Fields]] = []
    ms = 0
    for seq in range(random.randrange(1, 200)):
        ms += random.choice((0, 1, 100, 10**4, 10**6))
        fields: list[bytes] = []
        for _ in range(random.choice((1, 1, 1, 2))):
            most = 10 ** random.randrange(1, 20)
            fields.append(random.choice((b"n", b"m", b"5", b"-1")))
            fields.append(
                random.choice(
                    (b"", b"%d" % random.randrange(-most, most), b"x" * random.randrange(200))
                )
            )
        entries.append(((ms, seq + 1), tuple(fields)))
    return entries


@pytest.fixture
def connection(shared_peer: Callable[[str], Peer]) -> Iterator[Connection]:
    made = Connection(shared_peer("redis-8.2"))
    made.prepare(2)
    made.run([(b"CONFIG", b"SET", b"stream-node-max-entries", b"0")])
    yield made
    made.run(RESET)
    made.close()


@pytest.mark.peer
@pytest.mark.parametrize("length", LENGTHS)
def test_a_text_of_any_length_has_the_size_of_redis(length: int, connection: Connection) -> None:
    entries = [((1, 1), (b"f", b"x" * length))]
    assert our_size(entries) == their_size(connection, entries)


@pytest.mark.peer
@pytest.mark.parametrize("seed", range(10))
def test_a_node_of_many_entries_has_the_size_of_redis(seed: int, connection: Connection) -> None:
    assert our_size(drawn(seed)) == their_size(connection, drawn(seed))
