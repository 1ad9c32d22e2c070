"""The subscriptions of one client, and the commands that it may send while it has some."""

from __future__ import annotations

from headwater.engine.accounts.memory_account import table_bytes
from headwater.errors import CommandError

CHANNEL, PATTERN, SHARD = b"", b"p", b"s"
"""The kinds of subscriptions, as prefixes of their commands: subscribe, psubscribe, ssubscribe."""

NOT_WHILE_SUBSCRIBED = (
    "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
    "allowed in this context"
)

_WHILE_SUBSCRIBED = frozenset(
    {
        *("subscribe", "psubscribe", "ssubscribe"),
        *("unsubscribe", "punsubscribe", "sunsubscribe"),
        *("ping", "quit", "reset"),
    }
)


class Subscriptions:
    """The subscriptions of a session. `headwater.server.services.pubsub.PubSub` changes them."""

    def __init__(self) -> None:
        self.channels: dict[bytes, None] = {}
        self.patterns: dict[bytes, None] = {}
        self.shard_channels: dict[bytes, None] = {}
        self.held_bytes = 0
        """Memory of the names, in bytes."""
        self.active = False
        """True if the client has a channel or a pattern."""
        self.monitoring = False
        """True if this client receives every command that runs (MONITOR)."""
        self.cut_off = False
        """True if the client left too much unread and is sent nothing more (pubsub.py, rule 3)."""

    def of(self, kind: bytes) -> dict[bytes, None]:
        """Return the names of one kind."""
        if kind == PATTERN:
            return self.patterns
        return self.shard_channels if kind == SHARD else self.channels

    def tables_bytes(self) -> int:
        """Return the memory of the tables of names."""
        if not self.active:
            return 0
        return sum(map(table_bytes, (self.channels, self.patterns, self.shard_channels)))

    def count(self, kind: bytes) -> int:
        """Return the number of subscriptions for a confirmation, in which channels and patterns count together."""
        if kind == SHARD:
            return len(self.shard_channels)
        return len(self.channels) + len(self.patterns)


def check_context(resp: int, name: str) -> None:
    """Check that a client with subscriptions may send the command ``name`` (as in its table row).
    In RESP2, most commands are not allowed: the client could not tell replies from messages. Raises
    `CommandError`."""
    if resp == 2 and name not in _WHILE_SUBSCRIBED:
        raise CommandError(NOT_WHILE_SUBSCRIBED.format(name=name))
