"""A transaction of many commands: what it stores, what it costs, what its commands see."""

from __future__ import annotations

import gc

import pytest

from headwater.commands.dispatch import find_command
from headwater.resp.arguments import Arguments
from headwater.resp.scanner import Scanner
from headwater.server.session.transaction import TransactionQueue
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure, Nil, Simple

MANY = 20_000


def scanned(wire: bytes) -> Arguments:
    """Parse the one request in ``wire``."""
    scanner, arguments = Scanner(), Arguments()
    scanner.feed(wire)
    assert scanner.next(arguments)
    return arguments


@pytest.mark.parametrize(
    "wire",
    [
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nv\r\nv\n\r\n",
        b"SET k 'v v'\r\n",  # inline
        b"*3\r\n$3\r\nSET\r\n$1\rXk\r\n$1\r\nvXX",  # not canonical
        b"*4\r\n$4\r\nMSET\r\n$1\r\nk\r\n$300\r\n" + b"v" * 300 + b"\r\n$0\r\n\r\n",
    ],
)
def test_a_queued_request_is_read_back_unchanged(wire: bytes) -> None:
    # Given a request in any spelling
    arguments = scanned(wire)
    expected = arguments.values()
    queue = TransactionQueue()

    # When it is queued twice and its input buffer is reused
    for _ in range(2):
        queue.add(find_command(arguments), arguments)
    arguments.buffer[:] = b"?" * len(arguments.buffer)

    # Then both are read back, and nothing else
    queue.begin()
    again = Arguments()
    for _ in range(2):
        assert queue.next(again)
        assert again.values() == expected
    assert not queue.next(again)


@pytest.mark.slow
def test_a_queued_command_creates_no_object() -> None:
    # Given a transaction
    client = LocalStore(journaled=False).client()
    client("MULTI")
    client("SET", "k", "v")
    gc.collect()
    before = len(gc.get_objects())

    # When many commands are queued
    for _ in range(MANY):
        client("SET", "k", "v")

    # Then there are no more objects than before
    assert len(gc.get_objects()) < before + 100


def test_queued_commands_count_as_input_and_memory_until_they_run() -> None:
    # Given a transaction of commands of a kilobyte
    store = LocalStore(journaled=False)
    client = store.client()
    session, held = client.session, store.node.clients.memory
    client("MULTI")
    for _ in range(1000):
        client("SET", "k", b"v" * 1000)

    # Then all their bytes are counted
    assert 1_000_000 < session.input_bytes() < 1_100_000
    assert held.held_bytes > 1_000_000

    # When they have run
    client("EXEC")

    # Then nothing is counted
    assert session.input_bytes() == 0
    assert held.held_bytes == 0


def test_the_replies_and_errors_of_a_transaction_are_in_order() -> None:
    # Given a transaction whose commands succeed and fail in turn
    client = LocalStore().client()
    client("MULTI")
    for number in range(MANY // 4):
        client("XADD", "s", f"{number + 1}-0", "n", number)
        client("XADD", "s", f"{number + 1}-0", "n", number)
        client("INCR", "s")
        client("BLPOP", "nothing", 0)

    # When it runs
    replies = client("EXEC")

    # Then the replies are in order
    assert isinstance(replies, list)
    assert len(replies) == MANY
    for number in range(MANY // 4):
        added, small, wrong, waited = replies[4 * number : 4 * number + 4]
        assert added == b"%d-0" % (number + 1)
        assert isinstance(small, Failure)
        assert b"equal or smaller" in small.text
        assert isinstance(wrong, Failure)
        assert b"WRONGTYPE" in wrong.text
        assert waited is Nil.ARRAY


def test_commands_of_a_transaction_are_counted_one_by_one() -> None:
    # Given a store without counted commands
    store = LocalStore(journaled=False)
    client = store.client()

    # When a transaction of two kinds of commands runs
    client("MULTI")
    for _ in range(1000):
        client("SET", "k", "v")
        client("LPUSH", "k", "v")
    client("EXEC")

    # Then INFO has each of them, and each failure
    observed = store.node.observer.commands
    assert observed[b"SET"].calls == 1000
    assert (observed[b"LPUSH"].calls, observed[b"LPUSH"].failed) == (1000, 1000)
    assert observed[b"EXEC"].calls == 1


def test_a_permission_revoked_in_a_transaction_is_missing_for_the_next_commands() -> None:
    # Given a user who may do everything
    store = LocalStore(journaled=False)
    client = store.client(kind="tcp")
    admin = store.client()
    admin("ACL", "SETUSER", "alice", "on", ">secret", "~*", "&*", "+@all")
    client("AUTH", "alice", "secret")

    # When a transaction revokes a permission of that user in the middle
    client("MULTI")
    client("SET", "k", "1")
    client("ACL", "SETUSER", "alice", "-set")
    client("SET", "k", "2")
    replies = client("EXEC")

    # Then the next command that needs it is refused, at its position
    assert isinstance(replies, list)
    assert replies[:2] == [Simple(b"OK"), Simple(b"OK")]
    refused = replies[2]
    assert isinstance(refused, Failure)
    assert refused.text.startswith(b"NOPERM")
    assert admin("GET", "k") == b"1"


def test_a_long_transaction_is_one_record_group() -> None:
    # Given a journaled store
    store = LocalStore()
    client = store.client()

    # When a long transaction runs
    client("MULTI")
    for number in range(1000):
        client("XADD", "s", f"{number + 1}-0", "n", number)
    client("EXEC")

    # Then the journal has one group, and a restart recovers all of it
    assert len(store.facts()) == 1
    store.crash()
    assert store.client()("XLEN", "s") == 1000


def test_an_overwritten_string_keeps_its_position_in_a_scan() -> None:
    # Given three keys
    client = LocalStore(journaled=False).client()
    for name in "abc":
        client("SET", name, 1)

    # When the first is set again
    client("SET", "a", 2)

    # Then a scan returns it at the same position
    found = client("SCAN", 0, "COUNT", 3)
    assert isinstance(found, list)
    assert found[1] == [b"a", b"b", b"c"]
    assert client("GET", "a") == b"2"
