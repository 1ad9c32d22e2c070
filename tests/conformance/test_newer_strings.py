"""Commands on strings that Redis 8.4 and 8.8 have and no peer has: DIGEST, SET IF…, DELEX, INCREX."""

from __future__ import annotations

import pytest

from headwater.config.config import Config
from headwater.testing.node import LocalClient, LocalStore, Word
from headwater.testing.replies import Failure, Nil, Push, Reply, Simple

HELLO = b"b6acb9d84a38ff74"
"""DIGEST's example on its command page: the digest of ``Hello world``."""

SYNTAX = Failure(b"ERR syntax error")
OK = Simple(b"OK")
NIL = Nil.BULK


def words(line: str) -> list[Word]:
    return list(line.split())


def test_a_digest_is_xxh3_in_sixteen_digits(client: LocalClient) -> None:
    # The second value is of redis#14496: its digest begins with zeros
    client("SET", "k", "Hello world")
    long = "v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjytls2kwlj7626sd"
    client("SET", "zeros", long)
    client("RPUSH", "l", "a")

    assert client("DIGEST", "k") == HELLO
    assert client("DIGEST", "zeros") == b"00006c38adf31777"
    assert client("DIGEST", "none") is NIL
    assert client("DIGEST", "l") == Failure(
        b"WRONGTYPE Operation against a key holding the wrong kind of value"
    )


@pytest.mark.parametrize(
    ("condition", "missing", "same", "other"),
    [
        (f"IFDEQ {HELLO.decode()}", False, True, False),
        (f"ifdeq {HELLO.decode().upper()}", False, True, False),
        (f"IFDNE {HELLO.decode()}", True, False, True),
        ("IFEQ Hello\\sworld", False, True, False),
        ("IFNE Hello\\sworld", True, False, True),
    ],
)
def test_a_condition_decides_about_set_and_delex(
    client: LocalClient, condition: str, missing: bool, same: bool, other: bool
) -> None:
    given = [word.replace("\\s", " ") for word in condition.split()]
    for value, wanted in ((None, missing), ("Hello world", same), ("other", other)):
        client("DEL", "k")
        if value is not None:
            client("SET", "k", value)
        before = client("GET", "k")

        assert client("SET", "k", "new", *given, "GET") == before
        assert client("GET", "k") == (b"new" if wanted else before)

        client("DEL", "k")
        if value is not None:
            client("SET", "k", value)
        assert client("DELEX", "k", *given) == int(wanted and value is not None)
        assert client("EXISTS", "k") == int(value is not None and not wanted)


def test_conditions_of_set_exclude_each_other(client: LocalClient) -> None:
    digit = HELLO.decode()
    for line in (
        f"IFEQ a IFDEQ {digit}", "IFEQ a NX", "NX IFNE a", f"XX IFDNE {digit}", "IFDEQ", "IFEQ a IFEQ a",
        "IFNE a PERSIST",
    ):  # fmt: skip
        assert client("SET", "k", "v", *words(line)) == SYNTAX, line
    assert client("GETEX", "k", "IFEQ", "a") == SYNTAX
    client("SET", "k", "v")
    assert client("SET", "k", "v", "IFDEQ", "12") == Failure(
        b"ERR the digest must be exactly 16 hexadecimal characters"
    )
    client("RPUSH", "l", "a")
    assert isinstance(client("SET", "l", "v", "IFNE", "a"), Failure)
    assert client("SET", "none", "v", "IFDNE", "12") == OK


def test_delex_deletes_any_type_without_a_condition(client: LocalClient) -> None:
    client("RPUSH", "l", "a")
    assert client("DELEX", "l", "IFEQ", "a") == Failure(
        b"ERR Key should be of string type if conditions are specified"
    )
    assert [client("DELEX", "l"), client("DELEX", "l")] == [1, 0]
    assert client("DELEX", "k", "IFEQ") == Failure(
        b"ERR wrong number of arguments for 'delex' command"
    )
    client("SET", "k", "v")
    assert client("DELEX", "k", "IS", "v") == Failure(
        b"ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"
    )


ADDED = [
    ("5", "", [6, 1], b"6"),
    (None, "", [1, 1], b"1"),
    ("100", "BYINT -10", [90, -10], b"90"),
    ("10", "BYINT 5 UBOUND 12", [10, 0], b"10"),
    ("10", "UBOUND 12 SATURATE BYINT 5", [12, 2], b"12"),
    ("10", "BYINT 5 UBOUND 5 SATURATE", [5, -5], b"5"),
    ("10", "BYINT 5 LBOUND 20", [10, 0], b"10"),
    ("10", "BYINT -5 LBOUND 20 SATURATE", [20, 10], b"20"),
    (None, "LBOUND 5", [0, 0], NIL),
    (None, "LBOUND 5 SATURATE", [5, 5], b"5"),
    ("9223372036854775807", "", [2**63 - 1, 0], b"9223372036854775807"),
    ("9223372036854775800", "BYINT 9223372036854775800 SATURATE", [2**63 - 1, 7], b"%d" % (2**63 - 1)),
    ("-9223372036854775800", "BYINT -9223372036854775800 SATURATE", [-(2**63), -8], b"%d" % -(2**63)),
    ("10", "BYINT 9223372036854775807 UBOUND 100 SATURATE", [100, 90], b"100"),
    ("1.5", "BYFLOAT 0.25", [b"1.75", b"0.25"], b"1.75"),
    ("0.1", "BYFLOAT 0.2", [b"0.3", b"0.2"], b"0.3"),
    ("3", "BYFLOAT 1e3", [b"1003", b"1000"], b"1003"),
    ("10", "BYFLOAT 100 UBOUND 42.5 SATURATE", [b"42.5", b"32.5"], b"42.5"),
    ("50.5", "BYFLOAT 5.5 UBOUND 30", [b"50.5", b"0"], b"50.5"),
    ("10", "BYFLOAT 1 LBOUND -inf UBOUND inf", [b"11", b"1"], b"11"),
    ("10", "BYFLOAT 1e4932 UBOUND 100 SATURATE", [b"100", b"90"], b"100"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "options", "reply", "after"), ADDED)
def test_increx_adds_within_bounds(
    client: LocalClient, value: str | None, options: str, reply: Reply, after: Reply
) -> None:
    if value is not None:
        client("SET", "k", value)
    assert client("INCREX", "k", *words(options)) == reply
    assert client("GET", "k") == after


REFUSED = {
    "FOO": SYNTAX,
    "BYINT": SYNTAX,
    "BYINT 1 BYFLOAT 1": SYNTAX,
    "BYINT 1 BYINT 1": SYNTAX,
    "EX 10 PX 10": SYNTAX,
    "EX 10 EX 10": SYNTAX,
    "PERSIST EX 10": SYNTAX,
    "PERSIST ENX": SYNTAX,
    "SATURATE SATURATE": SYNTAX,
    "ENX": Failure(b"ERR ENX flag requires an expiration"),
    "EX 0": Failure(b"ERR invalid expire time in 'increx' command"),
    "BYINT 1.5": Failure(b"ERR Increment is not an integer or out of range"),
    "BYINT 9223372036854775808": Failure(b"ERR Increment is not an integer or out of range"),
    "BYFLOAT abc": Failure(b"ERR Increment is not a valid float"),
    "BYFLOAT nan": Failure(b"ERR Increment is not a valid float"),
    "BYFLOAT 1e99999999": Failure(b"ERR Increment is not a valid float"),
    "BYFLOAT -inf": Failure(b"ERR BYFLOAT increment cannot be Infinity"),
    "UBOUND inf": Failure(b"ERR UBOUND is not an integer or out of range"),
    "LBOUND 10 UBOUND 5": Failure(b"ERR LBOUND can't be greater than UBOUND"),
    "BYFLOAT 1 LBOUND inf": Failure(b"ERR LBOUND can't be greater than UBOUND"),
    "BYINT -5 UBOUND -9223372036854775808 SATURATE": Failure(
        b"ERR applied increment would overflow"
    ),
    "BYFLOAT 1 LBOUND inf UBOUND inf SATURATE": Failure(b"ERR applied increment would be Infinity"),
}


@pytest.mark.parametrize("options", REFUSED)
def test_increx_refuses_and_changes_nothing(client: LocalClient, options: str) -> None:
    client("SET", "k", "7", "EX", "100")
    assert client("INCREX", "k", *words(options)) == REFUSED[options]
    assert (client("GET", "k"), client("TTL", "k")) == (b"7", 100)


def test_increx_refuses_values_that_are_no_numbers(client: LocalClient) -> None:
    client("SET", "k", "1.5")
    client("SET", "i", "inf")
    client("RPUSH", "l", "a")
    assert client("INCREX", "k") == Failure(b"ERR value is not an integer or out of range")
    assert client("INCREX", "i", "BYFLOAT", "1") == Failure(b"ERR value cannot be Infinity")
    assert isinstance(client("INCREX", "l"), Failure)


def test_increx_sets_keeps_and_removes_the_expiry(client: LocalClient) -> None:
    for options, before, after in (
        ("EX 50", -1, 50), ("EX 50", 100, 50), ("PX 50000 ENX", -1, 50), ("EX 50 ENX", 100, 100),
        ("", 100, 100), ("PERSIST", 100, -1), ("PERSIST", -1, -1), ("UBOUND 0 EX 50", 100, 100),
        ("UBOUND 0 PERSIST", 100, 100), ("EXAT 1 ENX", 100, 100), ("EXAT 1", 100, -2), ("PXAT 1", -1, -2),
    ):  # fmt: skip
        client("SET", "k", "1", *([] if before < 0 else ["EX", str(before)]))
        client("INCREX", "k", *words(options))
        assert client("TTL", "k") == after, options


def test_increx_notifies_as_redis_does() -> None:
    store = LocalStore(config=Config(port=0, notify_keyspace_events="KEA"))
    watcher, client = store.client(resp=3), store.client()
    watcher("PSUBSCRIBE", "__keyevent@0__:*")
    client("INCREX", "k", "EX", "100")
    client("INCREX", "k", "BYFLOAT", "0.5", "PERSIST")
    client("INCREX", "k", "BYFLOAT", "1", "EX", "100", "ENX")
    client("INCREX", "k", "BYFLOAT", "1", "EXAT", "1")
    client("INCREX", "k", "UBOUND", "0")
    events = []
    while isinstance(push := watcher.reply(), Push):
        channel = push.items[2]
        assert isinstance(channel, bytes)
        events.append(channel.rpartition(b":")[2])
    assert events == [
        b"incrby",
        b"expire",
        b"incrbyfloat",
        b"persist",
        b"incrbyfloat",
        b"expire",
        b"del",
    ]


def test_all_of_them_run_in_transactions_and_after_a_restart() -> None:
    store = LocalStore()
    client = store.client()
    client("MULTI")
    client("MSETEX", "2", "a", "1", "b", "x", "EX", "100")
    client("INCREX", "a", "BYFLOAT", "0.5")
    client("SET", "b", "y", "IFEQ", "x")
    client("DELEX", "none")
    assert client("EXEC") == [1, [b"1.5", b"0.5"], OK, 0]

    store.crash()

    after = store.client()
    assert after("MGET", "a", "b") == [b"1.5", b"y"]
    assert (after("TTL", "a"), after("TTL", "b")) == (100, -1)


def test_a_watched_key_is_touched_by_a_change_only() -> None:
    store = LocalStore()
    client, other = store.client(), store.client()
    client("SET", "k", "v")
    for words_, touched in (
        (("SET", "k", "w", "IFEQ", "x"), False),
        (("DELEX", "k", "IFEQ", "x"), False),
        (("MSETEX", "1", "k", "v", "NX"), False),
        (("SET", "k", "w", "IFEQ", "v"), True),
        (("DELEX", "k", "IFEQ", "w"), True),
        (("INCREX", "k", "UBOUND", "0"), False),
        (("INCREX", "k"), True),
    ):
        client("WATCH", "k")
        other(*words_)
        client("MULTI")
        client("PING")
        assert (client("EXEC") is Nil.ARRAY) is touched, words_


def test_keys_and_permissions_follow_the_options(client: LocalClient) -> None:
    assert client("COMMAND", "GETKEYSANDFLAGS", "DELEX", "k") == [
        [b"k", [Simple(b"RM"), Simple(b"delete")]]
    ]
    assert client("COMMAND", "GETKEYSANDFLAGS", "DELEX", "k", "IFEQ", "v") == [
        [b"k", [Simple(b"RW"), Simple(b"access"), Simple(b"delete")]]
    ]
    client("ACL", "SETUSER", "writer", "%W~k", "+set", "+delex", "+increx")
    for line, allowed in (
        ("SET k v", True), ("SET k v IFEQ x", False), ("DELEX k", True), ("DELEX k IFDEQ x", False),
        ("INCREX k", False),
    ):  # fmt: skip
        assert (client("ACL", "DRYRUN", "writer", *words(line)) == OK) is allowed, line


@pytest.mark.parametrize("digits", [4301, 4932, 5000])
def test_increx_takes_numbers_of_thousands_of_digits(client: LocalClient, digits: int) -> None:
    # Given an increment with more digits than Python's int() takes
    reply = client("INCREX", "k", "BYFLOAT", "1" * digits)
    # Then it is added, or refused if it exceeds the largest number
    if digits > 4932:
        assert reply == Failure(b"ERR Increment is not a valid float")
        return
    assert isinstance(reply, list)
    total = reply[0]
    assert isinstance(total, bytes)
    assert len(total) == digits
    assert total.startswith(b"1" * 19)
