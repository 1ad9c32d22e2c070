"""What one client listens to, and which commands it may send meanwhile."""

from __future__ import annotations

from headwater.errors import CommandError

CHANNEL, PATTERN, SHARD = b"", b"p", b"s"
"""The kinds of subscriptions, by what their words begin with: subscribe, psubscribe, ssubscribe."""

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
    """What one session listens to; `headwater.server.services.pubsub.PubSub` changes it."""

    def __init__(self) -> None:
        self.channels: dict[bytes, None] = {}
        self.patterns: dict[bytes, None] = {}
        self.shard_channels: dict[bytes, None] = {}
        self.active = False
        """Whether there is any channel or pattern."""
        self.monitoring = False
        """This client is shown every command that runs (MONITOR)."""
        self.cut_off = False
        """It has left too much unread and is sent nothing more (pubsub.py, rule 3)."""

    def of(self, kind: bytes) -> dict[bytes, None]:
        """The names of one kind."""
        if kind == PATTERN:
            return self.patterns
        return self.shard_channels if kind == SHARD else self.channels

    def count(self, kind: bytes) -> int:
        """The number in the confirmation of a subscription: channels and patterns count together."""
        if kind == SHARD:
            return len(self.shard_channels)
        return len(self.channels) + len(self.patterns)


def check_context(resp: int, name: str) -> None:
    """Refuse the command ``name`` (as its row has it) to a client that listens and reads RESP2
    (``resp``): its replies could not be told from messages. Raises `CommandError`."""
    if resp == 2 and name not in _WHILE_SUBSCRIBED:
        raise CommandError(NOT_WHILE_SUBSCRIBED.format(name=name))
