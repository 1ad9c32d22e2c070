"""Statistics of the commands that ran, and the recording of slow or monitored ones.

    run ─▶ statistics of the command (INFO commandstats)
           ─▶ `Observer.record`, if it took long or all commands are recorded:
                  slow log · latency events · histogram · MONITOR

Rule 1. An ordinary command costs two readings of the clock and one comparison. With slow log,
        latency-tracking and latency-monitor-threshold off it costs one comparison and the counting.
Rule 2. No output contains a password (`headwater.server.services.observability.redaction`).
Rule 3. When a command is recorded, it has run or will run: a failure of `record`, `blocks` and `show_script` is
        logged, and does not affect the command (`headwater.server.services.faults`, rule 5).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

from headwater.commands.dispatch import KNOWN_COUNT, KnownCommand
from headwater.commands.table import COMMANDS, Command
from headwater.common.limits import MAX_ERROR_CODE_BYTES, MAX_ERROR_CODES
from headwater.config.execution import ExecutionConfig
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.server.services.faults import Faults
from headwater.server.services.observability.latency import (
    COMMAND,
    FAST_COMMAND,
    Collections,
    Histogram,
    LatencyMonitor,
)
from headwater.server.services.observability.monitors import Monitors
from headwater.server.services.observability.redaction import shown_values
from headwater.server.services.observability.slowlog import OFF, SlowLog, cut_values, first_values
from headwater.server.session.clients import Clients
from headwater.server.session.session import Session

_NEVER_NS = 2**63 - 1

log = logging.getLogger("headwater.server")

_DISABLED = "ERRORSTATS_DISABLED"
"""Code that replaces all others if a client causes too many different codes."""


class CountedError(CommandError):
    """An error that a script passes on and that was counted in statistics where it occurred."""


class CommandStatistics:
    """The statistics of a command in INFO commandstats."""

    def __init__(self) -> None:
        self.calls = 0
        self.nanoseconds = 0
        self.rejected = 0
        """Number of calls that were rejected before they ran: arity, ACL, not allowed in a transaction and the like."""
        self.failed = 0
        self.histogram: Histogram | None = None


class Observer:
    """The statistics, logs and monitors of a node."""

    def __init__(self, config: ExecutionConfig, clients: Clients, faults: Faults) -> None:
        self._faults = faults
        self.commands: defaultdict[bytes, CommandStatistics] = defaultdict(CommandStatistics)
        """Statistics by the command's full name in upper case: ``CONFIG|SET``."""
        self._numbered: list[CommandStatistics | None] = [None] * KNOWN_COUNT
        """Statistics by the command's number; None until a command is used."""
        self.errors: dict[str, int] = {}
        """Number of error replies by their code, or only `_DISABLED`."""
        self.error_count = 0
        self.forgotten_codes = 0
        """Number of dropped error codes, which Redis counts as freed lazily."""
        self.slowlog = SlowLog(config.slowlog_max_len)
        self.latency = LatencyMonitor()
        self.collections = Collections()
        self.monitors = Monitors(clients)
        self.timing = False
        """True if commands are timed."""
        self.record_ns = _NEVER_NS
        """Duration in ns above which `record` is called for a command."""
        self.times_commits = False
        """True if commits of the journal are timed (latency-monitor-threshold)."""
        self.tracks = False
        """True if durations are recorded (latency-tracking)."""
        self.expired_before = 0

    def configure(self, config: ExecutionConfig) -> None:
        """Apply settings."""
        self.slowlog.threshold_us = config.slowlog_log_slower_than
        self.slowlog.max_entries = config.slowlog_max_len
        self.slowlog.trim()
        self.latency.threshold_ms = config.latency_monitor_threshold
        self.tracks = config.latency_tracking
        self.times_commits = self.latency.threshold_ms > 0
        self.update_recording()

    def update_recording(self) -> None:
        """Choose the commands to be timed and recorded, after a change of settings or monitors."""
        bounds = [_NEVER_NS]
        if self.slowlog.threshold_us != OFF:
            bounds.append(self.slowlog.threshold_us * 1000 - 1)
        if self.latency.threshold_ms:
            bounds.append(self.latency.threshold_ms * 1_000_000 - 1)
        if self.tracks or self.monitors:
            bounds.append(-1)
        self.record_ns = min(bounds)
        self.timing = len(bounds) > 1

    def start_monitoring(self, session: Session) -> None:
        """Send every command to a client from now on."""
        session.subscriptions.monitoring = True
        self.monitors.add(session)
        self.update_recording()

    def stop_monitoring(self, session: Session) -> None:
        """Stop sending commands to a client, after RESET or when the client is closed."""
        if session.subscriptions.monitoring:
            session.subscriptions.monitoring = False
            self.monitors.discard(session)
            self.update_recording()

    # --- commands -------------------------------------------------------------------------------

    def statistics_of(self, known: KnownCommand) -> CommandStatistics:
        """Return the statistics of a command. They are created on first use."""
        statistics = self._numbered[known.number]
        if statistics is None:
            statistics = self._numbered[known.number] = self.commands[known.name]
        return statistics

    def record(self, session: Session, name: bytes, arguments: Arguments, nanoseconds: int) -> None:
        """Record a command that has ended: histogram, latency event, slow log, MONITOR."""
        try:
            self._record(session, name, arguments, nanoseconds)
        except Exception as error:
            self._faults.record(error, "recording a command")

    def _record(
        self, session: Session, name: bytes, arguments: Arguments, nanoseconds: int
    ) -> None:
        row, wall_ms = row_of(name), session.call.wall_ms()
        if self.tracks:
            statistics = self.commands[name]
            if statistics.histogram is None:
                statistics.histogram = Histogram()
            statistics.histogram.add(nanoseconds)
        if self.latency.threshold_ms:
            event = FAST_COMMAND if "fast" in row.flags else COMMAND
            self.latency.add(event, time=wall_ms // 1000, ms=nanoseconds // 1_000_000)
        slowlog = self.slowlog
        microseconds = nanoseconds // 1000
        if microseconds >= slowlog.threshold_us != OFF and "skip_slowlog" not in row.flags:
            address, client_name = session.client.address.encode(), session.client.name
            if self.monitors.source is not None:  # Redis runs a script's commands as another client
                address = client_name = b""
            values = cut_values(shown_values(name, first_values(arguments)), arguments.count)
            slowlog.add(wall_ms // 1000, microseconds, values, address, client_name)
        if self.monitors and not session.blocked:
            self.monitors.feed(session, row, shown_values(name, arguments.values()), wall_ms)

    def failed(
        self,
        session: Session,
        name: bytes,
        arguments: Arguments,
        nanoseconds: int,
        error: CommandError,
    ) -> None:
        """Record a command that ran and ended with an error."""
        self.count_error(error)
        session.commands += 1
        statistics = self.commands[name]
        statistics.calls += 1
        statistics.failed += 1
        statistics.nanoseconds += nanoseconds
        if nanoseconds > self.record_ns:
            self.record(session, name, arguments, nanoseconds)

    def blocks(self, session: Session, name: bytes, arguments: Arguments, nanoseconds: int) -> None:
        """Record a command that waits. Monitors see the command now; it is counted when it ends."""
        session.spent_ns = nanoseconds
        if self.monitors and not session.blocked:
            try:
                values = shown_values(name, arguments.values())
                self.monitors.feed(session, row_of(name), values, session.call.wall_ms())
            except Exception as error:
                self._faults.record(error, "recording a command that waits")

    def show_script(self, session: Session, arguments: Arguments) -> None:
        """Show monitors a command that runs a script, before the commands of the script."""
        if self.monitors:
            try:
                self.monitors.send(session, arguments.values(), session.call.wall_ms())
            except Exception as error:
                self._faults.record(error, "recording a script")

    def commit_lasted(self, event: str, nanoseconds: int, wall_ms: int) -> None:
        """Record the duration of a commit as a latency event."""
        try:
            self.latency.add(event, time=wall_ms // 1000, ms=nanoseconds // 1_000_000)
        except Exception as error:
            self._faults.record(error, "recording a commit")

    def replied(self, name: bytes, errors: Sequence[CommandError]) -> None:
        """Record errors in the reply of a command that ran. As in Redis, all new errors together count as one
        failure, and so does each error that was counted elsewhere."""
        passed_on = [error for error in errors if isinstance(error, CountedError)]
        for error in errors:
            self.count_error(error)
        self.commands[name].failed += len(passed_on) + (len(passed_on) < len(errors))

    def rejected(self, arguments: Arguments, error: CommandError) -> None:
        """Record a command that was rejected before it ran. An unknown command has no statistics."""
        self.count_error(error)
        name = full_name(arguments)
        if name is not None:
            self.commands[name].rejected += 1

    def stopped_waiting(self, session: Session, arguments: Arguments, *, failed: bool) -> None:
        """Record a blocked command that ends without being run again."""
        name = full_name(arguments)
        assert name is not None, "only known commands wait"
        session.commands += 1
        statistics = self.commands[name]
        statistics.calls += 1
        statistics.failed += failed
        statistics.nanoseconds += session.spent_ns
        if session.spent_ns > self.record_ns:
            self.record(session, name, arguments, session.spent_ns)

    def count_error(self, error: CommandError) -> None:
        """Count an error reply by its code, unless it was counted where it occurred."""
        if isinstance(error, CountedError):
            return
        self.error_count += 1
        first = str(error)[: MAX_ERROR_CODE_BYTES + 1].replace("\r", " ").replace("\n", " ")
        code, space, _ = first.partition(" ")
        code = code if space else "ERR"
        if _DISABLED not in self.errors:
            self.errors[code] = self.errors.get(code, 0) + 1
            if len(self.errors) > MAX_ERROR_CODES:
                del self.errors[code]
                self.forgotten_codes += MAX_ERROR_CODES
                log.warning(
                    "Errorstats stopped adding new errors because the number of errors reached the limit (%d). "
                    "Current errors code list: %s",
                    MAX_ERROR_CODES,
                    ", ".join(self.errors),
                )
                self.errors = {_DISABLED: 1}

    # --- statistics -----------------------------------------------------------------------------

    def reset(self, *, expired: int) -> None:
        """Reset the statistics (CONFIG RESETSTAT). ``expired`` is the number of expired keys so far."""
        self.expired_before = expired
        self.commands.clear()
        self._numbered = [None] * KNOWN_COUNT
        self.errors.clear()
        self.error_count = self.forgotten_codes = 0
        self.collections.reset()

    def commands_processed(self) -> int:
        """Return the number of commands that have run, including those within EXEC."""
        return sum(statistics.calls for statistics in self.commands.values())


def row_of(name: bytes) -> Command:
    """Return the row of ``XADD`` or ``XGROUP|CREATE``."""
    container, bar, word = name.partition(b"|")
    row = COMMANDS[container]
    return row.subcommands[word] if bar else row


def full_name(arguments: Arguments) -> bytes | None:
    """Return the name of the command of a request, including its subcommand; None if one of them
    does not exist."""
    if not arguments.count:
        return None
    name = arguments.token(0)
    row = COMMANDS.get(name)
    if row is None:
        return None
    if row.subcommands and arguments.count > 1:
        word = arguments.token(1)
        return name + b"|" + word if word in row.subcommands else None
    return name
