"""Hash commands access only the fields that they name."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.testing.node import LocalStore


class Unwalked(dict[bytes, bytes]):
    """A hash that forbids iteration: a transaction of 100,000 HSET would take minutes with it."""

    def __iter__(self) -> Any:
        raise AssertionError("a command iterated over all fields")

    keys = values = items = __iter__


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("HSET", "h", "a", "2", "new", "1", "new", "2"), 1),
        (("HSETNX", "h", "new", "1"), 1),
        (("HGET", "h", "a"), b"1"),
        (("HEXISTS", "h", "a"), 1),
        (("HDEL", "h", "a", "none"), 1),
    ],
)
def test_a_command_accesses_only_its_own_fields(words: tuple[str, ...], answer: object) -> None:
    # Given a hash
    store = LocalStore()
    values = store.node.keyspace.databases[0].values
    store.client()("HSET", "h", "a", "1", "b", "2")
    values[b"h"] = Unwalked({b"a": b"1", b"b": b"2"})

    # When a command names some of its fields, then it does not iterate over the others
    assert store.client()(*words) == answer
