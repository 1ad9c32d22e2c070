"""Readers that wait for entries to become idle are run again at that time, once."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from headwater.config.config import Config
from headwater.testing.clock import START_MS
from headwater.testing.node import LocalClient, LocalStore

READ = ("XREADGROUP", "GROUP", "g")


def store_with(count: int) -> tuple[LocalStore, list[LocalClient]]:
    made = LocalStore(config=Config(port=0, appendonly=False, save=()), journaled=False)
    return made, [made.client() for _ in range(count)]


@pytest.mark.slow
def test_waits_that_have_ended_leave_nothing_in_memory() -> None:
    # Given a reader that is served again and again, long before its wait would end
    _, (admin, reader) = store_with(2)
    admin("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")

    def serve(count: int) -> None:
        for _ in range(count):
            reader.send(*READ, "ann", "BLOCK", 3_600_000, "CLAIM", 3_600_000, "STREAMS", "s", ">")
            admin("XADD", "s", "*", "f", "v")
            delivered: Any = reader.reply()
            admin("XACK", "s", "g", delivered[0][1][0][0])
            admin("XTRIM", "s", "MAXLEN", 0)

    tracemalloc.start()
    try:
        serve(2500)
        before, _ = tracemalloc.get_traced_memory()
        # When that happens a thousand times
        serve(1000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Then it takes no memory for each time
    assert after - before < 100_000


def run_waiters_again(client: LocalClient, entry_id: str) -> None:
    """Make clients that wait for ``s`` run again: add an entry and delete it in the same step."""
    client("MULTI")
    client("XADD", "s", entry_id, "f", "v")
    client("XDEL", "s", entry_id)
    client("EXEC")


def test_a_reader_that_waits_for_a_time_is_served_once() -> None:
    # Given three pending entries, and a reader that waits for one to become idle
    store, (admin, reader) = store_with(2)
    for number in (1, 2, 3):
        admin("XADD", "s", f"{number}-0", "n", number)
    admin("XGROUP", "CREATE", "s", "g", "0")
    admin(*READ, "ann", "STREAMS", "s", ">")
    admin("XACK", "s", "g", "1-0")
    reader.send(*READ, "bob", "COUNT", 1, "BLOCK", 0, "CLAIM", 5000, "STREAMS", "s", ">")

    # When an entry that is idle earlier becomes pending and is acknowledged, and the reader runs each time
    admin("XCLAIM", "s", "g", "cid", 0, "1-0", "TIME", START_MS - 1000, "FORCE", "JUSTID")
    run_waiters_again(admin, "9-1")
    admin("XACK", "s", "g", "1-0")
    run_waiters_again(admin, "9-2")
    store.advance(5)

    # Then it gets one entry, and the store continues
    assert reader.reply() == [[b"s", [[b"2-0", [b"n", b"2"], 5000, 1]]]]
    assert reader.reply() is None
    assert admin("XPENDING", "s", "g") == [2, b"2-0", b"3-0", [[b"ann", b"1"], [b"bob", b"1"]]]
    assert reader("PING")
    assert store.node.blocked.waiting.count == 0
