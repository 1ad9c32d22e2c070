"""What the drivers of a node see and the node does not: bytes, sockets, rates.

A driver calls `Traffic.sample` once a second; the rates of INFO are those of the last whole second.
"""

from __future__ import annotations

from typing import NamedTuple


class _Sample(NamedTuple):
    at: float
    commands: int
    received_bytes: int
    sent_bytes: int


class Traffic:
    """Counters of a node's sockets; CONFIG RESETSTAT sets them to 0."""

    def __init__(self) -> None:
        self.listeners: dict[str, str] = {}
        """What INFO says of where is listened: ``listener0``, and so on."""
        self.supervised = "no"
        """What INFO says of who is notified: ``no`` or ``systemd``."""
        self.reset(connections_seen=0)

    def reset(self, *, connections_seen: int) -> None:
        """Begin to count anew; the node's own counter goes on and is shown less this."""
        self.connections_before = connections_seen
        self.received_bytes = 0
        self.sent_bytes = 0
        self.reads = 0
        self.writes = 0
        self.rejected_connections = 0
        self.input_limit_disconnections = 0
        self.output_limit_disconnections = 0
        self.commands_per_second = 0
        self.received_bytes_per_second = 0.0
        self.sent_bytes_per_second = 0.0
        self._last: _Sample | None = None

    def sample(self, at: float, commands: int) -> None:
        """Another second is over: ``at`` monotonic seconds, ``commands`` had run in all."""
        now = _Sample(at, commands, self.received_bytes, self.sent_bytes)
        before, self._last = self._last, now
        if before is not None and at > before.at:
            passed = at - before.at
            self.commands_per_second = round(max(0, commands - before.commands) / passed)
            self.received_bytes_per_second = (now.received_bytes - before.received_bytes) / passed
            self.sent_bytes_per_second = (now.sent_bytes - before.sent_bytes) / passed
