"""The role of a node: a primary with replicas, or a replica of a primary.

Rule 1. A replica changes its state only by the record groups of its primary. Commands that write are refused, and nothing
        happens by time: keys expire, delays end and seen times are recorded at the primary, and arrive as facts.
Rule 2. A promotion begins a new history, which remembers at which offset it left the former one (ADR 70). Replicas that
        have everything learn of it over the link; the others connect again.
Rule 3. With ``synchronous-replicas`` n, another replica may have what the former primary has answered, and this one not. So
        a promoted node answers nothing until n members follow it, and takes over what one of them has more. That finds
        every answered change if there are 2n replicas at most. A former primary that crashed without `appendfsync always`
        does not count: it may have lost what it answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

from headwater.config.config import Config
from headwater.errors import CommandError
from headwater.journal.format.manifest import FOREVER, StoreHistory
from headwater.journal.log.journal import Journal
from headwater.server.services.pausing import ClientPause
from headwater.server.services.records import TurnRecords
from headwater.server.services.replication.held import HeldReplies
from headwater.server.services.replication.link import Continuation
from headwater.server.services.replication.replicas import ConnectedReplicas, Replica
from headwater.server.services.state import NodeState
from headwater.server.services.turn_clock import TurnClock
from headwater.server.session.session import Session

log = logging.getLogger("headwater.server")

UNBLOCKED = CommandError(
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
)
NOREPLICAS = "NOREPLICAS Not enough good replicas to write."
GATHERS = (
    "NOREPLICAS this server was promoted and waits for its replicas, which may have changes that it lacks; INFO "
    "replication shows them"
)
MASTERDOWN = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
READONLY = "READONLY You can't write against a read only replica."


class PrimaryLink:
    """The link of a replica to its primary. Times are monotonic, in seconds."""

    def __init__(self, host: str, port: int, now: float, *, tail: bool = False) -> None:
        self.host = host
        self.port = port
        self.tail = tail
        """True for a link to a replica, from which a promoted node only takes over what it lacks (rule 3)."""
        self.state = "connect"
        """The state in Redis's words: ``connect``, ``connecting``, ``sync`` or ``connected``."""
        self.heard = now
        """Time at which the primary last sent something."""
        self.since = now
        """Time since which the link is up or down."""
        self.attempts = self.attempts_before = 0
        """Attempts to follow, and those before the link last went down."""
        self.down_s = 0.0
        """Seconds for which the link was down, before it was last up."""
        self.copied_bytes = self.copy_bytes = 0
        """Bytes that have arrived of a copy, and the size of its files as far as they have begun."""

    def up(self, now: float) -> None:
        """Note that the link is up."""
        self.down_s += now - self.since
        self.state, self.since = "connected", now

    def down(self, now: float) -> None:
        """Note that the link is down."""
        if self.state == "connected":
            self.since, self.attempts_before = now, self.attempts
        self.state = "connect"


class Failover:
    """A failover by hand (FAILOVER)."""

    def __init__(self, target: Replica | None, until: float, force: bool) -> None:
        self.target = target
        self.until = until
        self.force = force
        self.handing_over = False
        """True after the replica had everything: this node connects to it, and asks it to take over."""


class Replication:
    """The role of one node."""

    def __init__(
        self,
        state: NodeState,
        times: TurnClock,
        records: TurnRecords,
        replicas: ConnectedReplicas,
        pause: ClientPause,
    ) -> None:
        self.primary: PrimaryLink | None = None
        """The link to the primary; None if this node is one."""
        self.gathers = False
        """True after a promotion, until enough members follow (rule 3)."""
        self.tail: PrimaryLink | None = None
        """The link to the replica from which a promoted node takes over what it lacks, else None."""
        self.replicas = replicas
        self.held = HeldReplies(replicas)
        self.on_change: Callable[[], None] | None = None
        """Function that is called after a change of the primary. None for an embedded store, which follows none."""
        self.may_lack = False
        """True if this node may lack what it answered as a primary, before it crashed (rule 3)."""
        self._config = Config()
        self._followed: StoreHistory | None = None
        """The history of the primary that this node follows or followed last; None after a start and a promotion."""
        self.failover: Failover | None = None
        """The failover by hand that is under way."""
        self._pause = pause
        self._state = state
        self._times = times
        self._records = records

    @property
    def journal(self) -> Journal:
        """The journal. Raises `CommandError` without one."""
        if self._records.journal is None:
            raise CommandError(
                "ERR replication needs a journal: start the server with appendonly yes"
            )
        return self._records.journal

    def refusal(self, *, writes: bool, stale: bool, shows: bool) -> str | None:
        """Return the reason why a command that ``writes``, may see ``stale`` data, or ``shows`` keys may not run now; None if it
        may."""
        config = self._config
        if self.gathers:
            return GATHERS if shows else None
        if self.primary is not None:
            if writes:
                return READONLY
            if (
                not stale
                and not config.replica_serve_stale_data
                and self.primary.state != "connected"
            ):
                return MASTERDOWN
        elif writes and self._lacks_replicas():
            return NOREPLICAS
        return None

    def _lacks_replicas(self) -> bool:
        config, replicas = self._config, self.replicas
        if replicas.live_count < config.synchronous_replicas:
            return True
        least, lag = config.min_replicas_to_write, config.min_replicas_max_lag
        return least > 0 < lag and replicas.count_good(lag) < least

    def configure(self, config: Config) -> None:
        """Apply the settings."""
        self._config = config
        counts = config.min_replicas_to_write > 0 < config.min_replicas_max_lag
        self.held.require(config.synchronous_replicas, durable=config.journal_policy == "always")
        self._state.synchronous = self.primary is None and config.synchronous_replicas > 0
        self._state.counts_replicas = counts or config.synchronous_replicas > 0
        self._state.restrict()
        if config.synchronous_replicas:
            self.replicas.ask()
        elif self.gathers:
            self._take_tail(None)
            self.gathered()

    def load(self) -> None:
        """Begin with the journal. A store that was a replica's, and has no primary now, is promoted. With ``replicaof`` it is
        a replica before it answers anything or does anything by time."""
        if self._config.replicaof and self.primary is None and self.on_change is not None:
            host, port = self._config.replicaof.split()
            self.follow(host, int(port))
        follows = any(one.offset == FOREVER for one in self.own_history.left)
        always = self._config.journal_policy == "always"
        self.may_lack = self.journal.recovery.crashed and not always
        if not follows or self.primary is not None or self._config.replicaof:
            return
        try:
            self._become_primary(gathers=self._config.synchronous_replicas > 0)
        except CommandError as error:  # a full disk does not prevent a start
            log.warning("%s", error)
            catalog = self.journal.catalog  # written with the next change of MANIFEST
            catalog.history = self.own_history.begun(self.journal.offset)

    def follow(self, host: str, port: int) -> None:
        """Become a replica of the server at ``host`` and ``port``."""
        if self.on_change is None:
            raise CommandError(
                "ERR an embedded store has no replicas and follows no primary; use headwater serve"
            )
        _ = self.journal
        log.info("this server is now a replica of %s port %d", host, port)
        self._set_primary(PrimaryLink(host, port, self._times.monotonic()))
        self.replicas.disconnect(live=True)

    # --- failover by hand -----------------------------------------------------------------------

    def begin_failover(self, target: Replica | None, until: float, *, force: bool) -> None:
        """Hand over to ``target``, or to any replica, as soon as it has everything. Writes are paused meanwhile. At
        ``until`` (monotonic seconds), hand over anyway with ``force``, or give up."""
        self.failover = Failover(target, until, force)
        self._pause.begin(inf, everything=False)
        log.info("a failover begins: writes are paused until a replica has offset %d", self.offset)
        self._state.hands_over = True
        self.replicas.ask()

    def step_failover(self) -> None:
        """Hand over if a replica has everything, or the time is over. Called after each turn, when it is in the journal."""
        failover = self.failover
        if failover is None or failover.handing_over:
            return
        candidates = (
            [failover.target] if failover.target else list(self.replicas.by_session.values())
        )
        ready = [one for one in candidates if one.live and one.acked >= self.offset]
        over = self._times.monotonic() >= failover.until
        if over and not ready and failover.force and failover.target is not None:
            ready = [failover.target]
        if ready:
            failover.handing_over = True
            log.info(
                "handing over to %s port %d at offset %d",
                ready[0].address,
                ready[0].port,
                self.offset,
            )
            self.follow(ready[0].address, ready[0].port)
        elif over:
            self.end_failover("no replica had everything in time")

    def end_failover(self, reason: str = "") -> None:
        """End a failover: writes go on, here if it is given up for a ``reason``."""
        failover, self.failover = self.failover, None
        self._state.hands_over = False
        if failover is None:
            return
        if reason:
            log.warning("the failover is given up: %s", reason)
            if failover.handing_over:
                self._set_primary(None)
        self._pause.until = self._times.monotonic()

    @property
    def failover_state(self) -> str:
        """The state of a failover by hand, in Redis's words."""
        if self.failover is None:
            return "no-failover"
        return "failover-in-progress" if self.failover.handing_over else "waiting-for-sync"

    def promote(self, *, successor: Session | None = None) -> None:
        """Become a primary, if this node is a replica. ``successor`` is the connection of the former primary, which follows
        this node from now on; the other replicas connect again."""
        if self.primary is not None:
            gathers = successor is None and self._config.synchronous_replicas > 0
            self._become_primary(gathers=gathers, successor=successor)

    def _become_primary(self, *, gathers: bool, successor: Session | None = None) -> None:
        if gathers:
            self._set_primary(None, gathers=True)
            log.info(
                "this server is now a primary, and waits for its replicas at offset %d", self.offset
            )
            self.gathered()
            return
        self._begin_history()
        self._set_primary(None)
        self._announce(successor)

    def _begin_history(self) -> None:
        self._write_history(self.own_history.begun(self.journal.offset))
        self._followed = None
        log.info("this server is a primary from offset %d on", self.journal.offset)

    def _announce(self, successor: Session | None = None) -> None:
        """Tell the replicas in which history they are from this offset on."""
        journal = self.journal
        self.replicas.announce(Continuation(False, journal.seed, self.history, journal.offset))
        self.replicas.disconnect(successor)

    # --- a promotion with synchronous replicas (rule 3) -----------------------------------------

    def gathered(self) -> None:
        """Begin to answer if enough members follow. Called after each acknowledgement."""
        required = self._config.synchronous_replicas
        if not self.gathers or self.tail is not None:
            return
        if self.replicas.count_complete(self.offset) < required:
            return
        try:
            self._begin_history()
        except CommandError as error:  # tried again after the next acknowledgement
            log.warning("the promotion is not complete: %s", error)
            return
        self.gathers = self._state.replica = False
        self._state.restrict()
        self._announce()

    def lacks(self, replica: Replica, history: str, offset: int) -> bool:
        """Return whether a promoted node lacks what this replica has, and begin to take it over."""
        if not (self.gathers and self.own_history.precedes(history, offset, self.offset)):
            return False
        log.info(
            "taking over what %s port %d has up to offset %d", replica.address, replica.port, offset
        )
        self._take_tail(
            PrimaryLink(replica.address, replica.port, self._times.monotonic(), tail=True)
        )
        return True

    def took_over(self) -> None:
        """End the link to a replica that has nothing more."""
        self._take_tail(None)
        self.gathered()

    def _take_tail(self, tail: PrimaryLink | None) -> None:
        self.tail = tail
        if self.on_change is not None:
            self.on_change()

    @property
    def source(self) -> PrimaryLink | None:
        """The link over which changes arrive; None if there is none."""
        return self.primary or self.tail

    def _set_primary(self, primary: PrimaryLink | None, *, gathers: bool = False) -> None:
        """Change the role. What is held back for replicas is never sent (held.py, rule 3)."""
        self.primary, self.tail, self.gathers = primary, None, gathers
        self._state.replica = primary is not None or gathers
        self._config.replicaof = "" if primary is None else f"{primary.host} {primary.port}"
        self.held.drop()
        self.configure(self._config)
        if self.on_change is not None:
            self.on_change()

    @property
    def offset(self) -> int:
        """The offset of the store; 0 without a journal."""
        journal = self._records.journal
        return 0 if journal is None else journal.offset

    @property
    def history(self) -> StoreHistory:
        """The history that this node and its replicas are in: that of the primary, as soon as it is known."""
        return self._followed or self.own_history

    @property
    def own_history(self) -> StoreHistory:
        """The history of the store, which remembers those that it has left."""
        found = self.journal.history
        assert found is not None
        return found

    def adopt(self, history: StoreHistory) -> None:
        """Follow ``history`` from now on. A restart without a primary begins one of its own, where this store is then."""
        if history != self._followed:
            self.may_lack &= any(one.history == history.id for one in self.own_history.left)
            self._write_history(history.followed())
            self._followed = history
            self._announce()

    def _write_history(self, history: StoreHistory) -> None:
        """Make a history durable, before anything is written to it. Raises `CommandError` if the disk refuses it: without it a
        restart would continue another history."""
        catalog = self.journal.catalog
        assert catalog.manifest is not None, "an open journal has one"
        former, catalog.history = catalog.history, history
        try:
            catalog.replace(catalog.manifest)
        except OSError as error:
            catalog.history = former
            raise CommandError(
                f"MISCONF the history of the store cannot be written to MANIFEST: {error}. Make room on the disk"
            ) from error
