"""Who listens and what is heard: `headwater.server.services.pubsub`, in a node without sockets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.commands.globs import matches
from headwater.config.clients import OutputLimit, OutputLimits
from headwater.config.config import Config
from headwater.engine.events import ALL, LETTERS, parse_classes, spell_classes
from headwater.errors import CommandError
from headwater.server.services.pubsub import PatternIndex
from headwater.server.session.session import Session
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Push, Reply


def store_of(**settings: Any) -> LocalStore:
    """A store that keeps nothing, with these settings."""
    config = Config(port=0)
    for name, value in settings.items():
        setattr(config, name, value)
    return LocalStore(config=config, journaled=False)


def replies(client: LocalClient) -> list[Reply]:
    """All that has come."""
    found = []
    while (reply := client.reply()) is not None:
        found.append(reply)
    return found


# --- patterns --------------------------------------------------------------------------------------

names = st.text("ab*?[]\\^-", max_size=6).map(str.encode)


@given(st.lists(names, unique=True), st.lists(names, unique=True), names)
def test_the_index_finds_the_patterns_that_fit(
    patterns: list[bytes], dropped: list[bytes], channel: bytes
) -> None:
    # Given patterns, some of which are dropped again
    index = PatternIndex()
    for pattern in patterns:
        index.listeners(pattern)
    for pattern in dropped:
        if pattern in index.by_pattern:
            index.drop(pattern)
    # Then those that are left and fit are found, each once
    left = [pattern for pattern in patterns if pattern not in dropped]
    found = [pattern for pattern, _ in index.matching(channel)]
    assert sorted(found) == sorted(pattern for pattern in left if matches(pattern, channel))


def test_patterns_that_begin_otherwise_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
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
    # When a channel is looked for, then few are compared
    found = {pattern for pattern, _ in index.matching(b"user:7:x")}
    assert found == {b"*:7:*", b"user:7:*"}
    assert sorted(looked) == sorted(found)


def test_a_pattern_that_takes_too_long_refuses_no_write() -> None:
    # Given one who listens to a pattern that cannot be compared in time
    store = store_of(notify_keyspace_events="KEA")
    listener, client = store.client(), store.client()
    pattern, key = b"*" + b"a" * 400 + b"b", b"a" * 20_000
    with pytest.raises(CommandError):
        matches(pattern, key)
    listener("PSUBSCRIBE", pattern)
    # When a key is written whose channel would have to be, then it is written
    client("SET", key, "x")
    assert client("EXISTS", key) == 1
    assert replies(listener) == []


# --- classes of events -----------------------------------------------------------------------------


@given(st.text("".join(LETTERS) + "A"))
def test_classes_are_spelled_so_that_they_are_understood(text: str) -> None:
    bits = parse_classes(text)
    assert parse_classes(spell_classes(bits)) == bits
    assert spell_classes(bits) == spell_classes(parse_classes(spell_classes(bits)))


def test_everything_but_what_is_rare_is_a() -> None:
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


# --- what is heard, and when ------------------------------------------------------------------------


def test_who_hears_of_a_write_finds_it_in_the_journal() -> None:
    # Given one who looks into the journal the moment it hears of anything
    store = LocalStore(config=Config(port=0, notify_keyspace_events="KEA"))
    seen: list[bytes] = []

    def on_output(session: Session) -> None:
        if b"__keyevent@0__:xadd" in session.output.take():
            seen.append(b"".join(store.facts()))

    session = store.node.connect(kind="embedded", address="", on_output=on_output)
    session.feed(b"PSUBSCRIBE *\r\n")
    store.node.turn([session])
    # When another writes
    store.client()("XADD", "orders", "1-1", "item", "green tea")
    # Then what it was told of is there
    assert len(seen) == 1
    assert b"green tea" in seen[0]


def test_who_listens_hears_nothing_of_a_write_that_failed() -> None:
    # Given a disk that will not sync
    store = LocalStore(config=Config(port=0, notify_keyspace_events="KEA"))
    listener, client = store.client(), store.client()
    listener("PSUBSCRIBE", "*")
    assert store.files is not None
    store.files.fail("sync")
    # When a write is told of and its commit fails
    client.send("XADD", "orders", "1-1", "item", "tea")
    # Then nobody hears of it
    assert replies(listener) == []
    assert replies(client) == []


def test_a_message_is_no_change() -> None:
    store = LocalStore()
    listener, client = store.client(), store.client()
    listener("SUBSCRIBE", "news")
    before = store.facts()
    assert client("PUBLISH", "news", "x") == 1
    assert store.facts() == before


def test_messages_of_one_turn_come_in_the_order_of_their_commands() -> None:
    # Given two who publish in one turn
    store = store_of()
    listener, one, other = store.client(), store.client(), store.client()
    listener("SUBSCRIBE", "news")
    one.session.feed(b"PUBLISH news 1\r\nPUBLISH news 2\r\n")
    other.session.feed(b"PUBLISH news 3\r\n")
    store.node.turn([one.session, other.session])
    assert replies(listener) == [[b"message", b"news", b"%d" % number] for number in (1, 2, 3)]


def test_who_was_woken_hears_of_its_own_command_behind_the_answer() -> None:
    # Given a client that listens to events and waits for an entry
    store = store_of(notify_keyspace_events="Et")
    reader, writer = store.client(resp=3), store.client()
    writer("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    reader("PSUBSCRIBE", "__key*")
    reader.send(*b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >".split())
    assert [reply.items[2:] for reply in replies(reader) if isinstance(reply, Push)] == [
        (b"__keyevent@0__:xgroup-createconsumer", b"s")
    ]
    # When one comes
    writer("XADD", "s", "1-1", "f", "v")
    # Then what the writer did is told first, then it is answered
    told, answer = replies(reader)
    assert isinstance(told, Push)
    assert told.items[2:] == (b"__keyevent@0__:xadd", b"s")
    assert not isinstance(answer, Push)


@pytest.mark.parametrize("resp", [2, 3])
def test_a_client_that_wants_no_replies_gets_messages(resp: int) -> None:
    # Given a client that listens and wants no replies
    store = store_of()
    listener, publisher = store.client(resp=resp), store.client()
    listener("SUBSCRIBE", "news")
    listener.session.reply_mode = "off"
    # When it subscribes to more, and others publish
    listener.send("SUBSCRIBE", "more")
    listener.send("PING")
    publisher("PUBLISH", "more", "x")
    # Then it gets the confirmation and the message, and no reply
    confirmation, message = replies(listener)
    kind = Push if resp == 3 else list
    assert confirmation == kind((b"subscribe", b"more", 2))
    assert message == kind((b"message", b"more", b"x"))


def test_what_nobody_reads_is_bounded_within_one_command() -> None:
    # Given one who listens, with a bound
    limits = OutputLimits(pubsub=OutputLimit(hard=100_000))
    store = store_of(client_output_buffer_limit=limits)
    listener, client = store.client(), store.client()
    listener("SUBSCRIBE", "news")
    # When one transaction publishes much more
    client("MULTI")
    for _ in range(1000):
        client("PUBLISH", "news", b"x" * 10_000)
    client("EXEC")
    # Then what is kept is the bound and a message, and it is to be disconnected
    assert 100_000 < listener.session.output.unsent < 111_000
    assert listener.session.closing
    told = client("INFO", "stats")
    assert isinstance(told, bytes)
    assert b"client_output_buffer_limit_disconnections:1\r\n" in told
    # And one who reads gets everything
    listener = store.client()
    listener("SUBSCRIBE", "news")
    for _ in range(100):
        client("PUBLISH", "news", b"x" * 10_000)
        assert len(replies(listener)) == 1


def test_its_own_messages_are_bounded_too() -> None:
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


def test_who_said_goodbye_gets_no_more() -> None:
    store = store_of()
    listener, client = store.client(), store.client()
    listener("SUBSCRIBE", "news")
    listener.session.feed(b"QUIT\r\n")
    client.session.feed(b"PUBLISH news x\r\n")
    store.node.turn([listener.session, client.session])
    assert len(replies(listener)) == 1  # OK


def test_a_session_that_is_closed_is_forgotten() -> None:
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


def test_who_may_no_longer_hear_a_channel_is_disconnected() -> None:
    # Given a user who may listen to some channels, and does
    store = store_of()
    admin, listener = store.client(), store.client(kind="tcp")
    admin("ACL", "SETUSER", "ann", "on", "nopass", "+@all", "&news*")
    listener("AUTH", "ann", "any")
    refused = listener("SUBSCRIBE", "secret")
    assert refused.text.startswith(b"NOPERM")  # type: ignore[union-attr]
    assert listener("SUBSCRIBE", "newsletter") == [b"subscribe", b"newsletter", 1]
    # When that is taken from her, then she is to be disconnected
    admin("ACL", "SETUSER", "ann", "resetchannels", "&other")
    assert listener.session.closing
