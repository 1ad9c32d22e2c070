"""HSCAN and SSCAN of large values return each name once, a part in each call, whatever changes meanwhile."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headwater.testing.node import LocalStore

NAMES = 20_000


def scanned(
    store: LocalStore, command: str, change: Any = None, *options: str
) -> list[list[bytes]]:
    """Return the names of each call; ``change`` is called between two."""
    client: Any = store.client()
    cursor = b"0"
    parts: list[list[bytes]] = []
    while not parts or cursor != b"0":
        cursor, names = client(command, "k", cursor, *options)
        parts.append(names[::2] if command == "HSCAN" and "NOVALUES" not in options else names)
        if change is not None:
            change()
    return parts


def filled(command: str) -> LocalStore:
    """Return a store with a large hash or set."""
    store = LocalStore()
    names = [f"n{number}" for number in range(NAMES)]
    if command == "SSCAN":
        store.client()("SADD", "k", *names)
    else:
        store.client()("HSET", "k", *(word for name in names for word in (name, "v")))
    return store


@pytest.mark.parametrize("command", ["HSCAN", "SSCAN"])
@pytest.mark.parametrize("options", [(), ("COUNT", "3"), ("COUNT", "2000")])
def test_a_large_value_is_returned_in_parts(command: str, options: tuple[str, ...]) -> None:
    parts = scanned(filled(command), command, None, *options)

    found = [name for part in parts for name in part]
    assert len(found) == NAMES
    assert set(found) == {b"n%d" % number for number in range(NAMES)}
    assert 8 <= len(parts) <= 64
    assert max(map(len, parts)) < 3000


@pytest.mark.slow
@pytest.mark.parametrize("command", ["HSCAN", "SSCAN"])
def test_what_is_there_all_the_time_is_returned_once(command: str) -> None:
    # Given a value, half of whose names are removed while it is scanned, and that grows to twice its size
    store, random = filled(command), Random(1)
    client = store.client()
    old = [f"n{number}" for number in range(1, NAMES, 2)]
    random.shuffle(old)
    added = 0

    def change() -> None:
        nonlocal added
        gone, old[:] = old[:300], old[300:]
        if gone:
            client("SREM" if command == "SSCAN" else "HDEL", "k", *gone)
        names = [f"new{number}" for number in range(added, added + 2000)]
        added += 2000
        if command == "SSCAN":
            client("SADD", "k", *names)
        else:
            client("HSET", "k", *(word for name in names for word in (name, "v")))

    parts = scanned(store, command, change)

    found = [name for part in parts for name in part]
    kept = {b"n%d" % number for number in range(0, NAMES, 2)}
    assert [found.count(name) for name in sorted(kept)[:200]] == [1] * 200
    assert kept <= set(found)
    assert len(found) == len(set(found))


def test_a_pattern_and_novalues_apply_to_each_part() -> None:
    store = filled("HSCAN")

    found = [
        name
        for part in scanned(store, "HSCAN", None, "MATCH", "n1999?", "NOVALUES")
        for name in part
    ]

    assert sorted(found) == [b"n%d" % number for number in range(19990, 20000)]


@pytest.mark.parametrize("cursor", ["1", "63", "64", "4095", str(2**64 - 1)])
def test_a_cursor_that_was_never_returned_ends_or_continues(cursor: str) -> None:
    client: Any = filled("SSCAN").client()

    following, names = client("SSCAN", "k", cursor)

    assert following.isdigit()
    assert len(names) <= NAMES
