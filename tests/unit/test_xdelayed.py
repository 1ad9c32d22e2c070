"""XDELAYED replies in id order, for any number of delayed entries, without other pending entries."""

from __future__ import annotations

from typing import Any

from headwater import connect
from headwater.commands.xdelayed import FEW
from headwater.testing.node import LocalStore


def test_many_delayed_entries_are_listed_in_id_order_without_released_ones() -> None:
    # Given more delayed entries than a reply sorts, and released ones between them
    total = 3 * FEW
    with connect("headwater://memory") as client:
        pipe = client.pipeline(transaction=False)
        for number in range(1, total + 1):
            pipe.xadd("s", {"n": number}, id=f"{number}-0")
        pipe.execute()
        client.xgroup_create("s", "g", "0")
        client.xreadgroup("g", "c", {"s": ">"})
        ids = [f"{number}-0" for number in range(1, total + 1)]
        released, delayed = ids[::3], [one for n, one in enumerate(ids) if n % 3]
        execute: Any = client.execute_command
        execute("XSETTLE", "s", "g", "c", "SILENT", "IDS", len(released), *released)
        execute("XSETTLE", "s", "g", "c", "FAIL", "DELAY", 60_000, "IDS", len(delayed), *delayed)

        # When all, the first ones, and those of a range are requested
        every = execute("XDELAYED", "s", "g")
        first = execute("XDELAYED", "s", "g", "-", "+", 2)
        middle = execute("XDELAYED", "s", "g", "5-0", "9-0", total)

    # Then each reply has exactly the delayed entries
    assert [row[0].decode() for row in every] == delayed
    assert [row[0] for row in first] == [b"2-0", b"3-0"]
    assert [row[0] for row in middle] == [b"5-0", b"6-0", b"8-0", b"9-0"]
    assert all(0 < row[1] <= 60_000 and row[2] == 1 for row in every)


def test_delays_that_have_ended_leave_no_notes() -> None:
    # Given an entry, and another one that is due long before
    store = LocalStore(journaled=False)
    client = store.client()
    for entry in ("1-1", "2-1"):
        client("XADD", "s", entry, "f", "v")
    client("XGROUP", "CREATE", "s", "g", "0")
    client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    # When it is delayed and claimed again and again
    for number in range(1000):
        client("XSETTLE", "s", "g", "c", "FAIL", "DELAY", 10_000_000 - number, "IDS", 1, "2-1")
        client("XCLAIM", "s", "g", "c", 0, "2-1", "FORCE")
    # Then the store remembers no due time of that
    assert len(store.node.keyspace.due_notes) < 100
