"""DUMP and RESTORE where no real server can be compared with: features of Redis 8.8, and side
effects of restoring a key."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.engine.check import broken_invariants
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Nil, Reply, Simple
from tests.unit.rdb import old_payloads as old
from tests.unit.rdb.old_payloads import sealed

OK = Simple(b"OK")
BAD_FORMAT = Failure(b"ERR Bad data format")
NOW = (1_700_000_000_000, 1)
"""An id at the initial time of these tests' clock. Older iids have expired."""


def dumped(client: LocalClient, key: str = "s", form: str = "8.8") -> bytes:
    assert client("CONFIG", "SET", "dump-format", form) == OK
    payload = client("DUMP", key)
    assert isinstance(payload, bytes)
    return payload


def everything(client: LocalClient, key: str) -> list[Reply]:
    return [client("XINFO", "STREAM", key, "FULL", "COUNT", 0), client("XPENDING", key, "g")]


def make_stream(client: LocalClient) -> None:
    """Create a stream with owned and unread entries, and with producers."""
    client("XCFGSET", "s", "IDMP-DURATION", 60)
    for number in range(1, 9):
        client("XADD", "s", "IDMP", "shop", f"order-{number}", "*", "n", number)
    client("XADD", "s", "IDMPAUTO", "shop", "*", "n", 1)
    client("XGROUP", "CREATE", "s", "g", "0")
    client("XREADGROUP", "GROUP", "g", "al", "COUNT", 3, "STREAMS", "s", ">")
    client("XREADGROUP", "GROUP", "g", "bo", "COUNT", 3, "STREAMS", "s", ">")


def part(reply: Reply, *indexes: int) -> Any:
    """Return a part of a reply by its indexes in nested arrays."""
    found: Any = reply
    for index in indexes:
        found = found[index]
    return found


def ids_in(entries: Reply) -> list[str]:
    return [entry[0].decode() for entry in part(entries)]


def ids(client: LocalClient) -> list[str]:
    return ids_in(client("XRANGE", "s", "-", "+"))


def test_the_format_of_8_8_preserves_everything(store: LocalStore, client: LocalClient) -> None:
    # Given a stream with owned, released and delayed entries and with producers
    make_stream(client)
    (first, second, third, fourth, fifth, *_) = ids(client)
    client("XNACK", "s", "g", "FATAL", "IDS", 2, fifth, second)
    client("XSETTLE", "s", "g", "al", "FAIL", "DELAY", 30_000, "IDS", 1, third)
    before = everything(client, "s")
    payload = dumped(client)

    # When it is restored over itself, and to another key
    assert client("RESTORE", "s", 0, payload, "REPLACE") == OK
    assert client("RESTORE", "t", 0, payload) == OK

    # Then both equal the original, and give the same payload
    for key in ("s", "t"):
        assert everything(client, key) == before
        assert dumped(client, key) == payload
    assert broken_invariants(store.node.keyspace) == []

    # And a known iid is still known
    (again,) = [client("XADD", "t", "IDMP", "shop", "order-4", "*", "n", 4)]
    assert again == fourth.encode()

    # And all of it survives a crash
    before = everything(client, "t")
    store.crash()
    assert everything(store.client(), "t") == before
    assert broken_invariants(store.node.keyspace) == []
    assert first


def test_released_entries_are_claimed_in_the_order_of_release(client: LocalClient) -> None:
    # Given a restored stream, with entries released in another order than that of ids
    make_stream(client)
    found = ids(client)
    client("XNACK", "s", "g", "FAIL", "IDS", 3, found[4], found[1], found[2])
    client("RESTORE", "t", 0, dumped(client))

    # Then they are claimed in that order
    reply = client("XREADGROUP", "GROUP", "g", "cy", "COUNT", 3, "CLAIM", 0, "STREAMS", "t", ">")
    assert ids_in(part(reply, 0, 1)) == [found[4], found[1], found[2]]


def test_a_delay_continues_after_a_restore(store: LocalStore, client: LocalClient) -> None:
    # Given an entry that is delayed for 30 s, restored after 10 s
    make_stream(client)
    third = ids(client)[2]
    client("XSETTLE", "s", "g", "al", "FAIL", "DELAY", 30_000, "IDS", 1, third)
    store.advance(10)
    client("RESTORE", "t", 0, dumped(client))

    # When 19 s have passed, it is not due; a second later it is
    waiting = ("XREADGROUP", "GROUP", "g", "cy", "CLAIM", 600_000, "STREAMS", "t", ">")
    client("XREADGROUP", "GROUP", "g", "cy", "STREAMS", "t", ">")
    store.advance(19)
    assert client(*waiting) is Nil.ARRAY
    store.advance(1)
    reply = client(*waiting)
    assert ids_in(part(reply, 0, 1)) == [third]


@pytest.mark.parametrize("form", ["8.2", "7.0"])
def test_older_formats_preserve_released_and_delayed_entries_as_pending(
    store: LocalStore, client: LocalClient, form: str
) -> None:
    # Given a released entry and one that is delayed for a minute
    make_stream(client)
    (_, second, third, *_) = ids(client)
    client("XNACK", "s", "g", "FAIL", "IDS", 1, second)
    client("XSETTLE", "s", "g", "al", "FAIL", "DELAY", 60_000, "IDS", 1, third)

    # When the stream is restored from an older format
    assert client("RESTORE", "t", 0, dumped(client, form=form)) == OK

    # Then nothing is lost, and the released entry can be claimed with any min-idle-time at once
    assert part(client("XPENDING", "t", "g"), 0) == part(client("XPENDING", "s", "g"), 0)
    claim = ("XAUTOCLAIM", "t", "g", "cy", 600_000, "0", "JUSTID")
    assert part(client(*claim), 1) == [second.encode()]

    # And the delayed one when it has been due for the claim's min-idle-time
    store.advance(659)
    assert third.encode() not in part(client(*claim), 1)
    store.advance(1)
    assert third.encode() in part(client(*claim), 1)


@pytest.mark.parametrize("kind", [15, 19, 21, 26, 27])
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "LZF"])
def test_payloads_of_every_version_are_restored(
    store: LocalStore, client: LocalClient, kind: int, compressed: bool
) -> None:
    # Given a payload as a server of that version writes it
    fields = [b"item", b"tea" * 40, b"price", b"18"]
    nodes = [
        old.node([((5, seq), fields, seq != 2) for seq in (1, 2, 3)], lzf=compressed),
        old.node([((7, 1), [b"other", b"1"], True)], lzf=compressed),
    ]
    released = [(5, 3)] if kind == 27 else []
    owned = [(5, 2)] if released else [(5, 2), (5, 3)]
    pending = [((5, 2), 1000, 2), ((5, 3), 0 if released else 2000, 1)]
    consumers = [(b"al", 3000, 2500, owned)]
    groups = [old.group(kind, b"g", (5, 3), 3, pending, consumers, released)]
    known = old.idempotency(60, 10, [(b"p", [(b"i", NOW)])], 3, 1) if kind >= 26 else b""
    body = old.stream(
        kind,
        nodes,
        3,
        (7, 1),
        first_id=(5, 1),
        max_deleted_id=(5, 2),
        added=4,
        groups=groups,
        known=known,
    )

    # When it is restored
    assert client("RESTORE", "s", 0, sealed(body, 9)) == OK

    # Then everything in it exists, and what it does not contain has Redis's defaults
    assert broken_invariants(store.node.keyspace) == []
    shown = _pairs(client("XINFO", "STREAM", "s", "FULL"))
    assert shown[b"entries"] == [
        [b"5-1", fields],
        [b"5-3", fields],
        [b"7-1", [b"other", b"1"]],
    ]
    assert (shown[b"radix-tree-keys"], shown[b"radix-tree-nodes"]) == (2, 6)
    assert shown[b"entries-added"] == (4 if kind > 15 else 3)
    assert shown[b"max-deleted-entry-id"] == (b"5-2" if kind > 15 else b"0-0")
    assert shown[b"iids-tracked"] == (1 if kind >= 26 else 0)
    (group,) = map(_pairs, part(shown[b"groups"]))
    assert group[b"entries-read"] == (3 if kind > 15 else Nil.BULK)
    assert group[b"nacked-count"] == len(released)
    assert ids_in(group[b"pending"]) == ["5-2", "5-3"]
    (consumer,) = map(_pairs, part(group[b"consumers"]))
    assert consumer[b"active-time"] == (2500 if kind >= 21 else 3000)


def _pairs(reply: Reply) -> dict[Reply, Reply]:
    assert isinstance(reply, list)
    return dict(zip(reply[0::2], reply[1::2], strict=True))


def test_a_large_pending_list_is_restored_in_the_order_of_delivery(
    store: LocalStore, client: LocalClient
) -> None:
    # Given entries of two consumers with interleaved delivery times
    for number in range(1, 41):
        client("XADD", "s", f"{number}-0", "n", number)
    client("XGROUP", "CREATE", "s", "g", "0")
    client("XREADGROUP", "GROUP", "g", "al", "STREAMS", "s", ">")
    times = {number: 1000 + number * 7 % 40 for number in range(1, 41)}
    for number, time in times.items():
        name = ("al", "bo")[number % 2]
        client("XCLAIM", "s", "g", name, 0, f"{number}-0", "TIME", time, "JUSTID")

    # When the stream is restored, then those with the longest idle time are claimed first
    client("RESTORE", "t", 0, dumped(client))
    assert broken_invariants(store.node.keyspace) == []
    reply = client("XREADGROUP", "GROUP", "g", "cy", "COUNT", 40, "CLAIM", 1, "STREAMS", "t", ">")
    oldest_first = sorted(times, key=lambda number: times[number])
    assert ids_in(part(reply, 0, 1)) == [f"{number}-0" for number in oldest_first]


# --- side effects ---------------------------------------------------------------------------------


def test_a_restored_key_breaks_a_watch_and_is_counted(
    store: LocalStore, client: LocalClient
) -> None:
    # Given a client that watches a key that does not exist
    payload = _stream_payload(client)
    other = store.client()
    client("WATCH", "k")
    dirty = store.node.keyspace.dirty

    # When another client restores it
    other("RESTORE", "k", 0, payload)

    # Then the transaction does not run, and one change is counted
    client("MULTI")
    client("GET", "k")
    assert client("EXEC") is Nil.ARRAY
    assert store.node.keyspace.dirty == dirty + 1


def _stream_payload(client: LocalClient) -> bytes:
    client("XADD", "made", "5-1", "a", "1")
    payload = dumped(client, "made")
    client("DEL", "made")
    return payload


def test_a_restored_stream_wakes_its_readers(store: LocalStore, client: LocalClient) -> None:
    # Given a client that waits for a key, and one that waits in a group of another key
    payload = _stream_payload(client)
    client("XGROUP", "CREATE", "g", "grp", "0", "MKSTREAM")
    reader, member = store.client(), store.client()
    reader.send("XREAD", "BLOCK", 0, "STREAMS", "s", "0")
    member.send("XREADGROUP", "GROUP", "grp", "c", "BLOCK", 0, "STREAMS", "g", ">")
    assert (reader.reply(), member.reply()) == (None, None)

    # When streams are restored to both keys
    client("RESTORE", "s", 0, payload)
    client("RESTORE", "g", 0, payload, "REPLACE")

    # Then the first gets its entry, and the second an error, because its group is gone
    assert reader.reply() == [[b"s", [[b"5-1", [b"a", b"1"]]]]]
    refused = member.reply()
    assert isinstance(refused, Failure)
    assert refused.text.startswith(b"NOGROUP")


def test_an_invalid_payload_changes_nothing(store: LocalStore, client: LocalClient) -> None:
    # Given a key, a watcher, and a payload that is invalid at its end
    payload = _stream_payload(client)
    client("SET", "k", "old", "EX", 100)
    watcher = store.client()
    watcher("WATCH", "k")
    facts = store.facts()

    # When it is restored over the key
    assert client("RESTORE", "k", 0, sealed(payload[:-14]), "REPLACE") == BAD_FORMAT

    # Then the key and its expiry are unchanged, no watch is broken, and nothing is written
    assert client("GET", "k") == b"old"
    assert client("TTL", "k") == 100
    watcher("MULTI")
    assert watcher("EXEC") == []
    assert store.facts() == facts


def test_a_restored_key_is_one_record_group(store: LocalStore, client: LocalClient) -> None:
    # Given a stream with groups
    make_stream(client)
    payload = dumped(client)
    before = len(store.facts())

    # When it is restored with an expiry, and also within a transaction
    client("RESTORE", "t", 60_000, payload)
    assert len(store.facts()) == before + 1
    client("MULTI")
    client("RESTORE", "u", 0, payload)
    client("DEL", "u")
    client("EXEC")

    # Then each is one record group, and the key expires on time
    assert len(store.facts()) == before + 2
    store.crash()
    assert store.client()("PTTL", "t") == 60_000
    store.advance(60)
    assert store.client()("EXISTS", "t", "u") == 0


def test_a_replaced_value_leaves_nothing(client: LocalClient) -> None:
    # Given a hash with an expiry, and the payload of another hash
    client("HSET", "h", "b", "2")
    payload = dumped(client, "h")
    client("HSET", "k", "a", "1")
    client("PEXPIRE", "k", 100_000)

    # When it is restored over the first
    assert client("RESTORE", "k", 0, payload, "REPLACE") == OK

    # Then it has only the new fields, and no expiry
    assert client("HGETALL", "k") == [b"b", b"2"]
    assert client("PTTL", "k") == -1


def test_a_key_that_has_expired_does_not_prevent_a_restore(
    store: LocalStore, client: LocalClient
) -> None:
    # Given a hash that has expired
    client("HSET", "h", "b", "2")
    payload = dumped(client, "h")
    client("HSET", "k", "a", "1")
    client("PEXPIRE", "k", 1000)
    store.clock.advance(1)

    # Then another can be restored to its key, and contains nothing of it
    assert client("RESTORE", "k", 0, payload) == OK
    assert client("HGETALL", "k") == [b"b", b"2"]


def test_a_payload_that_would_become_too_large_is_an_error(
    client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given nodes with a long field name, which a payload contains once and a stream in each entry
    monkeypatch.setattr("headwater.rdb.streams.MAX_RESTORED_BYTES", 100_000)
    entries = [((5, seq), [b"n" * 1000, b""], True) for seq in range(1, 100)]
    small = old.stream(19, [old.node(entries[:50])], 50, (5, 99), added=50)
    large = old.stream(19, [old.node(entries)], 99, (5, 99), added=99)

    # Then the one within the limit is restored, the other is not
    assert client("RESTORE", "s", 0, sealed(small)) == OK
    refused = client("RESTORE", "t", 0, sealed(large))
    assert isinstance(refused, Failure)
    assert refused.text.startswith(b"ERR the value takes more than 100000 bytes")
    assert client("EXISTS", "t") == 0


def test_the_format_is_chosen_by_a_setting(client: LocalClient) -> None:
    # Given a stream
    client("XADD", "s", "5-1", "a", "1")

    # Then each format has its type and the version that its servers read
    found = {form: dumped(client, form=form) for form in ("8.8", "8.2", "7.0")}
    assert {form: (payload[0], payload[-10]) for form, payload in found.items()} == {
        "8.8": (27, 14),
        "8.2": (21, 11),
        "7.0": (19, 10),
    }
    refused = client("CONFIG", "SET", "dump-format", "6.2")
    assert isinstance(refused, Failure)
    assert client("CONFIG", "GET", "dump-format") == [b"dump-format", b"7.0"]


def test_a_stream_whose_last_id_was_lowered_is_restored(client: LocalClient) -> None:
    # Given a stream with an id below those of deleted entries, each in a node of its own
    value = "v" * 1900
    for words in (
        ("XADD", "s", "5-0", "f", value),
        ("XADD", "s", "6-0", "f", value),
        ("XGROUP", "CREATE", "s", "g", "0"),
        ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"),
        ("XACK", "s", "g", "6-0"),
        ("XTRIM", "s", "MAXLEN", "0", "ACKED"),
        ("XTRIM", "s", "MINID", "6-0", "DELREF"),
        ("XSETID", "s", "1-0"),
        ("XADD", "s", "2-0", "f", value),
        ("XADD", "s", "7-0", "f", value),
    ):
        assert not isinstance(client(*words), Failure), words
    # When its payload is restored
    payload = client("DUMP", "s")
    assert isinstance(payload, bytes)
    assert client("RESTORE", "t", 0, payload) == OK
    # Then it has the same entries
    assert client("XRANGE", "t", "-", "+") == client("XRANGE", "s", "-", "+")
