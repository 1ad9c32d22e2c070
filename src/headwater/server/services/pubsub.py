"""Pub/Sub: the subscriptions of sessions, and the delivery of messages.

    PUBLISH, keyspace events ──▶ PubSub.publish ──▶ outboxes of the listeners ──▶ released by the commit

Rule 1. A message does not change state: it is not a fact and not in the journal. It is in the
        outboxes of the turn that caused it, so a message about a write is sent after the write is
        durable (design rule 4).
Rule 2. A message that a command publishes reaches its own client after the command's reply, and
        with EXEC after all replies. Until then it is in ``Output.pushes``.
Rule 3. A listener that leaves more unread than ``client-output-buffer-limit pubsub`` allows is sent
        nothing more and is disconnected.
Rule 4. The cost of publishing depends on the listeners of the channel, and on the patterns whose literal prefix is
        a prefix of the channel.

Source: redis.io, Redis Pub/Sub; Redis, pubsub.c and notify.c.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.commands.globs import matches
from headwater.common.log_limit import LimitedLog
from headwater.config.clients import ClientConfig
from headwater.engine.accounts.memory_account import table_bytes, text_bytes
from headwater.engine.keyspace.events import KEYEVENT, KEYSPACE
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.errors import CommandError
from headwater.server.services.faults import Faults
from headwater.server.services.observability.traffic import Traffic
from headwater.server.session.clients import Clients
from headwater.server.session.session import Session
from headwater.server.session.subscriptions import CHANNEL, PATTERN, SHARD

Listeners = dict[Session, None]

_LISTENERS_BYTES, _PLACE_BYTES, _PREFIX_BYTES = 224, 36, 224
"""Bytes for the listeners of a name, for a pattern's place by prefix, and for a prefix without its text."""


class PatternIndex:
    """The listeners of each pattern, indexed by the literal prefix of the pattern.

    >>> index = PatternIndex()
    >>> index.listeners(b"orders:*").update({})
    >>> [pattern for pattern, _ in index.matching(b"orders:7")]
    [b'orders:*']
    """

    def __init__(self) -> None:
        self.by_pattern: dict[bytes, Listeners] = {}
        self._by_prefix: dict[int, dict[bytes, dict[bytes, Listeners]]] = {}
        """Length of the prefix → prefix → pattern → listeners."""
        self.held_bytes = 0
        """Memory of all patterns, without their names and their table, in bytes."""

    def listeners(self, pattern: bytes) -> Listeners:
        """Return the listeners of a pattern. A new pattern is added."""
        found = self.by_pattern.get(pattern)
        if found is None:
            found = self.by_pattern[pattern] = {}
            prefix = _literal_prefix(pattern)
            same_length = self._by_prefix.setdefault(len(prefix), {})
            if prefix not in same_length:
                self.held_bytes += _PREFIX_BYTES + text_bytes(prefix)
            same_length.setdefault(prefix, {})[pattern] = found
            self.held_bytes += _LISTENERS_BYTES + _PLACE_BYTES
        return found

    def drop(self, pattern: bytes) -> None:
        """Remove a pattern without listeners."""
        del self.by_pattern[pattern]
        prefix = _literal_prefix(pattern)
        same_length = self._by_prefix[len(prefix)]
        del same_length[prefix][pattern]
        self.held_bytes -= _LISTENERS_BYTES + _PLACE_BYTES
        if not same_length[prefix]:
            del same_length[prefix]
            self.held_bytes -= _PREFIX_BYTES + text_bytes(prefix)
        if not same_length:
            del self._by_prefix[len(prefix)]

    def matching(self, channel: bytes) -> Iterator[tuple[bytes, Listeners]]:
        """Yield the patterns that match ``channel``. A pattern that takes too long to compare
        matches nothing: the message may report a write, which can no longer be refused."""
        for length, same_length in self._by_prefix.items():
            for pattern, listeners in same_length.get(channel[:length], {}).items():
                try:
                    fits = matches(pattern, channel)
                except CommandError:
                    continue
                if fits:
                    yield pattern, listeners


class PubSub:
    """The subscriptions of all sessions of a node."""

    def __init__(
        self,
        keyspace: Keyspace,
        clients: Clients,
        traffic: Traffic,
        client_log: LimitedLog,
        faults: Faults,
    ) -> None:
        self.keyspace = keyspace
        self._clients = clients
        self._traffic = traffic
        self._client_log = client_log
        self._faults = faults
        self._most_unread = 0
        """The limit of rule 3 in bytes; 0 means unlimited."""
        self.channels: dict[bytes, Listeners] = {}
        self.shard_channels: dict[bytes, Listeners] = {}
        self.patterns = PatternIndex()

    def configure(self, config: ClientConfig) -> None:
        """Apply settings."""
        self._most_unread = config.client_output_buffer_limit.pubsub.hard

    # --- subscriptions --------------------------------------------------------------------------

    def subscribe(self, session: Session, kind: bytes, name: bytes) -> None:
        """Subscribe ``session`` to ``name``. Subscribing twice changes nothing."""
        own, memory = session.subscriptions, self._clients.memory
        if name in own.of(kind):
            return
        if kind == PATTERN:
            self.patterns.listeners(name)[session] = None
        else:
            if name not in self._of(kind):
                memory.held_bytes += _LISTENERS_BYTES
            self._of(kind).setdefault(name, {})[session] = None
        own.of(kind)[name] = None
        own.active = True
        own.held_bytes += text_bytes(name)
        memory.held_bytes += text_bytes(name)

    def unsubscribe(self, session: Session, kind: bytes, name: bytes) -> None:
        """Unsubscribe ``session`` from ``name``, if it is subscribed."""
        own, memory = session.subscriptions, self._clients.memory
        if name not in own.of(kind):
            return
        del own.of(kind)[name]
        own.held_bytes -= text_bytes(name)
        memory.held_bytes -= text_bytes(name)
        session.subscriptions.active = bool(own.channels or own.patterns or own.shard_channels)
        index = self._of(kind)
        del index[name][session]
        if not index[name]:
            if kind == PATTERN:
                self.patterns.drop(name)
            else:
                del index[name]
                memory.held_bytes -= _LISTENERS_BYTES

    def leave(self, session: Session) -> None:
        """Remove all subscriptions of ``session``, after RESET or when it is closed."""
        if session.subscriptions.active:
            for kind in (CHANNEL, PATTERN, SHARD):
                for name in list(session.subscriptions.of(kind)):
                    self.unsubscribe(session, kind, name)

    def tables_bytes(self) -> int:
        """Return the memory of the patterns and of the tables of names."""
        tables = (self.channels, self.shard_channels, self.patterns.by_pattern)
        return self.patterns.held_bytes + sum(map(table_bytes, tables))

    def _of(self, kind: bytes) -> dict[bytes, Listeners]:
        if kind == PATTERN:
            return self.patterns.by_pattern
        return self.shard_channels if kind == SHARD else self.channels

    # --- messages -------------------------------------------------------------------------------

    def publish(
        self,
        channel: bytes,
        message: bytes,
        *,
        sharded: bool = False,
        executing: Session | None = None,
    ) -> int:
        """Send ``message`` to all listeners. Return the number of their subscriptions that match. ``executing`` is
        the session whose command publishes, if any (rule 2)."""
        count = 0
        listeners = (self.shard_channels if sharded else self.channels).get(channel)
        if listeners:
            count = len(listeners)
            word = b"smessage" if sharded else b"message"
            self._send(listeners, (word, channel, message), executing)
        if not sharded and self.patterns.by_pattern:
            for pattern, fitting in self.patterns.matching(channel):
                count += len(fitting)
                self._send(fitting, (b"pmessage", pattern, channel, message), executing)
        return count

    def publish_events(self, executing: Session | None) -> None:
        """Publish the keyspace events since the last call, in order. An event that cannot be published is only
        logged, because the change that it reports has happened (faults.py, rule 5)."""
        keyspace = self.keyspace
        events = keyspace.events.copy()
        keyspace.events.clear()
        if not self.channels and not self.patterns.by_pattern:
            return
        wanted = keyspace.notified
        for db, event, key in events:
            try:
                if wanted & KEYSPACE:
                    self.publish(b"__keyspace@%d__:%b" % (db, key), event, executing=executing)
                if wanted & KEYEVENT:
                    self.publish(b"__keyevent@%d__:%b" % (db, event), key, executing=executing)
            except Exception as error:
                self._faults.record(error, "publishing a keyspace event")

    def _send(
        self, listeners: Listeners, items: tuple[bytes, ...], executing: Session | None
    ) -> None:
        body = b"%d\r\n" % len(items)
        body += b"".join(b"$%d\r\n%b\r\n" % (len(item), item) for item in items)
        hard = self._most_unread
        for session in listeners:
            if session.closing:
                continue
            out = session.output.messages(executing=session is executing)
            out += b"*" if session.resp == 2 else b">"
            out += body
            self._clients.wrote_to(session)
            if (
                hard
                and session.output.unsent + len(session.output.outbox) + len(session.output.pushes)
                > hard
            ):
                self._cut_off(session)

    def _cut_off(self, session: Session) -> None:
        """Send nothing more to a session, and close it (rule 3)."""
        session.closing = session.subscriptions.cut_off = True
        self._traffic.output_limit_disconnections += 1
        self._client_log.warning(
            "client %s (%s) is disconnected: it is subscribed and has not read %d bytes "
            "(client-output-buffer-limit)",
            session.id,
            session.client.address,
            session.output.unsent + len(session.output.outbox) + len(session.output.pushes),
        )


def _literal_prefix(pattern: bytes) -> bytes:
    """Return the literal prefix of a pattern: everything before the first wildcard."""
    for position, byte in enumerate(pattern):
        if byte in b"*?[\\":
            return pattern[:position]
    return pattern
