"""Side effects of a command, apart from its reply: keyspace events, and the number of changes that it
counts (``rdb_changes_since_last_save``), on Headwater and on real servers.

Commands inside a transaction are compared together, after EXEC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwater.config.config import Config
from headwater.server.session.session import Session
from headwater.server.turn.node import Node
from headwater.testing.clock import ManualClock
from headwater.testing.node import LocalStore
from tests.conformance.endpoints import Command, Connection
from tests.peers import Peer

STREAMS = "tnm"
"""The event classes of commands on streams."""

KEYS = "g$lshtnmoc"
"""The event classes of all commands. ``expired`` is not included: Redis decides when to publish it."""

_CHANGES = re.compile(rb"rdb_changes_since_last_save:(\d+)")
_MARK = b"mark"


class Effects(NamedTuple):
    """Side effects. ``events`` are ``key: event``, in order."""

    events: tuple[bytes, ...]
    changes: int


def together(history: Sequence[Command]) -> Iterator[list[Command]]:
    """Yield the commands one by one, but those from MULTI to EXEC or DISCARD together."""
    held: list[Command] = []
    for command in history:
        held.append(command)
        if held[0][0].upper() != b"MULTI" or command[0].upper() in (b"EXEC", b"DISCARD"):
            yield held
            held = []
    if held:
        yield held


def take_events(node: Node) -> list[bytes]:
    """Return a list to which all further events of a node are appended when they are published."""
    taken: list[bytes] = []
    publish = node.services.pubsub.publish_events

    def take(executing: Session | None) -> None:
        taken.extend(key + b": " + event for _db, event, key in node.keyspace.events)
        publish(executing)

    node.services.pubsub.publish_events = take  # type: ignore[method-assign]
    return taken


def of_headwater(
    history: Sequence[Command], now_ms: int, *, letters: str = STREAMS
) -> list[Effects]:
    """Return the effects on a new store. Its clock does not move."""
    config = Config(port=0, appendonly=False, save=(), notify_keyspace_events="K" + letters)
    store = LocalStore(clock=ManualClock(now_ms), config=config, journaled=False)
    keyspace, client, taken = store.node.keyspace, store.client(), take_events(store.node)
    found = []
    for commands in together(history):
        before = keyspace.dirty
        taken.clear()
        for command in commands:
            client.send(*command)
            while client.reply() is None:
                store.advance(store.seconds_ahead())
        found.append(Effects(tuple(taken), keyspace.dirty - before))
    return found


def of_peer(history: Sequence[Command], server: Peer, *, letters: str = STREAMS) -> list[Effects]:
    """Return the effects on a real server, which is emptied first."""
    connection, listener = Connection(server), Connection(server)
    try:
        connection.prepare(2)
        connection.run([(b"CONFIG", b"SET", b"notify-keyspace-events", b"K" + letters.encode())])
        listener.run([(b"PSUBSCRIBE", b"__keyspace@*__:*"), (b"SUBSCRIBE", _MARK)])
        before = _changes(connection)
        found: list[Effects] = []
        for commands in together(history):
            connection.run(commands)
            seen = _events(connection, listener)
            after = _changes(connection)
            found.append(Effects(seen, after - before))
            before = after
        return found
    finally:
        listener.close()
        connection.run([(b"CONFIG", b"SET", b"notify-keyspace-events", b"")])
        connection.close()


def _changes(connection: Connection) -> int:
    (text,) = connection.run([(b"INFO", b"persistence")])
    assert isinstance(text, bytes)
    matched = _CHANGES.search(text)
    assert matched is not None
    return int(matched[1])


def _events(connection: Connection, listener: Connection) -> tuple[bytes, ...]:
    """Return the events so far: a server publishes them in order, so they precede the mark."""
    connection.run([(b"PUBLISH", _MARK, b"")])
    found: list[bytes] = []
    while True:
        message = listener.reply()
        assert isinstance(message, list)
        if message[0] == b"message":
            return tuple(found)
        _kind, _pattern, channel, event = message
        assert isinstance(channel, bytes)
        assert isinstance(event, bytes)
        found.append(channel.partition(b":")[2] + b": " + event)
