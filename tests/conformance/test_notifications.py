"""Keyspace notifications equal those of the real server, message by message: channels, order, and the
position of PUBLISH in a transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import pytest

from headwater.config.config import Config
from headwater.resp.inline import split
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure, Push, Reply
from tests.conformance.endpoints import Command, Connection
from tests.conformance.histories import History
from tests.peers import PEERS, Peer

pytestmark = pytest.mark.peer

CLASSES = [
    "KEA", "KA", "EA", "A", "KE", "", "Kg", "E$", "KEt", "KEx", "KEn", "KEAn", "KEm", "KEAm", "Eghlsz",
]  # fmt: skip
NEWER = ["KEo", "Kc", "KEAnoc"]
"""Classes added in Redis 8.2."""

STEPS = """
XADD s 1-1 a 1
XADD s MAXLEN 1 1-2 a 1
XADD s NOMKSTREAM 1-3 a 1
XADD none NOMKSTREAM 1-3 a 1
XTRIM s MAXLEN 1
XTRIM s MAXLEN 1
XDEL s 1-3
XDEL s 1-3
XSETID s 9-9
XGROUP CREATE s g $
XGROUP CREATE new g $ MKSTREAM
XGROUP CREATECONSUMER s g c
XGROUP CREATECONSUMER s g c
XADD s 10-1 a 1
XREADGROUP GROUP g other STREAMS s >
XACK s g 10-1
XGROUP SETID s g 0
XGROUP DELCONSUMER s g other
XGROUP DESTROY s g
SET k 1
SET k 2
SET s 2
GET none
GET k
EXISTS none
EXPIRE k 100
PERSIST k
PERSIST k
EXPIRE k -1
SET k v
DEL k none
DEL k
UNLINK s
HSET h f v
HSET h f w g x
HDEL h f
HDEL h g
SELECT 3
SET k v
FLUSHDB
SET "" ""
DEL ""
SET "\\xff\\r\\n k" "\\x00"
DEL "\\xff\\r\\n k"
SELECT 0
MULTI
SET k 1
PUBLISH news 1
XADD s 1-1 a 1
GET none
DEL k s
PUBLISH news 2
EXEC
MULTI
SET k 1
DISCARD
MULTI
SET k 1
SET k 1 1 1
EXEC
SET k 1
XADD k * a 1
FLUSHALL
"""
"""A step per line; the commands from MULTI to EXEC are one step."""


class Subscriber(Protocol):
    """A store, and a client subscribed to all its channels."""

    def run(self, command: Command) -> Reply: ...
    def messages(self) -> list[Reply]: ...
    def wait(self, seconds: float) -> None: ...


class LocalSubscriber:
    """Headwater in this process."""

    def __init__(self) -> None:
        self.store = LocalStore(config=Config(port=0, appendonly=False, save=()), journaled=False)
        self.client, self.listener = self.store.client(), self.store.client()
        self.listener("PSUBSCRIBE", "*")

    def run(self, command: Command) -> Reply:
        self.client.send(*command)
        while (reply := self.client.reply()) is None:
            self.store.advance(self.store.seconds_ahead())
        return reply

    def messages(self) -> list[Reply]:
        found = []
        while (message := self.listener.reply()) is not None:
            found.append(message)
        return found

    def wait(self, seconds: float) -> None:
        self.store.advance(seconds)


class PeerSubscriber:
    """A real server. It publishes in order, so a message published by the test marks the end."""

    def __init__(self, server: Peer) -> None:
        self.client, self.listener = Connection(server), Connection(server)
        self.client.prepare(2)
        self.listener.run([(b"PSUBSCRIBE", b"*")])

    def run(self, command: Command) -> Reply:
        return self.client.run([command])[0]

    def messages(self) -> list[Reply]:
        if self.client.run([(b"PUBLISH", b"mark", b"")]) != [1]:
            return []  # within a transaction
        found: list[Reply] = []
        while (message := self.listener.reply()) != [b"pmessage", b"*", b"mark", b""]:
            found.append(message)
        return found

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)  # keys of a real server expire by its own clock


@contextmanager
def theirs(server: Peer) -> Iterator[PeerSubscriber]:
    side = PeerSubscriber(server)
    try:
        yield side
    finally:
        side.run((b"CONFIG", b"SET", b"notify-keyspace-events", b""))
        side.client.close()
        side.listener.close()


def steps_for(server: str) -> list[Command]:
    """Return the steps. A key with an expiry in the past expires in Valkey; Redis deletes it."""
    left_out = "EXPIRE k -1\n" if server == "valkey-9.1" else "\0"
    return commands(STEPS.replace(left_out, ""))


def commands(text: str) -> list[Command]:
    return [tuple(split(line.encode())) for line in text.strip().splitlines()]


def messages_of(side: Subscriber, classes: str, history: Sequence[Command]) -> list[list[Reply]]:
    """Return the messages after each command; none between MULTI and EXEC."""
    assert not isinstance(
        side.run((b"CONFIG", b"SET", b"notify-keyspace-events", classes.encode())), Failure
    )
    found, queueing = [], False
    for command in history:
        side.run(command)
        queueing = command[0] == b"MULTI" or (queueing and command[0] not in (b"EXEC", b"DISCARD"))
        found.append([] if queueing else side.messages())
    return found


def compare(
    classes: str,
    history: Sequence[Command],
    server: Peer,
    *,
    hidden: frozenset[bytes] = frozenset(),
) -> int:
    """Fail where two sides differ. Return the number of messages."""
    with theirs(server) as real:
        they = messages_of(real, classes, history)
    we = messages_of(LocalSubscriber(), classes, history)
    wrong = [
        f"{b' '.join(command)!r}\n    we:   {ours}\n    they: {others}"
        for command, ours, others in zip(history, we, they, strict=True)
        if ours != others
    ]
    assert not wrong, "\n".join(wrong)
    return sum(map(len, we))


@pytest.mark.parametrize("server", PEERS)
@pytest.mark.parametrize("classes", CLASSES)
def test_notifications_equal_those_of_the_server(
    classes: str, server: str, shared_peer: Callable[[str], Peer]
) -> None:
    count = compare(classes, steps_for(server), shared_peer(server))
    assert count >= 2  # PUBLISH does not depend on the setting


@pytest.mark.parametrize("classes", NEWER)
def test_classes_of_redis_8_2(classes: str, shared_peer: Callable[[str], Peer]) -> None:
    assert compare(classes, commands(STEPS), shared_peer("redis-8.2")) > 2


@pytest.mark.parametrize("server", ["redis-8.2", "valkey-9.1"])
@pytest.mark.parametrize("seed", range(2))
def test_a_random_history_gives_the_same_notifications(
    seed: int, server: str, shared_peer: Callable[[str], Peer]
) -> None:
    history = History(7000 + seed, server).commands(300)
    assert compare("KEA", history, shared_peer(server)) > 100


@pytest.mark.parametrize("server", PEERS)
def test_expiry_is_notified(server: str, shared_peer: Callable[[str], Peer]) -> None:
    def expiries(side: Subscriber) -> list[list[Reply]]:
        found = messages_of(
            side, "KEA", commands("SET k v\nPEXPIRE k 20\nXADD s 1-1 a 1\nPEXPIRE s 20")
        )
        side.wait(0.1)
        # Then access finds the keys gone, and the notifications were published
        side.run((b"EXISTS", b"k"))
        side.run((b"EXISTS", b"s"))
        last = side.messages()
        return [*found, sorted(last, key=repr)]

    with theirs(shared_peer(server)) as real:
        they = expiries(real)
    we = expiries(LocalSubscriber())
    assert we == they
    assert len(we[-1]) == 4


OWN = """
CONFIG SET notify-keyspace-events KEA
PSUBSCRIBE __key*
SUBSCRIBE news
SET k v
XADD s 1-1 a 1
XADD s 1-1 a 1
XGROUP CREATE s g 0
XREADGROUP GROUP g c STREAMS s >
MULTI | SET k 1 | PUBLISH news 1 | XADD s 2-2 a 1 | UNSUBSCRIBE | SET k 2 | EXEC
DEL k s
PUNSUBSCRIBE
SET k v
"""
"""A step per line; its commands are sent together."""


def test_a_client_gets_notifications_of_its_own_commands_after_their_replies(
    shared_peer: Callable[[str], Peer],
) -> None:
    """With RESP3, in which a subscribed client may run any command."""
    steps = [commands(line.replace(" | ", "\n")) for line in OWN.strip().splitlines()]
    # Given the same steps on both sides
    store = LocalStore(config=Config(port=0, appendonly=False, save=()), journaled=False)
    client = store.client(resp=3)
    ours = [replies_of(step, lambda word: client.send(*word), client.reply) for step in steps]
    connection = Connection(shared_peer("redis-8.2"))
    connection.prepare(3)
    try:
        theirs = [
            replies_of(step, lambda word: connection.send(*word), connection.reply)
            for step in steps
        ]
    finally:
        connection.run([(b"CONFIG", b"SET", b"notify-keyspace-events", b"")])
        connection.close()
    # Then replies and messages come in the same order
    assert ours == theirs
    assert sum(isinstance(reply, Push) for replies in ours for reply in replies) > 20


def replies_of(
    step: list[Command], send: Callable[[Command], None], reply: Callable[[], Reply | None]
) -> list[Reply | None]:
    """Return everything received until the reply to an ECHO after the step."""
    for command in (*step, (b"ECHO", b"end of the step")):
        send(command)
    found = []
    while (one := reply()) != b"end of the step":
        found.append(one)
    return found
