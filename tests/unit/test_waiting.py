"""Readers that wait for what becomes idle are looked at when that is, once."""

from __future__ import annotations

from headwater.config.config import Config
from headwater.testing.clock import START_MS
from headwater.testing.node import LocalClient, LocalStore

READ = ("XREADGROUP", "GROUP", "g")


def store_with(count: int) -> tuple[LocalStore, list[LocalClient]]:
    made = LocalStore(config=Config(port=0, appendonly=False), journaled=False)
    return made, [made.client() for _ in range(count)]


def look_again(client: LocalClient, entry_id: str) -> None:
    """Let who waits for ``s`` look again: an entry comes, and has gone before anybody looks."""
    client("MULTI")
    client("XADD", "s", entry_id, "f", "v")
    client("XDEL", "s", entry_id)
    client("EXEC")


def test_a_time_that_a_reader_comes_back_to_serves_it_once() -> None:
    # Given three entries that somebody has, and a reader that waits for one to become idle
    store, (admin, reader) = store_with(2)
    for number in (1, 2, 3):
        admin("XADD", "s", f"{number}-0", "n", number)
    admin("XGROUP", "CREATE", "s", "g", "0")
    admin(*READ, "ann", "STREAMS", "s", ">")
    admin("XACK", "s", "g", "1-0")
    reader.send(*READ, "bob", "COUNT", 1, "BLOCK", 0, "CLAIM", 5000, "STREAMS", "s", ">")

    # When an entry that is idle earlier comes and goes, and each time the reader looks again
    admin("XCLAIM", "s", "g", "cid", 0, "1-0", "TIME", START_MS - 1000, "FORCE", "JUSTID")
    look_again(admin, "9-1")
    admin("XACK", "s", "g", "1-0")
    look_again(admin, "9-2")
    store.advance(5)

    # Then it is given one entry, and the store goes on
    assert reader.reply() == [[b"s", [[b"2-0", [b"n", b"2"], 5000, 1]]]]
    assert reader.reply() is None
    assert admin("XPENDING", "s", "g") == [2, b"2-0", b"3-0", [[b"ann", b"1"], [b"bob", b"1"]]]
    assert reader("PING")
    assert store.node.blocked.waiting.count == 0
