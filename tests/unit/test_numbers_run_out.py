"""A store that has used all numbers of streams, groups or consumers refuses new ones, and goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.common.limits import MAX_NUMBER
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure

Exhaust = Callable[[LocalStore], None]


def streams(store: LocalStore) -> None:
    store.node.keyspace.next_sid = MAX_NUMBER


def groups(store: LocalStore) -> None:
    store.node.keyspace.next_gid = MAX_NUMBER


def consumers(store: LocalStore) -> None:
    (group,) = store.node.keyspace.groups.values()
    group.next_cid = MAX_NUMBER


@pytest.mark.parametrize(
    ("use", "last", "refused"),
    [
        (streams, "XADD t 1-1 a b", ("XADD u 1-1 a b", "COPY s u", "XGROUP CREATE u h 0 MKSTREAM")),
        (groups, "XGROUP CREATE s h 0", ("XGROUP CREATE s i 0", "COPY s u")),
        (
            consumers,
            "XGROUP CREATECONSUMER s g c",
            ("XGROUP CREATECONSUMER s g d", "XREADGROUP GROUP g d STREAMS s >"),
        ),
    ],
)
def test_the_last_number_is_used_and_no_other(
    use: Exhaust, last: str, refused: tuple[str, ...]
) -> None:
    # Given a store with one number left
    store = LocalStore()
    client = store.client()
    client("XADD", "s", "1-1", "a", "b")
    client("XGROUP", "CREATE", "s", "g", "0")
    dumped = client("DUMP", "s")
    assert isinstance(dumped, bytes)
    use(store)
    # When it is used
    assert not isinstance(client(*last.split()), Failure)
    # Then a command that needs another one is refused, and changes nothing
    for words in (one.split() for one in refused):
        reply = client(*words)
        assert isinstance(reply, Failure), words
        assert b"move its keys to a new store" in reply.text
        assert client("EXISTS", "u") == 0
    if use is not consumers:  # each group has its own numbers of consumers
        assert isinstance(client("RESTORE", "u", "0", dumped), Failure)
    # And the store goes on, also after a restart
    assert client("XADD", "s", "2-1", "a", "b") == b"2-1"
    store.crash()
    client = store.client()
    assert client("XLEN", "s") == 2
    assert client("XADD", "s", "3-1", "a", "b") == b"3-1"
