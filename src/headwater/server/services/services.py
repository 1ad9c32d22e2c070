"""All services of a node, which its sessions share.

    call ── the command's arguments, database and reply
    session ── its client
    services ── everything else

Rule 1. A service receives the services that it depends on in its constructor. `Services` as a whole
        is passed to the functions of commands, to `Execution`, and to code that concerns most of the
        services: INFO, DEBUG RELOAD, garbage collection.
Rule 2. No service depends on the node.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from random import randrange

from headwater.commands.call import Call
from headwater.common import limits
from headwater.common.clock import Clock
from headwater.common.log_limit import LimitedLog
from headwater.config.config import Config
from headwater.engine.accounts.memory_account import sampled, text_bytes
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.journal.log.journal import Journal
from headwater.persistence.source import SegmentSource
from headwater.resp.replies import ReplyWriter
from headwater.server.services.acl.access import AccessControl
from headwater.server.services.acl.authorization import Authorization
from headwater.server.services.acl.login_delays import LoginDelays
from headwater.server.services.blocking import BlockedClients
from headwater.server.services.client_list import describe
from headwater.server.services.faults import Faults
from headwater.server.services.memory_use import MemoryUse
from headwater.server.services.observability.observer import Observer
from headwater.server.services.observability.traffic import Traffic
from headwater.server.services.offloading import Offloading
from headwater.server.services.pausing import ClientPause
from headwater.server.services.pubsub import PubSub
from headwater.server.services.records import TurnRecords
from headwater.server.services.replication.replicas import ConnectedReplicas
from headwater.server.services.replication.replication import Replication
from headwater.server.services.runner import Runner
from headwater.server.services.scripting.cache import Scripts
from headwater.server.services.state import NodeState
from headwater.server.services.storage.storage import Storage
from headwater.server.services.turn_clock import TurnClock
from headwater.server.services.watching import Watches
from headwater.server.session.clients import Clients
from headwater.server.session.session import Session


class Services:
    """The services of one node, which creates this object. Without a journal (`load`) nothing is
    stored."""

    rebind: Callable[[Config], None] | None = None
    """Function that listens on the addresses of changed settings; raises `ListenError`. None without listeners."""

    def __init__(
        self,
        keyspace: Keyspace,
        config: Config,
        clock: Clock,
        access: AccessControl,
        lock: threading.RLock,
    ) -> None:
        self.keyspace = keyspace
        self.config = config
        self.access = access
        self.records = TurnRecords(keyspace.facts)
        self.times = TurnClock(clock)
        self.state = NodeState(self.times.now())
        self.storage = Storage(config, self.state, self.times, self.records, lock)
        self.clients = Clients(config)
        self.traffic = Traffic()
        self.client_log = LimitedLog(
            logging.getLogger("headwater.server"), monotonic=clock.monotonic
        )
        self.faults = Faults(self.state, self.records, self.times, self.client_log)
        self.watches = Watches(keyspace, self.clients.memory)
        self.scripts = Scripts()
        self.pubsub = PubSub(keyspace, self.clients, self.traffic, self.client_log, self.faults)
        self.observer = Observer(config, self.clients, self.faults)
        self.runner = Runner()
        """Runs commands for EXEC, scripts and unblocked clients. Unusable until `run_with` replaces it."""
        logins = LoginDelays(self.times, self.client_log)
        pause = ClientPause(self.scripts)
        replicas = ConnectedReplicas(self.records, self.times, lock)
        self.replication = Replication(self.state, self.times, self.records, replicas, pause)
        offloading = Offloading(
            self.state,
            self.times,
            self.records,
            self.pubsub,
            self.observer,
            self.faults,
            pause,
        )
        self.blocked = BlockedClients(
            keyspace,
            self.times,
            self.records,
            self.clients,
            self.observer,
            logins,
            offloading,
        )
        self.memory = MemoryUse(keyspace, self.times, self.clients, self._measures())
        shown = partial(describe, times=self.times, blocked=self.blocked, watches=self.watches)
        self.authorization = Authorization(access, logins, self.times, shown)
        self.adopt(config)

    def _measures(self) -> tuple[Callable[[], int], ...]:
        """Return a function for each service that holds much memory, which measures it."""
        return (
            self.scripts.memory_bytes,
            self.access.memory_bytes,
            self.observer.slowlog.memory_bytes,
            self.watches.tables_bytes,
            self.pubsub.tables_bytes,
            self.blocked.waiting.tables_bytes,
        )

    def run_with(self, runner: Runner) -> None:
        """Run commands of EXEC, scripts and unblocked clients with ``runner``."""
        self.runner = runner
        self.blocked.run_with(runner)

    def adopt(self, config: Config) -> None:
        """Apply all settings that services copy, at the start and after CONFIG SET."""
        self.config = config
        self.clients.configure(config)
        self.access.configure(config)
        self.observer.configure(config)
        self.pubsub.configure(config)
        self.memory.configure(config)
        self.storage.configure(config)
        self.replication.configure(config)
        self._configure_keyspace()

    def load(self, keyspace: Keyspace, journal: Journal) -> None:
        """Install the state ``keyspace``, which was replayed from ``journal``, and record later
        changes in ``journal``. Call it between turns."""
        segments = self.storage.open(journal)
        self.records.use(keyspace.facts, journal)
        self.state.started_ms += self.times.start_after(journal.recovery.last_now_ms)
        self.state.loading = None
        self.state.restrict()
        empty = self.keyspace
        self.replace_keyspace(keyspace)
        if empty is not keyspace:
            empty.dismantle()
        keyspace.opened_ms = self.times.now()
        for database in keyspace.databases:
            database.used_bytes = sampled(database.values, text_bytes)
        source = keyspace.sealing.bodies.source
        if isinstance(source, SegmentSource):
            named = source.image_segments | keyspace.named_segments
            segments.remove_orphans(keyspace.sealing.segments(), named)
        for session in self.clients.sessions.values():
            session.call.admission = self.records.admission
        self.replication.load()

    def unload(self) -> None:
        """Replace the state with an empty one, until `load`. Nothing is stored meanwhile."""
        old, empty = self.keyspace, Keyspace()
        empty.facts.muted = True
        empty.garbage += [*old.garbage, *(database.values for database in old.databases)]
        self.records.stop_using()
        self.storage.close()
        self.replace_keyspace(empty)

    def replace_keyspace(self, new: Keyspace) -> None:
        """Replace the keyspace with ``new``. Every watched key counts as modified, and every command that
        waits for a key is run again."""
        self.keyspace = self.pubsub.keyspace = self.memory.keyspace = new
        self.storage.use(new)
        self.records.facts = new.facts
        self._configure_keyspace()
        for session in self.clients.sessions.values():
            index = session.db_index
            session.call.keyspace = new
            session.call.db = new.databases[index]
        self.watches.move(new)
        self.blocked.move(new)

    def _configure_keyspace(self) -> None:
        config = self.config
        self.keyspace.notified = config.notified_events
        self.memory.configure_sealing(config)
        self.keyspace.sealing.bodies.resize(config.stream_cold_cache_bytes)

    def new_call(self, *, offloads: bool) -> Call:
        """Return the `Call` of a new session. With ``offloads``, its commands may wait for jobs."""
        call = Call(self.keyspace, ReplyWriter(bytearray()))
        call.offloads = offloads
        call.reply.piece_bytes = limits.REPLY_PIECE_BYTES if offloads else 0
        call.admission, call.settings, call.draw = (
            self.records.admission,
            self.clients.settings,
            randrange,
        )
        call.wall = self.times.wall
        return call

    def leave_transaction(self, session: Session) -> None:
        """Discard the transaction of a session: the commands queued by MULTI, and every WATCH."""
        session.transaction.end()
        self.watches.end(session.transaction.watch)

    def forget(self, session: Session) -> None:
        """Remove a closed session from all services: its transaction, watches, subscriptions, MONITOR and
        wait."""
        self.leave_transaction(session)
        self.observer.stop_monitoring(session)
        self.pubsub.leave(session)
        self.blocked.forget(session)
        self.replication.replicas.forget(session)
