"""XINFO STREAM FULL with many pending entries, compared with other commands' replies."""

from __future__ import annotations

import random

import pytest

from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Reply

CONSUMERS = 40


def as_map(reply: Reply) -> dict[bytes, Reply]:
    """Convert a flat array of names and values to a dict."""
    assert isinstance(reply, list)
    return dict(zip(reply[0::2], reply[1::2], strict=True))  # type: ignore[arg-type]


def rows_of(reply: Reply) -> list[list[Reply]]:
    """Check that the reply is an array of arrays, and return it."""
    assert isinstance(reply, list)
    rows: list[list[Reply]] = []
    for row in reply:
        assert isinstance(row, list)
        rows.append(row)
    return rows


def scattered(entries: int, *, seed: int) -> LocalClient:
    """Return a client of a store with one group. Random consumers own its pending entries; some entries
    are released and some acknowledged."""
    draw = random.Random(seed)
    client = LocalStore(journaled=False).client()
    for number in range(1, entries + 1):
        client("XADD", "s", f"{number}-0", "n", number)
    client("XGROUP", "CREATE", "s", "g", 0)
    for _ in range(entries):
        client(
            "XREADGROUP",
            "GROUP",
            "g",
            f"c{draw.randrange(CONSUMERS)}",
            "COUNT",
            1,
            "STREAMS",
            "s",
            ">",
        )
    for number in draw.sample(range(1, entries + 1), entries // 10):
        client("XACK", "s", "g", f"{number}-0")
    for number in draw.sample(range(1, entries + 1), entries // 10):
        client("XNACK", "s", "g", "FAIL", "IDS", 1, f"{number}-0")
    return client


@pytest.mark.parametrize("count", [0, 1, 7, 100_000])
def test_full_shows_each_pending_entry_under_its_consumer(count: int) -> None:
    # Given pending entries of many consumers, distributed at random
    client = scattered(2000, seed=count)

    # When XINFO STREAM FULL runs
    found = as_map(client("XINFO", "STREAM", "s", "FULL", "COUNT", count))
    groups = found[b"groups"]
    assert isinstance(groups, list)
    group = as_map(groups[0])

    # Then the group's rows are those of XPENDING, without a name for released entries
    most = count or 100_000
    pending = rows_of(client("XPENDING", "s", "g", "-", "+", 100_000))
    assert [(row[0], row[1], row[3]) for row in rows_of(group[b"pending"])] == [
        (row[0], row[1], row[3]) for row in pending[:most]
    ]

    # And each consumer's rows are its own, in order, up to the count
    consumers = group[b"consumers"]
    assert isinstance(consumers, list)
    assert len(consumers) == CONSUMERS
    for one in map(as_map, consumers):
        own = [row[0] for row in pending if row[1] == one[b"name"]]
        assert [row[0] for row in rows_of(one[b"pending"])] == own[:most]
        assert one[b"pel-count"] == len(own)


def test_full_shows_every_entry_once_for_any_number_of_blocks() -> None:
    # Given a stream of many blocks with deleted entries
    client = LocalStore(journaled=False).client()
    for number in range(1, 5001):
        client("XADD", "s", f"{number}-0", "n", "x" * 50)
    client("XDEL", "s", *(f"{number}-0" for number in range(3, 5000, 7)))

    # When XINFO STREAM FULL runs
    found = as_map(client("XINFO", "STREAM", "s", "FULL", "COUNT", 0))

    # Then its entries are those of XRANGE
    assert found[b"entries"] == client("XRANGE", "s", "-", "+")
