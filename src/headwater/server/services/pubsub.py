"""Who listens to what, and what each of them hears.

    PUBLISH, keyspace events ──▶ PubSub.publish ──▶ outboxes of the listeners ──▶ released by the commit

Rule 1. A message changes no state: it is no fact and stands in no journal. It stands in the outboxes
        of the turn that caused it, so nobody hears of a write that is not durable yet (law 4).
Rule 2. What a command publishes reaches its own client behind the command's reply, with EXEC behind
        all of them: until then it stands in ``Session.pushes``.
Rule 3. A listener that leaves more unread than ``client-output-buffer-limit pubsub`` allows gets
        nothing more and is disconnected.
Rule 4. Publishing costs what is heard: the listeners of the channel, and those patterns whose literal
        beginning is the channel's.

Source: redis.io, Redis Pub/Sub; Redis, pubsub.c and notify.c.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.commands.globs import matches
from headwater.engine.events import KEYEVENT, KEYSPACE
from headwater.errors import CommandError
from headwater.server.session.subscriptions import CHANNEL, PATTERN, SHARD

if TYPE_CHECKING:
    from headwater.config.clients import ClientConfig
    from headwater.engine.keyspace import Keyspace
    from headwater.log_limit import LimitedLog
    from headwater.server.services.observability.traffic import Traffic
    from headwater.server.session.clients import Clients
    from headwater.server.session.session import Session

Listeners = dict["Session", None]


class PatternIndex:
    """Who listens to which pattern, found by the beginning that has no wildcard in it.

    >>> index = PatternIndex()
    >>> index.listeners(b"orders:*").update({})
    >>> [pattern for pattern, _ in index.matching(b"orders:7")]
    [b'orders:*']
    """

    def __init__(self) -> None:
        self.by_pattern: dict[bytes, Listeners] = {}
        self._by_beginning: dict[int, dict[bytes, dict[bytes, Listeners]]] = {}
        """Length of the beginning → beginning → patterns."""

    def listeners(self, pattern: bytes) -> Listeners:
        """Those of one pattern, which is entered when it is new."""
        found = self.by_pattern.get(pattern)
        if found is None:
            found = self.by_pattern[pattern] = {}
            beginning = _beginning(pattern)
            same_length = self._by_beginning.setdefault(len(beginning), {})
            same_length.setdefault(beginning, {})[pattern] = found
        return found

    def drop(self, pattern: bytes) -> None:
        """Nobody listens to that pattern any more."""
        del self.by_pattern[pattern]
        beginning = _beginning(pattern)
        same_length = self._by_beginning[len(beginning)]
        del same_length[beginning][pattern]
        if not same_length[beginning]:
            del same_length[beginning]
        if not same_length:
            del self._by_beginning[len(beginning)]

    def matching(self, channel: bytes) -> Iterator[tuple[bytes, Listeners]]:
        """The patterns that fit ``channel``. One that takes too long to compare fits nothing: what
        is published may be the consequence of a write, which cannot be refused any more."""
        for length, same_length in self._by_beginning.items():
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
        self, keyspace: Keyspace, clients: Clients, traffic: Traffic, client_log: LimitedLog
    ) -> None:
        self.keyspace = keyspace
        self._clients = clients
        self._traffic = traffic
        self._client_log = client_log
        self._most_unread = 0
        """Rule 3's limit in bytes; 0 for none."""
        self.channels: dict[bytes, Listeners] = {}
        self.shard_channels: dict[bytes, Listeners] = {}
        self.patterns = PatternIndex()

    def configure(self, config: ClientConfig) -> None:
        """Put settings in force."""
        self._most_unread = config.client_output_buffer_limit.pubsub.hard

    # --- who listens ----------------------------------------------------------------------------

    def subscribe(self, session: Session, kind: bytes, name: bytes) -> None:
        """``session`` listens to ``name`` from now on; once more changes nothing."""
        if kind == PATTERN:
            self.patterns.listeners(name)[session] = None
        else:
            self._of(kind).setdefault(name, {})[session] = None
        session.subscriptions.of(kind)[name] = None
        session.subscriptions.active = True

    def unsubscribe(self, session: Session, kind: bytes, name: bytes) -> None:
        """``session`` listens to ``name`` no longer, if it did."""
        own = session.subscriptions
        if name not in own.of(kind):
            return
        del own.of(kind)[name]
        session.subscriptions.active = bool(own.channels or own.patterns or own.shard_channels)
        index = self._of(kind)
        del index[name][session]
        if not index[name]:
            if kind == PATTERN:
                self.patterns.drop(name)
            else:
                del index[name]

    def leave(self, session: Session) -> None:
        """``session`` listens to nothing any more (RESET, or it is gone)."""
        if session.subscriptions.active:
            for kind in (CHANNEL, PATTERN, SHARD):
                for name in list(session.subscriptions.of(kind)):
                    self.unsubscribe(session, kind, name)

    def _of(self, kind: bytes) -> dict[bytes, Listeners]:
        if kind == PATTERN:
            return self.patterns.by_pattern
        return self.shard_channels if kind == SHARD else self.channels

    # --- what they hear -------------------------------------------------------------------------

    def publish(
        self,
        channel: bytes,
        message: bytes,
        *,
        sharded: bool = False,
        executing: Session | None = None,
    ) -> int:
        """Give ``message`` to whoever listens, and count them; ``executing`` is the session whose
        command this is, if it is one's (rule 2)."""
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
        """Publish what happened to keys since the last time, in that order."""
        keyspace = self.keyspace
        events = keyspace.events.copy()
        keyspace.events.clear()
        if not self.channels and not self.patterns.by_pattern:
            return
        wanted = keyspace.notified
        for db, event, key in events:
            if wanted & KEYSPACE:
                self.publish(b"__keyspace@%d__:%b" % (db, key), event, executing=executing)
            if wanted & KEYEVENT:
                self.publish(b"__keyevent@%d__:%b" % (db, event), key, executing=executing)

    def _send(
        self, listeners: Listeners, items: tuple[bytes, ...], executing: Session | None
    ) -> None:
        body = b"%d\r\n" % len(items)
        body += b"".join(b"$%d\r\n%b\r\n" % (len(item), item) for item in items)
        hard = self._most_unread
        for session in listeners:
            if session.closing:
                continue
            out = session.output.pushes if session is executing else session.output.outbox
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
        """Rule 3: what it has by now is all that it gets."""
        session.closing = session.subscriptions.cut_off = True
        self._traffic.output_limit_disconnections += 1
        self._client_log.warning(
            "client %s (%s) is disconnected: it listens and has not read %d bytes "
            "(client-output-buffer-limit)",
            session.id,
            session.client.address,
            session.output.unsent + len(session.output.outbox) + len(session.output.pushes),
        )


def _beginning(pattern: bytes) -> bytes:
    """What every channel that fits begins with: all before the first wildcard."""
    for position, byte in enumerate(pattern):
        if byte in b"*?[\\":
            return pattern[:position]
    return pattern
