"""Changes within long lists and strings: the same results as on small ones, in memory, in the account and recovered."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from headwater.engine.accounts.memory_account import container_bytes, text_bytes
from headwater.engine.accounts.value_account import places_of
from headwater.engine.check import broken_invariants
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from headwater.testing.node import LocalStore
from tests.property.state import picture

LENGTHS = (1, 5, 255, 258, 700, 3000)


def places(start: int, stop: int, length: int) -> slice:
    """Return the slice of a Python list for two inclusive indexes of a command."""
    start, stop = (one + length if one < 0 else one for one in (start, stop))
    return slice(max(0, start), max(0, stop + 1))


def kept(items: list[bytes], text: bytes, count: int) -> list[bytes]:
    """Return what LREM leaves, found element by element."""
    found = [at for at, one in enumerate(items) if one == text]
    gone = set(found[count:] if count < 0 else found[: count or None])
    return [one for at, one in enumerate(items) if at not in gone]


@pytest.mark.parametrize("seed", range(12))
def test_long_lists_change_as_lists_do_and_are_recovered(seed: int) -> None:
    # Given a long list with few or many equal elements
    random, store = Random(seed), LocalStore()
    client = store.client()
    length, kinds = random.choice(LENGTHS), random.choice((2, 50, 1000))
    items = [b"e%d" % random.randrange(kinds) for _ in range(length)]
    client("RPUSH", "list", *items)
    for _ in range(15):
        if not items:
            break
        text = random.choice(items)
        low, high = (random.randrange(-len(items) - 2, len(items) + 2) for _ in range(2))
        # When it is read and changed at any place, then as a Python list
        assert client("LRANGE", "list", low, high) == items[places(low, high, len(items))]
        count = random.choice((0, 1, -1, 3, -3, 6, -6, 40, -40))
        before, items = len(items), kept(items, text, count)
        assert client("LREM", "list", count, text) == before - len(items)
        if items:
            index = random.randrange(-len(items), len(items))
            client("LSET", "list", index, b"new")
            items[index] = b"new"
        if random.random() < 0.2:
            low, high = random.choice(((10, -1), (0, -10), (3, 8), (-300, -1), (0, 300)))
            client("LTRIM", "list", low, high)
            items = items[places(low, high, len(items))]
        assert client("LRANGE", "list", 0, -1) == items
        assert broken_invariants(store.node.keyspace) == []
    # And the account is exact, and the journal gives the same state
    db = store.node.keyspace.databases[0]
    if items:
        assert abs(db.account.sizes[b"list"] - container_bytes(deque(items))) < 1024
    else:
        assert (db.account.bytes, db.values) == (0, {})
    before_crash = picture(store.node.keyspace)
    store.crash()
    assert picture(store.node.keyspace) == before_crash


def test_places_are_those_of_the_first_or_the_last_equal_elements() -> None:
    value = deque([b"a", b"b", b"a", b"a", b""])
    assert places_of(value, b"a", 2, True) == [0, 2]
    assert places_of(value, b"a", 2, False) == [2, 3]
    assert places_of(value, b"a", 9, False) == [0, 2, 3]
    assert places_of(value, b"", 9, True) == [4]
    assert places_of(value, b"c", 9, True) == []


@pytest.mark.parametrize("size", [0, 1, 2, 511, 5000, 300_000])
@pytest.mark.parametrize("seed", range(3))
def test_a_string_that_is_changed_in_place_changes_for_no_one_else(size: int, seed: int) -> None:
    # Given a string, and what others have of it: a copy, a reply, a hash of it
    random, store = Random(seed), LocalStore()
    client = store.client()
    text = random.randbytes(size)
    client("SET", "string", text)
    values = store.node.keyspace.databases[0].values
    seen = []
    for step in range(12):
        if step % 4 == 3:
            client("COPY", "string", f"copy-{step}")
            seen.append((f"copy-{step}", text))
        if step % 3 == 2:
            hash(values[b"string"])
        # When it is appended to, overwritten within, across its end and behind it
        part = random.randbytes(random.choice((0, 1, 7, 1000)))
        at = random.choice((len(text), 0, len(text) // 2, max(0, len(text) - 3), len(text) + 20))
        if at == len(text):
            assert client("APPEND", "string", part) == len(text) + len(part)
        else:
            client("SETRANGE", "string", at, part)
        if part or at == len(text):
            text = text[:at].ljust(at, b"\0") + part + text[at + len(part) :]
        # Then it has the new bytes, and equals the same bytes as a key
        assert client("GET", "string") == text
        assert {values[b"string"]: 1} == {text: 1}
    # And the copies have the old ones; account and recovery agree
    assert all(client("GET", name) == old for name, old in seen)
    db = store.node.keyspace.databases[0]
    strings = [text, *(old for _, old in seen)]
    names = [b"string", *(name.encode() for name, _ in seen)]
    assert db.account.bytes == sum(map(text_bytes, [*strings, *names]))
    before = picture(store.node.keyspace)
    store.crash()
    assert picture(store.node.keyspace) == before


def test_a_change_within_a_string_keeps_its_expiry_and_ends_a_watch() -> None:
    # Given a string with an expiry, which another client watches
    store = LocalStore()
    client, other = store.client(), store.client()
    client("SET", "string", "abc", "EX", 100)
    for command in (("APPEND", "string", "d"), ("SETRANGE", "string", 1, "x")):
        other("WATCH", "string")
        other("MULTI")
        other("PING")
        # When it is changed, then the transaction is not executed, and the key still expires
        client(*command)
        assert isinstance(other("EXEC"), type(other("GET", "none")))
        assert client("TTL", "string") == 100
    store.advance(101)
    assert client("APPEND", "string", "new") == 3
    assert client("TTL", "string") == -1


def test_facts_of_changes_within_values_apply_to_the_state_in_which_they_were_written() -> None:
    # Given facts of changes, the first of which creates their string
    once = Keyspace()
    db = once.databases[0]
    db.write_string(b"s", 5, b"x")
    db.push(b"l", [b"%d" % (one % 3) for one in range(1000)], left=False)
    items = db.values[b"l"]
    assert isinstance(items, deque)
    db.remove_elements(b"l", b"1", places_of(items, b"1", 200, False), left=False)
    db.pop(b"l", 790, left=True)
    db.set_element(b"l", 3, b"y")
    # When they are applied, then they are written again and give the same state
    twice = Keyspace()
    Replay(twice).apply(memoryview(bytes(once.facts.data)), 0)
    assert twice.facts.data == once.facts.data
    assert picture(twice) == picture(once)
    assert broken_invariants(twice) == []
