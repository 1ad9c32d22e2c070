"""XAUTOCLAIM skips blocks of the pending list without claimable entries, and no others.

A block has four records, so that a dozen entries fill three blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.engine.check import broken_invariants
from headwater.engine.groups import pending
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Reply

TOO_LONG = 2**63 - 1


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalStore]:
    """A store in which entries 1-1 to 1-12 were just delivered to ann, in the groups g and h."""
    monkeypatch.setattr(pending, "PENDING_BLOCK_RECORDS", 4)
    made = LocalStore(journaled=False)
    client = made.client()
    for seq in range(1, 13):
        client("XADD", "s", f"1-{seq}", "n", seq)
    for group in ("g", "h"):
        client("XGROUP", "CREATE", "s", group, "0")
        client("XREADGROUP", "GROUP", group, "ann", "STREAMS", "s", ">")
    yield made
    assert broken_invariants(made.node.keyspace) == []


def scan(client: LocalClient, *, start: str = "0", count: int = 100, idle: int = TOO_LONG) -> Reply:
    """Run XAUTOCLAIM. Returns the cursor, the claimed ids, and the ids of deleted entries."""
    return client("XAUTOCLAIM", "s", "g", "bob", idle, start, "COUNT", count, "JUSTID")


def test_nothing_is_claimed_from_blocks_with_too_short_idle_times(client: LocalClient) -> None:
    assert scan(client, idle=1000) == [b"0-0", [], []]


def test_an_idle_entry_after_blocks_of_recent_ones_is_found(
    store: LocalStore, client: LocalClient
) -> None:
    client("XCLAIM", "s", "g", "ann", 0, "1-10", "IDLE", 5000, "JUSTID")
    assert scan(client, idle=5000) == [b"0-0", [b"1-10"], []]


@pytest.mark.parametrize("place", [1, 6, 12])
def test_a_released_entry_is_found_with_any_min_idle_time(client: LocalClient, place: int) -> None:
    client("XNACK", "s", "g", "FAIL", "IDS", 1, f"1-{place}")
    assert scan(client) == [b"0-0", [b"1-%d" % place], []]


@pytest.mark.parametrize("place", [1, 6, 12])
def test_a_deleted_entry_is_found_in_a_block_of_recent_ones(
    client: LocalClient, place: int
) -> None:
    client("XDEL", "s", f"1-{place}")
    assert scan(client) == [b"0-0", [], [b"1-%d" % place]]


def test_an_entry_that_another_group_deleted_is_found(client: LocalClient) -> None:
    client("XACKDEL", "s", "h", "KEEPREF", "IDS", 1, "1-7")
    assert scan(client) == [b"0-0", [], [b"1-7"]]


@pytest.mark.parametrize("how", [("MAXLEN", 6), ("MINID", "1-7"), ("MAXLEN", "=", 6)])
def test_trimmed_entries_are_found_in_blocks_of_recent_ones(
    client: LocalClient, how: tuple[str | int, ...]
) -> None:
    assert client("XTRIM", "s", *how) == 6
    assert scan(client) == [b"0-0", [], [b"1-%d" % seq for seq in range(1, 7)]]


def test_a_deleted_entry_is_found_after_maxdeletedid_was_lowered(client: LocalClient) -> None:
    client("XDEL", "s", "1-10")
    client("XSETID", "s", "1-12", "MAXDELETEDID", "1-1")
    assert scan(client) == [b"0-0", [], [b"1-10"]]


def test_trimmed_entries_are_found_after_the_last_id_was_lowered(client: LocalClient) -> None:
    # Given a stream that was emptied, and whose last id was set below pending ids
    client("XTRIM", "s", "MAXLEN", 0)
    client("XSETID", "s", "1-1")
    client("XADD", "s", "1-2", "n", "2")
    # Then all entries are reported as deleted, except the one that was added again
    gone = [b"1-%d" % seq for seq in range(1, 13) if seq != 2]
    assert scan(client) == [b"0-0", [], gone]


def test_a_trim_that_cleans_pending_lists_leaves_nothing_to_find(client: LocalClient) -> None:
    client("XTRIM", "s", "MAXLEN", 6, "DELREF")
    assert scan(client) == [b"0-0", [], []]


@pytest.mark.parametrize(
    ("start", "cursor"), [("0", b"1-11"), ("1-2", b"1-12"), ("1-3", b"0-0"), ("1-12", b"0-0")]
)
def test_records_of_skipped_blocks_count_as_scanned(
    client: LocalClient, start: str, cursor: bytes
) -> None:
    # COUNT 1 scans ten records: the scan ends exactly there, if necessary inside a block
    assert scan(client, start=start, count=1) == [cursor, [], []]


def test_an_entry_beyond_the_scan_limit_is_left_for_the_next_scan(client: LocalClient) -> None:
    client("XNACK", "s", "g", "FAIL", "IDS", 1, "1-11")
    assert scan(client, count=1) == [b"1-11", [], []]
    assert scan(client, count=1, start="1-11") == [b"1-12", [b"1-11"], []]


def test_the_scan_limit_can_be_disabled(store: LocalStore, client: LocalClient) -> None:
    store.settings.autoclaim_scan_factor = 0
    client("XNACK", "s", "g", "FAIL", "IDS", 1, "1-12")
    assert scan(client, count=1) == [b"0-0", [b"1-12"], []]


def test_a_delayed_entry_is_skipped_until_it_is_due(store: LocalStore, client: LocalClient) -> None:
    client("XSETTLE", "s", "g", "ann", "FAIL", "DELAY", 5000, "IDS", 1, "1-6")
    assert scan(client) == [b"0-0", [], []]
    store.advance(5)
    assert scan(client) == [b"0-0", [b"1-6"], []]
