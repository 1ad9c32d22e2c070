"""CLIENT PAUSE with a moved clock, which real servers do not have: all commands, timeouts, blocked
readers."""

from __future__ import annotations

from headwater.config.config import Config
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Nil, Simple

OK = Simple(b"OK")


def store_with(count: int) -> tuple[LocalStore, list[LocalClient]]:
    made = LocalStore(config=Config(port=0, appendonly=False, save=()), journaled=False)
    return made, [made.client() for _ in range(count)]


def test_a_pause_of_all_commands_delays_every_command_until_its_end() -> None:
    # Given a pause of all commands
    store, (admin, one, two) = store_with(3)
    assert admin("CLIENT", "PAUSE", 1000) == OK

    # When clients send requests, including the one that paused
    one.send("PING")
    one.send("ECHO", "second")
    two.send("GET", "k")
    admin.send("CLIENT", "UNPAUSE")
    assert [client.reply() for client in (one, two, admin)] == [None, None, None]

    # Then nothing is answered before the end, and everything in order at the end
    store.advance(0.999)
    assert one.reply() is None
    store.advance(0.001)
    assert one.reply() == Simple(b"PONG")
    assert one.reply() == b"second"
    assert two.reply() is Nil.BULK
    assert admin.reply() == OK


def test_invalid_requests_are_errors_at_once_during_a_pause() -> None:
    _store, (admin, client) = store_with(2)
    admin("CLIENT", "PAUSE", 1000)
    assert isinstance(client("GET"), Failure)
    assert isinstance(client("NOSUCH"), Failure)


def test_a_pause_ends_on_time_without_a_tick() -> None:
    store, (admin, client) = store_with(2)
    admin("CLIENT", "PAUSE", 1000)
    store.clock.advance(1)
    assert client("PING") == Simple(b"PONG")


def test_a_paused_client_that_disconnects_is_forgotten() -> None:
    store, (admin, client, reader) = store_with(3)
    admin("CLIENT", "PAUSE", 1000)
    client.send("SET", "k", "1")
    client.close()
    store.advance(1)
    assert reader("EXISTS", "k") == 0
    assert store.node.blocked.waiting.count == 0


def test_info_shows_the_pause_and_the_paused_clients() -> None:
    _store, (admin, client) = store_with(2)
    admin("CLIENT", "PAUSE", 1000, "WRITE")
    client.send("SET", "k", "1")
    text = admin("INFO", "clients")
    assert isinstance(text, bytes)
    assert b"blocked_clients:1\r\n" in text
    assert b"paused_reason:client_pause\r\npaused_actions:write\r\n" in text
    assert b"paused_timeout_milliseconds:1000\r\n" in text


def test_a_claiming_reader_that_is_signalled_during_a_pause_is_served_at_its_end() -> None:
    # Given a reader that waits until an entry is idle for long enough
    store, (admin, holder, reader) = store_with(3)
    admin("XADD", "s", "1-1", "a", "1")
    admin("XGROUP", "CREATE", "s", "g", "0")
    holder("XREADGROUP", "GROUP", "g", "one", "STREAMS", "s", ">")
    reader.send(*("XREADGROUP", "GROUP", "g", "two", "BLOCK", 0, "CLAIM", 500, "STREAMS", "s", ">"))

    # When it is idle for long enough during a pause of writes
    admin("CLIENT", "PAUSE", 1000, "WRITE")
    store.advance(0.999)
    assert reader.reply() is None

    # Then the reader gets it at the end of the pause
    store.advance(0.001)
    assert isinstance(reader.reply(), list)


def test_a_blocked_reader_times_out_during_a_pause() -> None:
    store, (admin, reader) = store_with(2)
    reader.send("XREAD", "BLOCK", 300, "STREAMS", "s", "$")
    admin("CLIENT", "PAUSE", 1000)
    store.advance(0.299)
    assert reader.reply() is None
    store.advance(0.001)
    assert reader.reply() is Nil.ARRAY


def test_keys_that_expire_during_a_pause_are_deleted_at_its_end() -> None:
    # Given keys that expire during a pause of writes
    store, (admin, reader) = store_with(2)
    admin("SET", "one", "1", "PX", 100)
    admin("SET", "two", "2", "PX", 100)
    admin("CLIENT", "PAUSE", 1000, "WRITE")
    store.advance(0.5)

    # Then they are invisible, and not deleted yet
    assert reader("GET", "one") is Nil.BULK
    assert reader("RANDOMKEY") is Nil.BULK
    assert reader("DBSIZE") == 0
    assert b"\r\nexpired_keys:0\r\n" in bytes_of(reader("INFO", "stats"))
    deadline = store.node.next_deadline()
    assert deadline is not None
    assert deadline > store.clock.monotonic(), "the loop would run without end"

    # When the pause ends, then they are deleted
    store.advance(0.5)
    store.advance(0.001)
    assert b"\r\nexpired_keys:2\r\n" in bytes_of(reader("INFO", "stats"))


def bytes_of(reply: object) -> bytes:
    assert isinstance(reply, bytes)
    return reply


def test_a_key_that_expires_during_a_pause_breaks_its_watch() -> None:
    # Given a client that watches a key, and one that has expired already
    store, (admin, one, late) = store_with(3)
    admin("SET", "k", "1", "PX", 100)
    one("WATCH", "k")
    admin("CLIENT", "PAUSE", 1000, "WRITE")
    store.advance(0.5)
    late("WATCH", "k")

    # When both run a transaction, then only the first one's key has changed
    for client in (one, late):
        client("MULTI")
        client("PING")
    assert one("EXEC") is Nil.ARRAY
    assert late("EXEC") == [Simple(b"PONG")]


def test_deleting_a_key_that_had_expired_breaks_no_watch() -> None:
    store, (admin, one) = store_with(2)
    admin("SET", "k", "1", "PX", 100)
    admin("CLIENT", "PAUSE", 1000, "WRITE")
    store.advance(0.5)
    one("WATCH", "k")
    store.advance(0.5)
    store.advance(0.001)
    one("MULTI")
    one("PING")
    assert one("EXEC") == [Simple(b"PONG")]
