"""Faults of Redis streams that users reported, by issue number: none of them occurs in Headwater.

Numbers are issues and pull requests of redis/redis, unless the text names Valkey. Each test runs
commands on a store with a journal; if the fault appeared after a restart, the test simulates a
power failure.

Headwater has no replicas yet: `OUT_OF_SCOPE` lists the faults that need one, and what is tested
instead.
"""

from __future__ import annotations

from typing import Final

import pytest

from headwater.engine.check import broken_invariants
from headwater.journal.format.records import GROUP_HEADER_BYTES
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Map, Nil, Reply

OUT_OF_SCOPE: Final = {
    "#5433": "acknowledged entries come back after a failover: needs replicas; a restart is tested",
    "#6744": "consumers are missing on replicas: needs replicas; a restart is tested",
    "#7140": "entries_read is missing on replicas: needs replicas; a restart is tested",
}

NAMED: Final = (
    *(5109, 5177, 5433, 5718, 6199, 6744, 6887, 7021, 7105, 7140, 9745, 10198, 10756, 12998),
    *(13337, 14656, 15488),
)


def delivered(client: LocalClient, count: int) -> None:
    """Create a stream ``s`` with ``count`` entries, all pending in the group ``g`` for ``a``."""
    for number in range(1, count + 1):
        client("XADD", "s", f"{number}-1", "n", number)
    client("XGROUP", "CREATE", "s", "g", "0")
    client("XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">")


def pending_ids(client: LocalClient) -> list[Reply]:
    rows = client("XPENDING", "s", "g", "-", "+", 100)
    assert isinstance(rows, list)
    return [row[0] for row in rows if isinstance(row, list)]


def group_field(client: LocalClient, name: bytes) -> Reply:
    (found,) = _rows(client("XINFO", "GROUPS", "s"))
    return found[name]


def _rows(reply: Reply) -> list[dict[Reply, Reply]]:
    assert isinstance(reply, list)
    rows = []
    for row in reply:
        if isinstance(row, Map):
            rows.append(dict(row.pairs))
        else:
            assert isinstance(row, list)
            rows.append(dict(zip(row[::2], row[1::2], strict=True)))
    return rows


def test_7021_xclaim_returns_no_nil_for_a_deleted_entry_and_forgets_it(client: LocalClient) -> None:
    """#7021: XCLAIM returned nil for an entry that was deleted while it was pending."""
    delivered(client, 2)
    client("XDEL", "s", "1-1")
    assert client("XCLAIM", "s", "g", "b", 0, "1-1", "2-1") == [[b"2-1", [b"n", b"2"]]]
    assert pending_ids(client) == [b"2-1"]


def test_10198_xautoclaim_returns_no_nil_for_a_deleted_entry_and_names_it(
    client: LocalClient,
) -> None:
    """#10198: XAUTOCLAIM returned nil for deleted entries; here it lists their ids separately."""
    delivered(client, 3)
    client("XDEL", "s", "2-1")
    assert client("XAUTOCLAIM", "s", "g", "b", 0, "0") == [
        b"0-0",
        [[b"1-1", [b"n", b"1"]], [b"3-1", [b"n", b"3"]]],
        [b"2-1"],
    ]
    assert pending_ids(client) == [b"1-1", b"3-1"]


@pytest.mark.parametrize(
    ("issue", "deletion"),
    [
        ("#5718", ("XDEL", "s", "1-1", "2-1", "3-1")),
        ("#6199", ("XTRIM", "s", "MAXLEN", 0)),
        ("#10756", ("XTRIM", "s", "MINID", "4-0")),
    ],
)
def test_5718_6199_10756_pending_entries_of_deleted_messages_can_be_cleaned_up(
    issue: str, deletion: tuple[str | int, ...], store: LocalStore, client: LocalClient
) -> None:
    """#5718, #6199, #10756: deleted entries stayed pending for ever; here one XAUTOCLAIM removes
    them, also after a restart."""
    delivered(client, 3)
    client(*deletion)
    assert len(pending_ids(client)) == 3
    assert client("XAUTOCLAIM", "s", "g", "b", 0, "0") == [b"0-0", [], [b"1-1", b"2-1", b"3-1"]]
    store.crash()
    assert pending_ids(store.client()) == []


@pytest.mark.parametrize(
    "words", [("XDELEX", "s", "DELREF", "IDS", 1, "1-1"), ("XTRIM", "s", "MINID", "2-0", "DELREF")]
)
def test_5718_deleting_with_delref_leaves_nothing_pending(
    words: tuple[str | int, ...], client: LocalClient
) -> None:
    """#5718: with DELREF a deleted entry is removed from the pending lists as well."""
    delivered(client, 2)
    client(*words)
    assert pending_ids(client) == [b"2-1"]


def test_14656_an_approximate_trim_of_acknowledged_entries_deletes_some(
    client: LocalClient,
) -> None:
    """#14656: XTRIM MAXLEN ~ ACKED deleted nothing, however many entries were acknowledged."""
    delivered(client, 1000)
    client("XACK", "s", "g", *(f"{number}-1" for number in range(1, 901)))
    removed = client("XTRIM", "s", "MAXLEN", "~", 100, "ACKED")
    assert isinstance(removed, int)
    assert 800 <= removed <= 900
    assert len(pending_ids(client)) == 100


def test_13337_the_lag_is_exact_or_unknown_after_xdel(
    store: LocalStore, client: LocalClient
) -> None:
    """#13337 and Valkey #1951: the lag was wrong after XDEL, also after a restart."""
    for number in range(1, 6):
        client("XADD", "s", f"{number}-1", "n", number)
    client("XGROUP", "CREATE", "s", "g", "0")
    client("XREADGROUP", "GROUP", "g", "a", "COUNT", 2, "STREAMS", "s", ">")
    # A deletion after the group's position: counters do not tell how many entries are left
    client("XDEL", "s", "4-1")
    assert group_field(client, b"lag") in {2, Nil.BULK}
    # Everything is read: the lag is known to be 0
    client("XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">")
    assert group_field(client, b"lag") == 0
    # The first entries are deleted and others added: both are exact again
    client("XDEL", "s", "1-1")
    client("XADD", "s", "6-1", "n", 6)
    assert group_field(client, b"lag") == 1
    store.crash()
    assert group_field(store.client(), b"lag") == 1


def test_9745_retiring_a_consumer_drops_none_of_its_pending_entries(
    store: LocalStore, client: LocalClient
) -> None:
    """#9745: XGROUP DELCONSUMER drops pending entries, as documented; XRETIRE releases them to other
    consumers, and DELCONSUMER returns how many it has dropped."""
    delivered(client, 2)
    client("XRETIRE", "s", "g", "a")
    store.crash()
    client = store.client()
    assert pending_ids(client) == [b"1-1", b"2-1"]
    assert client("XAUTOCLAIM", "s", "g", "b", 0, "0", "JUSTID") == [b"0-0", [b"1-1", b"2-1"], []]
    assert client("XGROUP", "DELCONSUMER", "s", "g", "b") == 2


def test_5433_acknowledged_entries_do_not_come_back_after_a_restart(
    store: LocalStore, client: LocalClient
) -> None:
    """#5433: acknowledged entries were pending again, there after a failover, here after a crash."""
    delivered(client, 3)
    client("XACK", "s", "g", "1-1", "2-1")
    store.crash()
    client = store.client()
    assert pending_ids(client) == [b"3-1"]
    assert client("XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">") == Nil.ARRAY


def test_7105_the_last_id_does_not_go_back_after_a_restart(
    store: LocalStore, client: LocalClient
) -> None:
    """#7105: after a restart a stream accepted ids at or below those of deleted entries."""
    client("XADD", "s", "5-1", "n", 1)
    client("XADD", "s", "9-9", "n", 2)
    client("XDEL", "s", "9-9")
    client("XTRIM", "s", "MAXLEN", 0)
    store.crash()
    client = store.client()
    assert isinstance(client("XADD", "s", "9-9", "n", 3), Failure)
    assert client("XADD", "s", "9-*", "n", 3) == b"9-10"


def test_6744_7140_consumers_and_entries_read_exist_after_a_restart(
    store: LocalStore, client: LocalClient
) -> None:
    """#6744: consumers without pending entries were missing; #7140: entries_read was."""
    delivered(client, 3)
    client("XGROUP", "CREATECONSUMER", "s", "g", "idle")
    client("XACK", "s", "g", "1-1", "2-1", "3-1")
    store.crash()
    client = store.client()
    names = [row[b"name"] for row in _rows(client("XINFO", "CONSUMERS", "s", "g"))]
    assert names == [b"a", b"idle"]
    assert group_field(client, b"entries-read") == 3
    assert group_field(client, b"lag") == 0


def test_5109_noack_leaves_nothing_pending_when_the_reader_was_blocked(
    store: LocalStore, client: LocalClient
) -> None:
    """PR 5109: XREADGROUP NOACK that was blocked put its entry into the pending list."""
    client("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    reader = store.client()
    reader.send("XREADGROUP", "GROUP", "g", "a", "NOACK", "BLOCK", 0, "STREAMS", "s", ">")
    assert reader.reply() is None
    client("XADD", "s", "1-1", "n", 1)
    assert reader.reply() == [[b"s", [[b"1-1", [b"n", b"1"]]]]]
    assert pending_ids(client) == []
    store.crash()
    assert pending_ids(store.client()) == []


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (("DEL", "s"), b"NOGROUP"),
        (("SET", "s", "text"), b"WRONGTYPE"),
        (("XGROUP", "DESTROY", "s", "g"), b"NOGROUP"),
    ],
    ids=["deleted", "another type", "group destroyed"],
)
def test_6887_a_blocked_reader_gets_an_error_when_its_group_is_destroyed(
    end: tuple[str, ...], error: bytes, store: LocalStore, client: LocalClient
) -> None:
    """#6887: readers of a group waited on for a key or a group that no longer existed."""
    client("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    reader = store.client()
    reader.send("XREADGROUP", "GROUP", "g", "a", "BLOCK", 0, "STREAMS", "s", ">")
    client(*end)
    reply = reader.reply()
    assert isinstance(reply, Failure)
    assert reply.text.startswith(error)


def test_12998_a_reader_that_runs_again_and_finds_nothing_retains_its_deadline(
    store: LocalStore, client: LocalClient
) -> None:
    """#12998: a blocked client that ran again and found nothing waited for its whole timeout again."""
    client("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    first, second = store.client(), store.client()
    for reader, who in ((first, "a"), (second, "b")):
        reader.send("XREADGROUP", "GROUP", "g", who, "BLOCK", 1000, "STREAMS", "s", ">")
    store.advance(0.9)
    client("XADD", "s", "1-1", "n", 1)  # one entry for two readers: the second finds nothing
    assert first.reply() == [[b"s", [[b"1-1", [b"n", b"1"]]]]]
    assert second.reply() is None
    store.advance(0.099)
    assert second.reply() is None
    store.advance(0.002)
    assert second.reply() == Nil.ARRAY


@pytest.mark.parametrize("torn", [0, 1, GROUP_HEADER_BYTES, GROUP_HEADER_BYTES + 3])
def test_5177_a_store_starts_from_a_file_that_ends_in_zeros_after_a_power_failure(
    torn: int, store: LocalStore, client: LocalClient
) -> None:
    """#5177: the server refused to start if a power failure had left zeros at the end of the file.

    A journal file is preallocated, so zeros follow each record; in this test also after part of a
    record.
    """
    client("XADD", "s", "1-1", "n", 1)
    files = store.files
    assert files is not None
    (image,) = files.crash_images(seed=0, count=1)
    # When only a part of the next record has reached the disk, and zeros follow
    client("XADD", "s", "2-1", "n", 2)
    (later,) = files.crash_images(seed=0, count=1)
    name = max(image.names(), key=lambda name: len(bytes(image.read(name)).rstrip(b"\0")))
    before, after = bytes(image.read(name)), bytes(later.read(name))
    begin = len(before.rstrip(b"\0"))
    end = begin + torn
    image.corrupt(name, begin, after[begin:end] if torn else b"\0" * 64)
    store.files = image
    store.node = store._open()
    # Then the store starts with the complete records
    client = store.client()
    assert client("XLEN", "s") == 1
    assert client("XADD", "s", "3-1", "n", 3) == b"3-1"


def test_every_named_regression_has_a_test_or_a_reason() -> None:
    tests = [name for name in globals() if name.startswith("test_")]
    for number in NAMED:
        assert any(f"_{number}_" in name for name in tests), number
    assert {number.removeprefix("#") for number in OUT_OF_SCOPE} <= {str(one) for one in NAMED}


@pytest.mark.parametrize(
    "claim",
    [
        "XSETID s 9-1 ENTRIESADDED 2",
        "XGROUP SETID s g 7-1 ENTRIESREAD 999",
        "XGROUP SETID s g 8-1 ENTRIESREAD -1",
    ],
)
def test_15488_no_counter_makes_a_lag_negative(
    store: LocalStore, client: LocalClient, claim: str
) -> None:
    # Given a group that has read eight of nine entries, of which two are left
    delivered(client, 8)
    client("XADD", "s", "9-1", "n", 9)
    client("XTRIM", "s", "MAXLEN", 2)

    # When a counter is set to what cannot be
    assert not isinstance(client(*claim.split()), Failure)
    lags = [group_field(client, b"lag")]
    for more in ("XADD s 10-1 n 1", "XREADGROUP GROUP g a COUNT 1 STREAMS s >", "XDEL s 9-1",
                 "XREADGROUP GROUP g a STREAMS s >", "XTRIM s MAXLEN 0", "XADD s 11-1 n 1"):  # fmt: skip
        client(*more.split())
        lags.append(group_field(client, b"lag"))
    payload = client("DUMP", "s")
    assert isinstance(payload, bytes)
    client("RESTORE", "s", 0, payload, "REPLACE")
    lags.append(group_field(client, b"lag"))
    store.crash()
    lags.append(group_field(store.client(), b"lag"))

    # Then no lag is negative: it is exact, or unknown
    assert all(isinstance(lag, Nil) or (isinstance(lag, int) and lag >= 0) for lag in lags), lags
    assert lags[-1] == 1
    assert not list(broken_invariants(store.node.keyspace))
