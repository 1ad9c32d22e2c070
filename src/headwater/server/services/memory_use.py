"""The memory that a node uses by its own account, and its limit (maxmemory).

    used = process at the start + state (engine/keyspace/memory_totals.py) + held by clients (ClientMemory)
                                   └ exact at each check             └ exact at each check
           + clients' buffers and tables, Lua, users, slow log
             └ measured every `_INTERVAL_NS`

Rule 1. Without a limit nothing is measured or compared for a command.
Rule 2. A check adds numbers that are kept anyway. Values that take longer to measure are measured again after
        `_CHECKS` checks or `_INTERVAL_NS`, so the account lags by a few MB at most.
Rule 3. Only a command that may take more memory (the flag ``denyoom``) is refused. Reads, settlements,
        deletions and trims continue.
Rule 4. Entries that could be compressed or stored never cause a refusal. With a limit, hot entries may take half
        of the memory that the limit leaves. When memory is tight, nothing stays hot, and turns wait for the disk
        (sealer.py, rule 6). A command that would be refused first frees memory (`relieve`).

Source: Redis, server.c (processCommand) and evict.c (getMaxmemoryState).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Sequence

from headwater.common import limits
from headwater.config.config import Config
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.keyspace.memory_totals import tables_bytes
from headwater.server.services.turn_clock import TurnClock
from headwater.server.session.clients import Clients

OOM = "OOM command not allowed when used memory > 'maxmemory'."

_CHECKS = 512
"""Number of checks after which the tables of keys are measured again, because they grow by doubling."""

_INTERVAL_NS = 100_000_000
_CLIENT_NS = 10_000_000
"""Time by which each hundred clients lengthen the interval, in ns, so that measuring takes little of the time."""

_HUNDRED = 100

_HOT_SHARE, _LAG_SHARE, _RESERVE_SHARE = 2, 4, 8
"""Divisors of the memory that a limit leaves beyond the process itself: for hot entries, for entries that wait for
compression, and for the zone below the limit in which memory is tight. The rest is for other state and clients."""

_SQUEEZED_AT_ONCE = 4
"""Maximum number of blocks (0.6 ms with zstd, 2 ms with zlib) that a command compresses before it is refused."""


class MemoryUse:
    """The memory of one node. ``limit`` is maxmemory in bytes, 0 for none. Each of ``others`` returns the
    memory of a service."""

    def __init__(
        self,
        keyspace: Keyspace,
        times: TurnClock,
        clients: Clients,
        others: Sequence[Callable[[], int]],
    ) -> None:
        self.keyspace = keyspace
        self.limit = 0
        self.peak = 0
        """Maximum of all measurements, in bytes."""
        self.was_exceeded = False
        """True if the limit was exceeded when the current command began."""
        self.is_tight = False
        """True if the limit was nearly exceeded at the last check."""
        self.is_pressing = False
        """True if a command that may take more memory ran while memory was tight, since the sealer last waited."""
        self._clients = clients
        self._held = clients.memory
        self._services = others
        self._times = times
        self._ample = 0
        self._tables = 0
        self._others = 0
        self._checks = 0
        self._measured_ns = 0

    def configure(self, config: Config) -> None:
        """Apply settings."""
        self.limit = config.maxmemory
        self._ample = self.limit - self._room() // _RESERVE_SHARE
        self.was_exceeded = False
        self._checks = self._measured_ns = 0

    def configure_sealing(self, config: Config) -> None:
        """Let entries stay uncompressed as far as settings and the limit allow (rule 4)."""
        sealing = self.keyspace.sealing
        hot, lag = config.stream_hot_bytes, limits.SEALING_LAG_BYTES
        if self.limit:
            hot = min(hot, self._room() // _HOT_SHARE)
            lag = min(lag, self._room() // _LAG_SHARE)
        sealing.lag = lag
        sealing.configure(hot, config.stream_compression)
        self.is_tight = self.is_pressing = False

    def used(self) -> int:
        """Measure everything, and return the used memory in bytes."""
        self._measure_others()
        self._tables = tables_bytes(self.keyspace)
        return self._sum()

    def exceeded(self) -> bool:
        """Return whether more than the limit is used. Also notes whether memory is tight."""
        self._checks -= 1
        if self._checks < 0:
            self._checks = _CHECKS
            self._tables = tables_bytes(self.keyspace)
        if self._times.began_ns >= self._measured_ns:
            self._measure_others()
        used = self._sum()
        tight = used > self._ample
        if tight:
            self.is_pressing = True
        if tight != self.is_tight:
            self.is_tight = tight
            self.keyspace.sealing.press(on=tight)
        self.was_exceeded = used > self.limit
        return self.was_exceeded

    def relieve(self) -> bool:
        """Free memory of entries: close those that are open for reading, and compress a few blocks. Return
        whether that was enough."""
        sealing = self.keyspace.sealing
        sealing.bodies.close_all()
        sealing.squeeze(_SQUEEZED_AT_ONCE)
        return not self.exceeded()

    def lacking(self) -> int:
        """Return the number of bytes to free: down to the limit or, if less is used, until memory is not tight."""
        used = self._sum()
        return used - (self.limit if used > self.limit else self._ample)

    def _room(self) -> int:
        """Return the number of bytes that the limit leaves beyond the process itself."""
        return max(0, self.limit - STARTUP_BYTES)

    def _sum(self) -> int:
        sealing = self.keyspace.sealing
        entries = sealing.memory_bytes()
        used: int = self._others + self._tables + self.keyspace.memory.total() + entries
        used += self._held.held_bytes
        self.peak = max(self.peak, used)
        return used

    def _measure_others(self) -> None:
        """Measure the memory outside the state, and set the time of the next measurement."""
        self._tables = tables_bytes(self.keyspace)
        self._others = STARTUP_BYTES + self._clients.memory_bytes()
        for measure in self._services:
            self._others += measure()
        hundreds = len(self._clients.sessions) // _HUNDRED
        self._measured_ns = self._times.began_ns + _INTERVAL_NS + hundreds * _CLIENT_NS


def resident_bytes() -> int:
    """Return the resident memory of the process. Without Linux's /proc return the maximum so far."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 (called for each scrape, so it is cheap)
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def client_bytes(clients: Clients) -> int:
    """Return the memory of all clients: the bytes that they hold, and their buffers, including the output that
    they have not taken."""
    return clients.memory_bytes() + clients.memory.held_bytes


STARTUP_BYTES = resident_bytes()
"""Memory of the process before it opened a store; if embedded, that of the host program."""
