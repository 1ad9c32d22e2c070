"""Subscriptions and messages: `headwater.server.services.pubsub`, in a node without sockets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.commands.globs import matches
from headwater.config.clients import OutputLimit, OutputLimits
from headwater.config.config import Config
from headwater.engine.keyspace.events import ALL, LETTERS, parse_classes, spell_classes
from headwater.errors import CommandError
from headwater.server.services.pubsub import PatternIndex
from headwater.server.session.session import Session
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Push, Reply


def store_of(**settings: Any) -> LocalStore:
    """Create a store without a journal, with these settings."""
    config = Config(port=0)
    for name, value in settings.items():
        setattr(config, name, value)
    return LocalStore(config=config, journaled=False)


def replies(client: LocalClient) -> list[Reply]:
    """Return all replies and messages that have arrived."""
    found = []
    while (reply := client.reply()) is not None:
        found.append(reply)
    return found


# --- patterns --------------------------------------------------------------------------------------

names = st.text("ab*?[]\\^-", max_size=6).map(str.encode)


@given(st.lists(names, unique=True), st.lists(names, unique=True), names)
def test_the_index_finds_the_matching_patterns(
    patterns: list[bytes], dropped: list[bytes], channel: bytes
) -> None:
    # Given patterns, of which some are dropped again
    index = PatternIndex()
    for pattern in patterns:
        index.listeners(pattern)
    for pattern in dropped:
        if pattern in index.by_pattern:
            index.drop(pattern)
    # Then the remaining ones that match are found, each once
    left = [pattern for pattern in patterns if pattern not in dropped]
    found = [pattern for pattern, _ in index.matching(channel)]
    assert sorted(found) == sorted(pattern for pattern in left if matches(pattern, channel))


def test_patterns_with_another_prefix_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given many patterns
    looked: list[bytes] = []

    def looking(pattern: bytes, text: bytes) -> bool:
        looked.append(pattern)
        return matches(pattern, text)

    monkeypatch.setattr("headwater.server.services.pubsub.matches", looking)
    index = PatternIndex()
    for number in range(1000):
        index.listeners(b"user:%d:*" % number)
    index.listeners(b"*:7:*")
    # When a channel is matched, then few patterns are compared
    found = {pattern for pattern, _ in index.matching(b"user:7:x")}
    assert found == {b"*:7:*", b"user:7:*"}
    assert sorted(looked) == sorted(found)


def test_a_pattern_that_takes_too_long_does_not_fail_a_write() -> None:
    # Given a client with a pattern that cannot be matched in time
    store = store_of(notify_keyspace_events="KEA")
    listener, client = store.client(), store.client()
    pattern, key = b"*" + b"a" * 400 + b"b", b"a" * 20_000
    with pytest.raises(CommandError):
        matches(pattern, key)
    listener("PSUBSCRIBE", pattern)
    # When a key is written whose channel would have to be matched, then it is written
    client("SET", key, "x")
    assert client("EXISTS", key) == 1
    assert replies(listener) == []


# --- classes of events -----------------------------------------------------------------------------


@given(st.text("".join(LETTERS) + "A"))
def test_spelled_classes_are_parsed_back(text: str) -> None:
    bits = parse_classes(text)
    assert parse_classes(spell_classes(bits)) == bits
    assert spell_classes(bits) == spell_classes(parse_classes(spell_classes(bits)))


def test_all_classes_but_the_rare_ones_are_spelled_a() -> None:
    assert spell_classes(ALL) == "A"
    assert spell_classes(parse_classes("g$lshzxet")) == "g$lshzxet"  # without d, of modules


@pytest.mark.parametrize("text", ["", "A", "g$", "K", "E", "KE"])
def test_without_a_channel_or_a_class_nothing_is_published(text: str) -> None:
    store = store_of(notify_keyspace_events=text)
    listener, client = store.client(), store.client()
    listener("PSUBSCRIBE", "*")
    client("SET", "k", "v")
    assert replies(listener) == []
    assert store.node.keyspace.events == []


# --- messages and their order -----------------------------------------------------------------------


def test_an_event_is_sent_after_its_write_is_in_the_journal() -> None:
    # Given a client that reads the journal as soon as it gets an event
    store = LocalStore(config=Config(port=0, notify_keyspace_events="KEA"))
    seen: list[bytes] = []

    def on_output(session: Session) -> None:
        if b"__keyevent@0__:xadd" in session.output.take():
            seen.append(b"".join(store.facts()))

    session = store.node.connect(kind="embedded", address="", on_output=on_output)
    session.feed(b"PSUBSCRIBE *\r\n")
    store.node.turn([session])
    # When another client writes
    store.client()("XADD", "orders", "1-1", "item", "green tea")
    # Then the write is in the journal
    assert len(seen) == 1
    assert b"green tea" in seen[0]


def test_a_failed_write_causes_no_event() -> None:
    # Given a disk whose fsync fails
    store = LocalStore(config=Config(port=0, notify_keyspace_events="KEA"))
    listener, client = store.client(), store.client()
    listener("PSUBSCRIBE", "*")
    assert store.files is not None
    store.files.fail("sync")
    # When a write causes an event and its commit fails
    client.send("XADD", "orders", "1-1", "item", "tea")
    # Then no client gets the event
    assert replies(listener) == []
    assert replies(client) == []


def test_a_message_writes_no_fact() -> None:
    store = LocalStore()
    listener, client = store.client(), store.client()
    listener("SUBSCRIBE", "news")
    before = store.facts()
    assert client("PUBLISH", "news", "x") == 1
    assert store.facts() == before


def test_messages_of_one_turn_are_in_the_order_of_their_commands() -> None:
    # Given two clients that publish in one turn
    store = store_of()
    listener, one, other = store.client(), store.client(), store.client()
    listener("SUBSCRIBE", "news")
    one.session.feed(b"PUBLISH news 1\r\nPUBLISH news 2\r\n")
    other.session.feed(b"PUBLISH news 3\r\n")
    store.node.turn([one.session, other.session])
    assert replies(listener) == [[b"message", b"news", b"%d" % number] for number in (1, 2, 3)]


def test_a_woken_client_gets_the_event_of_the_write_before_its_reply() -> None:
    # Given a client that subscribes to events and waits for an entry
    store = store_of(notify_keyspace_events="Et")
    reader, writer = store.client(resp=3), store.client()
    writer("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    reader("PSUBSCRIBE", "__key*")
    reader.send(*b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >".split())
    assert [reply.items[2:] for reply in replies(reader) if isinstance(reply, Push)] == [
        (b"__keyevent@0__:xgroup-createconsumer", b"s")
    ]
    # When an entry is added
    writer("XADD", "s", "1-1", "f", "v")
    # Then the client gets the writer's event first, then its reply
    event, reply = replies(reader)
    assert isinstance(event, Push)
    assert event.items[2:] == (b"__keyevent@0__:xadd", b"s")
    assert not isinstance(reply, Push)


@pytest.mark.parametrize("resp", [2, 3])
def test_a_client_without_replies_gets_messages(resp: int) -> None:
    # Given a subscribed client with CLIENT REPLY OFF
    store = store_of()
    listener, publisher = store.client(resp=resp), store.client()
    listener("SUBSCRIBE", "news")
    listener.session.reply_mode = "off"
    # When it subscribes to another channel, and others publish
    listener.send("SUBSCRIBE", "more")
    listener.send("PING")
    publisher("PUBLISH", "more", "x")
    # Then it gets the confirmation and the message, and no reply
    confirmation, message = replies(listener)
    kind = Push if resp == 3 else list
    assert confirmation == kind((b"subscribe", b"more", 2))
    assert message == kind((b"message", b"more", b"x"))


def test_unread_messages_are_bounded_within_one_command() -> None:
    # Given a subscribed client with an output limit
    limits = OutputLimits(pubsub=OutputLimit(hard=100_000))
    store = store_of(client_output_buffer_limit=limits)
    listener, client = store.client(), store.client()
    listener("SUBSCRIBE", "news")
    # When one transaction publishes much more
    client("MULTI")
    for _ in range(1000):
        client("PUBLISH", "news", b"x" * 10_000)
    client("EXEC")
    # Then the output is at most the limit and one message, and the client will be disconnected
    assert 100_000 < listener.session.output.unsent < 111_000
    assert listener.session.closing
    info = client("INFO", "stats")
    assert isinstance(info, bytes)
    assert b"client_output_buffer_limit_disconnections:1\r\n" in info
    # And a client that reads gets everything
    listener = store.client()
    listener("SUBSCRIBE", "news")
    for _ in range(100):
        client("PUBLISH", "news", b"x" * 10_000)
        assert len(replies(listener)) == 1


def test_messages_of_the_client_itself_are_bounded_too() -> None:
    limits = OutputLimits(pubsub=OutputLimit(hard=100_000))
    client = store_of(client_output_buffer_limit=limits).client(resp=3)
    client("SUBSCRIBE", "news")
    client("MULTI")
    for _ in range(1000):
        client("PUBLISH", "news", b"x" * 10_000)
    counts, *messages = [client("EXEC"), *replies(client)]
    assert counts == [1] * 1000
    assert len(messages) == 10
    assert client.session.closing


def test_a_client_gets_no_messages_after_quit() -> None:
    store = store_of()
    listener, client = store.client(), store.client()
    listener("SUBSCRIBE", "news")
    listener.session.feed(b"QUIT\r\n")
    client.session.feed(b"PUBLISH news x\r\n")
    store.node.turn([listener.session, client.session])
    assert len(replies(listener)) == 1  # OK


def test_a_closed_session_leaves_no_subscriptions() -> None:
    store = store_of()
    listener = store.client()
    listener("SUBSCRIBE", "a", "b")
    replies(listener)
    listener("PSUBSCRIBE", "a*")
    listener("SSUBSCRIBE", "s")
    listener.close()
    hub = store.node.services.pubsub
    assert (hub.channels, hub.shard_channels, hub.patterns.by_pattern) == ({}, {}, {})
    assert list(hub.patterns.matching(b"a")) == []


def test_a_client_is_disconnected_if_it_loses_permission_for_a_channel() -> None:
    # Given a user with permission for some channels, and a subscription
    store = store_of()
    admin, listener = store.client(), store.client(kind="tcp")
    admin("ACL", "SETUSER", "ann", "on", "nopass", "+@all", "&news*")
    listener("AUTH", "ann", "any")
    refused = listener("SUBSCRIBE", "secret")
    assert refused.text.startswith(b"NOPERM")  # type: ignore[union-attr]
    assert listener("SUBSCRIBE", "newsletter") == [b"subscribe", b"newsletter", 1]
    # When the permission is revoked, then the client will be disconnected
    admin("ACL", "SETUSER", "ann", "resetchannels", "&other")
    assert listener.session.closing
