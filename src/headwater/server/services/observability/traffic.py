"""Statistics of a node's sockets, which its drivers maintain: bytes, reads and writes, rates.

A driver calls `Traffic.sample` once a second. The rates in INFO are those of the last whole second.
"""

from __future__ import annotations

from time import thread_time_ns
from typing import NamedTuple


class _Sample(NamedTuple):
    at: float
    commands: int
    received_bytes: int
    sent_bytes: int
    cycles: int
    cpu_ns: int


class Traffic:
    """The counters of a node's sockets. CONFIG RESETSTAT resets them."""

    def __init__(self) -> None:
        self.listeners: dict[str, str] = {}
        """The listeners as INFO shows them: ``listener0`` and so on."""
        self.supervised = "no"
        """The service manager as INFO shows it: ``no`` or ``systemd``."""
        self.reset(connections_seen=0, turns=0)

    def reset(self, *, connections_seen: int, turns: int) -> None:
        """Reset the counters. The node's counts of sessions and turns continue and are shown minus
        ``connections_seen`` and ``turns``."""
        self.connections_before = connections_seen
        self.turns_before = turns
        self.samples = 0
        self.cpu_ns_before = thread_time_ns()
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
        self.cycles_per_second = 0
        self.cpu_ns_a_cycle = 0
        self._last: _Sample | None = None

    def cycles(self, turns: int) -> int:
        """Return the number of times that the loop woke: for a turn, or to sample."""
        return turns - self.turns_before + self.samples

    def cpu_ns(self) -> int:
        """Return the processor time of this thread, which runs the loop, since the counters were reset."""
        return thread_time_ns() - self.cpu_ns_before

    def sample(self, at: float, commands: int, turns: int) -> None:
        """Update the rates. ``at`` is monotonic, in seconds; ``commands`` and ``turns`` are the totals so far."""
        self.samples += 1
        cycles, cpu_ns = self.cycles(turns), self.cpu_ns()
        now = _Sample(at, commands, self.received_bytes, self.sent_bytes, cycles, cpu_ns)
        before, self._last = self._last, now
        if before is not None and at > before.at:
            passed = at - before.at
            self.commands_per_second = round(max(0, commands - before.commands) / passed)
            self.received_bytes_per_second = (now.received_bytes - before.received_bytes) / passed
            self.sent_bytes_per_second = (now.sent_bytes - before.sent_bytes) / passed
            self.cycles_per_second = round((cycles - before.cycles) / passed)
            self.cpu_ns_a_cycle = (cpu_ns - before.cpu_ns) // (cycles - before.cycles)
