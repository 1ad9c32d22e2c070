"""The node: a store as a whole, without sockets.

    driver (server loop, embedded client)
       │ session.feed(bytes)          ▲ on_output(session), after the commit
       ▼                              │
    Node.turn ── for each whole request: choose, admit, mutate, reply into the outbox
              ── after each command, run blocked clients again that it unblocks
              ── Journal.commit: the turn's groups, fsynced according to the policy
              ── release the outboxes

Rule 1. A reply is sent only after the commit of the turn that wrote it (design rule 4).
Rule 2. A command is one record group, and so are EXEC with all its commands, each blocked client
        that is served, each end of a delay and each expiry (design rule 5).
Rule 3. A failed commit, or an exception in the middle of a change, poisons the node: the turn's output is
        never released, the state is no longer read, and every later request gets that error as its
        reply. An exception before a change ends only its own command (services/faults.py).
Rule 4. All methods require ``lock``; those that open or close something or begin a turn acquire it themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from math import inf

from headwater.common.clock import Clock, SystemClock
from headwater.common.forks import FORKS
from headwater.config.config import Config
from headwater.engine.keyspace.garbage import FREED_AT_ONCE, free
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from headwater.errors import ForkedStore, NodePoisoned
from headwater.journal.log.journal import Journal
from headwater.persistence.progress import LoadProgress
from headwater.resp.arguments import Arguments
from headwater.server.services.acl.access import AccessControl
from headwater.server.services.observability.latency import FSYNC_ALWAYS, WRITE
from headwater.server.services.replication.link import Groups, LinkRefused
from headwater.server.services.services import Services
from headwater.server.services.storage.reloading import reload_from_journal
from headwater.server.services.storage.sealer import Sealer
from headwater.server.services.timers import end_delays, expire_keys, forget_iids, record_seen
from headwater.server.session.client_info import ClientInfo
from headwater.server.session.session import Session
from headwater.server.turn.bad_input import refuse_input
from headwater.server.turn.due import run_due
from headwater.server.turn.execution import Execution
from headwater.server.turn.following import apply_groups
from headwater.server.turn.reply_pieces import continue_reply

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # compiled modules use clock.pxd
    from time import monotonic_ns as passed_ns

SEEN_INTERVAL_S = 1.0
"""Interval, in seconds, at which seen times of consumers that no other fact has recorded become facts
(design rule 3)."""


class Node:
    """A store that executes commands; see the rules above.

    ``keyspace`` was replayed from ``journal``. Without a journal, nothing is stored. A node that is still
    ``loading`` gets both later (`load`). `headwater.server.opening` opens a directory as a node.
    """

    def __init__(
        self,
        *,
        keyspace: Keyspace | None = None,
        journal: Journal | None = None,
        config: Config | None = None,
        clock: Clock | None = None,
        access: AccessControl | None = None,
        loading: LoadProgress | None = None,
    ) -> None:
        config = config if config is not None else Config()
        self.keyspace = keyspace if keyspace is not None else Keyspace()
        self.journal: Journal | None = None
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.lock = threading.RLock()
        self.services = Services(
            self.keyspace,
            config,
            self.clock,
            access if access is not None else AccessControl(config.located()),
            self.lock,
        )
        self.state = self.services.state
        self.state.loading = loading
        self.state.restrict()
        self.keyspace.opened_ms = self.state.started_ms
        self.clients = self.services.clients
        self.records = self.services.records
        self.times = self.services.times
        self.blocked = self.services.blocked
        self.observer = self.services.observer
        self.execution = Execution(self.services)
        self.services.run_with(self.execution)
        self.sealer = Sealer(self.services, self.lock)
        self._resumed, self._sealed = self.blocked.resumed, self.sealer.done
        self._arguments = Arguments()
        """The arguments of the current request. Code that needs them longer makes a copy."""
        self._seen_deadline = inf
        self._preparing = False
        """True if a request was read and its command has not begun."""
        self._generation = FORKS.generation
        if journal is not None:
            self.load(self.keyspace, journal)

    def load(self, keyspace: Keyspace, journal: Journal) -> None:
        """End the loading: ``keyspace`` was replayed from ``journal``, which stores changes from now on."""
        with self.lock:
            self.services.load(keyspace, journal)
            self.journal = journal
            self.sealer.segments = self.services.storage.segments
            self.sealer.resume()
            self._use_keyspace()

    def unload(self, progress: LoadProgress) -> None:
        """Give up the state, to load another one: close the journal. Clients get LOADING until `load`."""
        with self.lock:
            self.state.loading = progress
            self.state.restrict()
            self.services.replication.replicas.disconnect(live=True)
            self.sealer.stop()
            self.services.storage.checkpoints.stop()
            if self.journal is not None:
                self.journal.close()
            self.services.unload()
            self.journal = None
            self._use_keyspace()

    # --- sessions -------------------------------------------------------------------------------

    def connect(
        self,
        *,
        kind: str,
        address: str,
        on_output: Callable[[Session], None] | None = None,
        local_address: str = "",
    ) -> Session:
        """Open a session. ``on_output`` is called under the lock, after a commit, when the session
        has output or is to be closed. Without it, the caller must check the session after each turn."""
        self._check_process()
        with self.lock:
            session = self.clients.connect(
                ClientInfo(kind, address, local_address, self.clock.monotonic()),
                self.services.new_call(offloads=kind != "embedded"),
                user=self.services.access.default,
                on_output=on_output,
            )
            self.services.authorization.set_initial_user(session)
            return session

    def close_session(self, session: Session) -> None:
        """Close a session and end its waits, watches and subscriptions."""
        with self.lock:
            if session.closed:
                return
            self.clients.close(session)
            self.services.forget(session)

    # --- turns ----------------------------------------------------------------------------------

    def turn(self, ready: Iterable[Session] | None) -> None:
        """Run every whole request of ``ready``, commit, and release the output. For None, do the work of `tick`."""
        self._check_process()
        with self.lock:
            self.turn_locked(ready)

    def exchange(self, session: Session, requests: bytes) -> bytes:
        """Run ``requests`` of ``session``, which must not have ``on_output``, in a turn. Return all its output."""
        self._check_process()
        with self.lock:
            session.scanner.feed(requests)
            self.turn_locked([session])
            return session.output.take_bytes()

    def tick(self) -> None:
        """Do the work that is due by time. `next_deadline` returns the time; an earlier call does no harm."""
        self.turn(None)

    def turn_locked(self, ready: Iterable[Session] | None) -> None:
        """Run a turn as `turn` does. The caller must hold the lock."""
        self._check_process()
        self._check_journal()
        self.records.turn += 1
        self.times.begin_turn()
        try:
            if ready is not None:
                self._serve(ready)
            elif self.blocked.settle() and self.state.poisoned is None:
                self._run_due()
            else:
                self._drain_resumed()
            self._finish()
        except BaseException as error:
            self._abort_turn(error)
            raise

    def follow(self, groups: Groups) -> int:
        """Apply the groups of a primary from the first on, in one turn. Return their number, which is smaller than that of
        ``groups`` if the journal has no room for more. The caller must hold the lock.

        Raises `LinkRefused` if they do not fit this state; then nothing has changed, and the node has replayed its
        journal."""
        self._check_process()
        self._check_journal()
        if self.state.poisoned is not None:
            raise self.state.poisoned
        self.records.turn += 1
        self.times.begin_turn()
        try:
            applied = apply_groups(self.services, groups)
        except LinkRefused:
            self.records.drop()
            self.reload()
            raise
        except BaseException as error:
            self._abort_turn(error)
            raise
        try:
            if self.keyspace.signalled:
                self.blocked.serve_signalled()
            self._drain_resumed()
            self._finish()
        except BaseException as error:
            self._abort_turn(error)
            raise
        return applied

    def next_deadline(self) -> float | None:
        """Return the monotonic time, in seconds, when `tick` next has work; None if it has no work."""
        rests_until = self.state.rests_until
        if self.keyspace.garbage:
            return max(rests_until, self.clock.monotonic())
        waiting = self.blocked.waiting
        deadline = min(waiting.next_deadline(), self._seen_deadline, self.blocked.pause.until)
        at_ms = self._next_event_ms()
        recheck = waiting.next_recheck() if waiting.count else None
        if recheck is not None and (at_ms is None or recheck < at_ms):
            at_ms = recheck
        if at_ms is not None:
            deadline = min(deadline, self.times.monotonic_at(at_ms))
        return None if deadline == inf else max(deadline, rests_until)

    def next_event(self) -> float:
        """Return the monotonic time of the next event; infinity without one. Events: a key or iid expires, a delay
        or CLIENT PAUSE ends, an entry becomes claimable. Unlike `next_deadline`, this leaves out the timeouts of
        blocked clients, and other upkeep.
        """
        waiting, until = self.blocked.waiting, self.blocked.pause.until
        at_ms = self._next_event_ms()
        recheck = waiting.next_recheck() if waiting.count and self._awaits_pending() else None
        for each in (at_ms, recheck):
            until = until if each is None else min(until, self.times.monotonic_at(each))
        return until

    def _awaits_pending(self) -> bool:
        """Return whether a stream that clients wait for has pending entries other than delayed ones."""
        return any(
            group.pel.length > len(group.due_order)
            for database in self.keyspace.databases
            for key in database.awaited
            if isinstance(stream := database.values.get(key), StoredStream)
            for group in stream.groups.values()
        )

    def close(self) -> None:
        """Stop cleanly: write and sync the last seen times and the end of the journal."""
        self.blocked.offloading.stop()
        self.blocked.cold_reads.stop()
        self.sealer.stop()
        if self.journal is None or self._generation != FORKS.generation:
            return
        self.services.storage.checkpoints.stop()
        with self.lock:
            if self.state.poisoned is None:
                self._seen_deadline = 0.0
                self.records.turn += 1
                self._record_seen()
                self.sealer.settle(len(self.sealer.done))
                self._finish()
                self.services.storage.checkpoints.finish()
            self.journal.close()

    # --- parts of a turn ------------------------------------------------------------------------

    def _serve(self, ready: Iterable[Session]) -> None:
        if (
            self.keyspace.iid_deadlines.notes
            and self.state.poisoned is None
            and not self.state.replica
        ):
            # Nothing calls `tick` for an embedded store while it is idle.
            forget_iids(self.keyspace, self.records, self.times.now())
            self.times.ended_ns = 0
        if self.times.turn_began >= self.blocked.pause.until:
            self.blocked.end_pause()
            self.times.ended_ns = 0
        for session in ready:
            self._drain(session)
        self._drain_resumed()

    def _run_due(self) -> None:
        run_due(self.services, expires=self._deletes_expired(), acts=not self.state.replica)
        self._drain_resumed()
        try:
            if not self.state.replica:
                self._record_seen()
        except Exception as error:
            self.services.faults.rest(error, "recording when consumers were seen")

    def _next_event_ms(self) -> int | None:
        """Return the earliest time, in steady ms, at which something is due here; None if nothing is."""
        if self.state.replica:
            return None
        return self.keyspace.next_event_ms(self._deletes_expired())

    def _deletes_expired(self) -> bool:
        """Return whether expired keys are deleted now. Otherwise they only stay invisible."""
        state = self.state
        return state.expires_by_itself and not state.replica and not self.blocked.pause.active

    def _check_journal(self) -> None:
        """Poison the node if a background fsync has failed since the last turn (rule 3)."""
        journal = self.journal
        if journal is not None and self.state.poisoned is None and journal.failure is not None:
            self.state.poisoned = NodePoisoned(journal.failure)

    def _check_process(self) -> None:
        if self._generation != FORKS.generation:
            raise ForkedStore(
                "this store was opened by another process (before a fork); open it in this one"
            )

    def _abort_turn(self, error: BaseException) -> None:
        """Poison the node after an interrupted turn (Ctrl-C, an internal error): a change may be
        incomplete (rule 3)."""
        self.services.faults.poison(error)
        self.records.drop()
        self.clients.discard_output()

    def _drain(self, session: Session) -> None:
        """Run a session's whole requests until it blocks, closes or has too much unsent output."""
        session.client.last_interaction = self.times.turn_began
        output = session.output
        room = self.clients.output_ahead_bytes - (output.released_bytes - output.taken_bytes)
        output.stalled = False
        facts_mark = len(self.records.facts.data)
        if session.postponed is not None:
            postponed, session.postponed = session.postponed, None
            self._run_postponed(session, postponed)
        while not session.blocked and not session.closing:
            if output.tail is not None and continue_reply(session, self.services):
                continue
            if output.tail is not None or (
                len(output.outbox) > room and session.client.kind != "embedded"
            ):
                output.stalled = True
                break
            reading = True
            try:
                if not session.scanner.next(self._arguments):
                    break
                reading = False
                self.run(session, self._arguments)
            except Exception as error:
                if reading:
                    refuse_input(session, error, self.services)
                    break
                self._refuse(session, error)
        if len(self.records.facts.data) > facts_mark:
            session.wrote_turn = self.records.turn
        self.clients.wrote_to(session)

    def _refuse(self, session: Session, error: Exception) -> None:
        """Reply to a command that ``error`` ended before it ran. If it came later, poison the node, and raise it."""
        changed = self.records.is_open or not self._preparing
        refusal = self.services.faults.refuse(error, "the work before a command", changed=changed)
        session.output.reply.error(str(refusal))

    def _drain_resumed(self) -> None:
        """Run the requests that unblocked sessions have sent while they were blocked. Their output is sent first."""
        if self._resumed:
            others, self.clients.changed = self.clients.changed, []
            while self._resumed:
                self._drain(self._resumed.pop(0))
            self.clients.changed += others

    def run(self, session: Session, arguments: Arguments) -> None:
        """Execute a request, write its record group and reply, and serve the clients it unblocks."""
        if self.state.poisoned is not None:
            session.output.reply.error(f"MISCONF {self.state.poisoned}")
            return
        call, keyspace = session.call, self.keyspace
        reply_mark = len(session.output.outbox)
        silent = session.reply_mode != "on"
        self._preparing = True
        self.times.begin_command()
        call.now_ms = self.times.now_ms
        if keyspace.expiring or keyspace.due_notes or keyspace.events or keyspace.signalled:
            self._prepare(call.now_ms)
        self._preparing = False
        facts_mark = self.records.begin()
        wait = self.execution.execute(session, arguments)
        self.records.seal(facts_mark, call.now_ms)
        if wait is not None:
            self.blocked.block(session, wait)
        if session.output.reply.tail is not None:
            session.output.keep_tail()
        if silent and session.reply_mode != "on":
            session.output.discard(reply_mark)
            if session.reply_mode == "skip":
                session.reply_mode = "on"
        if session.output.pushes:
            session.output.deliver_pushes()
        if self.keyspace.signalled:  # not `keyspace`: DEBUG RELOAD replaces it
            self.blocked.serve_signalled()
        if self.keyspace.unseen and self._seen_deadline == inf:
            self._seen_deadline = self.times.turn_began + SEEN_INTERVAL_S

    def _run_postponed(self, session: Session, arguments: Arguments) -> None:
        """Run a request that had to wait, with the blocks that were read for it, if any."""
        self.execution.patient = self.blocked.cold_reads.deliver(session)
        try:
            self.run(session, arguments)
        finally:
            self.execution.patient = False
            self.blocked.cold_reads.end(session)

    def _prepare(self, now_ms: int) -> None:
        """Do the work before a command: expire keys, end delays, and serve the clients that this unblocks."""
        keyspace = self.keyspace
        try:
            if keyspace.expiring and self._deletes_expired():
                expire_keys(keyspace, self.records, now_ms)
            if keyspace.due_notes and not self.state.replica:
                end_delays(keyspace, self.records, now_ms)
            if keyspace.events:  # from earlier changes
                self.services.pubsub.publish_events(None)
        except Exception as error:
            self.services.faults.rest(error, "a timer")
        if keyspace.signalled:  # clients that waited come before this command
            self.blocked.serve_signalled()
        self.times.begin_again()

    def _finish(self) -> None:
        """Commit the turn and release its output."""
        changed, self.clients.changed = self.clients.changed, []
        try:
            if self.state.poisoned is None:
                if self._sealed:
                    self._settle_sealed()
                self._commit()
        except NodePoisoned as error:
            self.state.poisoned = error
            self.clients.discard(changed)
        if self.state.synchronous:
            self.services.replication.held.end_turn(
                changed, self.records.turn, self.services.replication.offset
            )
        else:
            for session in changed:
                session.output.changed = False
                if not session.closed and (session.output.release() or session.closing):
                    session.tell()
        if self.state.hands_over:
            self.services.replication.step_failover()
        try:
            if self.keyspace.garbage:
                free(self.keyspace.garbage, FREED_AT_ONCE)
            if self.keyspace.sealing.due():
                self.sealer.step()
            if self.records.grown_bytes >= self.state.checkpoint_at and self.state.poisoned is None:
                self.services.storage.checkpoints.step()
        except Exception as error:
            self.services.faults.rest(error, "freeing, sealing or a checkpoint")

    def _settle_sealed(self) -> None:
        try:
            self.sealer.settle()
        except Exception as error:
            self.services.faults.rest(error, "sealing blocks of entries")

    def _commit(self) -> None:
        began = passed_ns() if self.observer.times_commits else 0
        self.records.commit()
        if began and self.journal is not None:
            event = FSYNC_ALWAYS if self.journal.policy == "always" else WRITE
            self.observer.commit_lasted(event, passed_ns() - began, self.times.wall_now())
        if self.state.reload_wanted:
            self.state.reload_wanted = False
            self.reload()

    def reload(self) -> None:
        """Replace the keyspace with one that is replayed from the journal (DEBUG RELOAD)."""
        reload_from_journal(self.services)
        self._use_keyspace()

    def _use_keyspace(self) -> None:
        self.keyspace = self.execution.keyspace = self.services.keyspace
        self.sealer.keyspace = self.keyspace

    def _record_seen(self) -> None:
        """Record the times at which consumers were last seen, at most once a second."""
        if self.clock.monotonic() >= self._seen_deadline:
            self._seen_deadline = inf
            record_seen(self.keyspace, self.records, self.times.now())
