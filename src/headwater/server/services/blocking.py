"""Blocked clients: blocks them, runs their commands again, ends their waits, and ends CLIENT PAUSE.

Rule 1. An unblocked command runs again from its start: it is served, fails, or continues to wait at its place
        in the queue. The run is a separate record group (node.py, rule 2).
Rule 2. A session whose wait has ended is in ``resumed``. The requests that it sent meanwhile run in
        this turn.
Rule 3. Waiters of a key that wait for the same thing share a queue. The rest of the queue is skipped after the
        first waiter that has to wait longer: with a thousand readers of a group, an entry costs one run.
Rule 4. After XGROUP DELCONSUMER, or in a group that replaces another, all waiters run once: each
        creates its consumer again, as in Redis.

`headwater.server.services.waiting` has the queues; this module handles the clients in them.
`headwater.server.services.offloading` handles clients that wait for a job of their
command, `headwater.server.services.storage.cold_reads` those that wait for the disk.
"""

from __future__ import annotations

from itertools import islice
from math import inf

from headwater.commands.call import Wait
from headwater.commands.jobs import Job
from headwater.common.limits import REFUSED_RECHECK_MS
from headwater.engine.keyspace.database import Value
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.errors import CommandError, NoRoom
from headwater.server.services.acl.login_delays import LoginDelays
from headwater.server.services.observability.observer import Observer
from headwater.server.services.offloading import Offloading
from headwater.server.services.records import TurnRecords
from headwater.server.services.runner import Runner
from headwater.server.services.storage.cold_reads import ColdRead, ColdReads
from headwater.server.services.turn_clock import TurnClock
from headwater.server.services.waiting import Queues, Waiter, Waiters, by_arrival
from headwater.server.session.clients import Clients
from headwater.server.session.session import Session


class BlockedClients:
    """The blocked clients of a node."""

    def __init__(
        self,
        keyspace: Keyspace,
        times: TurnClock,
        records: TurnRecords,
        clients: Clients,
        observer: Observer,
        logins: LoginDelays,
        offloading: Offloading,
    ) -> None:
        self.waiting = Waiters(clients.memory)
        self.offloading = offloading
        self.cold_reads = ColdReads()
        self.pause = offloading.pause
        self._waiters: dict[Session, Waiter] = {}
        """The waiter of each blocked session, except those that wait for a job or for blocks on disk."""
        self._keyspace = keyspace
        self._times = times
        self._records = records
        self._clients = clients
        self._observer = observer
        self._logins = logins
        self._runner = Runner()
        self.resumed: list[Session] = []
        """Sessions whose wait has ended and whose further requests have not run yet."""

    def works_for(self, session: Session) -> bool:
        """Return whether a job or the disk is working for ``session``."""
        return session in self.offloading or session in self.cold_reads

    def run_with(self, runner: Runner) -> None:
        """Use ``runner`` to run commands again."""
        self._runner = self.offloading.runner = runner

    def block(self, session: Session, wait: Wait | Job | ColdRead) -> None:
        """Block ``session``."""
        if isinstance(wait, ColdRead):
            self.cold_reads.begin(session, wait, self._keyspace.sealing.bodies)
            return
        if not isinstance(wait, Wait):
            self.offloading.begin(session, wait)
            return
        deadline = inf
        if wait.timeout_ms:
            # Whole microseconds, so that 0.1 s + 0.2 s equals the 0.3 s that a clock shows.
            deadline = round(self._times.monotonic() + wait.timeout_ms / 1000, 6)
        waiter = Waiter(session, session.call.db, wait, deadline)
        session.blocked = True
        self._waiters[session] = waiter
        self.waiting.add(waiter)

    def waiter_of(self, session: Session) -> Waiter | None:
        """Return the waiter of ``session`` if it is blocked in Redis's sense, else None. A job of its own
        command and the delay of a failed login do not count."""
        return None if session in self._logins else self._waiters.get(session)

    def unblock(self, session: Session, *, error: bool) -> bool:
        """End a wait as its timeout would, or with an error. Return False if ``session`` does not wait or is paused."""
        waiter = self.waiter_of(session)
        if waiter is None or session in self.pause:
            return False
        self._give_up(waiter, error)
        return True

    def end_timed_out(self) -> None:
        """End every wait whose timeout has passed."""
        for waiter in self.waiting.timed_out(self._times.monotonic()):
            self._give_up(waiter, False)

    def end_all(self, error: CommandError) -> None:
        """End every wait in Redis's sense with an error, and close the connection after it. Paused commands go on
        waiting."""
        for session, waiter in list(self._waiters.items()):
            if session not in self.pause and session not in self._logins:
                self._observer.count_error(error)
                self._leave(waiter)
                session.output.reply.error(str(error))
                session.closing = True
                self._clients.wrote_to(session)

    def waits(self, session: Session, wait: Wait) -> bool:
        """Return whether the client of ``session`` is still blocked by ``wait``."""
        waiter = self._waiters.get(session)
        return waiter is not None and waiter.wait is wait

    def run_again(self, session: Session) -> None:
        """Run the blocked command of ``session`` again, if it has one."""
        waiter = self._waiters.get(session)
        if waiter is not None:
            self._run(waiter)

    def _give_up(self, waiter: Waiter, error: bool) -> None:
        session, logins = waiter.session, self._logins
        failed = logins.release(session) if session in logins else error
        self._observer.stopped_waiting(session, waiter.wait.arguments, failed=failed)
        self._leave(waiter)
        reply, answer = session.output.reply, waiter.wait.at_timeout
        if error:
            unblocked = CommandError("UNBLOCKED client unblocked via CLIENT UNBLOCK")
            self._observer.count_error(unblocked)
            reply.error(str(unblocked))
        elif answer is not None:
            reply.raw(answer)
        else:
            reply.nil_array()

    def end_pause(self) -> None:
        """End CLIENT PAUSE. The commands that it postponed run in this turn."""
        missed = self.pause.take_missed()
        for session, arguments in self.pause.end().items():
            session.postponed = arguments
            waiter = self._waiters.get(session)
            if waiter is not None:
                self._leave(waiter)
        for waiter in missed:
            self._run(waiter)
        self.settle()

    def _leave(self, waiter: Waiter) -> None:
        self._forget(waiter)
        self.resumed.append(waiter.session)

    def _forget(self, waiter: Waiter) -> None:
        self.waiting.remove(waiter)
        del self._waiters[waiter.session]
        waiter.session.blocked = False

    def forget(self, session: Session) -> None:
        """Forget a session that is closed."""
        self.pause.forget(session)
        self._logins.forget(session)
        self.offloading.cancel(session)
        self.cold_reads.cancel(session)
        waiter = self._waiters.get(session)
        if waiter is not None:
            self._forget(waiter)

    def move(self, keyspace: Keyspace) -> None:
        """Replace the keyspace with ``keyspace``: clients that wait for a key wait for it there, and
        their commands run again once."""
        self._keyspace = keyspace
        for session in self._clients.sessions.values():
            waiter = self._waiters.get(session)
            if waiter is None:
                continue
            db = keyspace.databases[waiter.db.index]
            self.waiting.move(waiter, db)
            for key in waiter.wait.keys:
                db.signal(key)

    def settle(self) -> bool:
        """End the jobs that are done, even if the node is poisoned. Resume the sessions whose blocks were read.
        Return True."""
        if self.offloading:
            for session in self.offloading.settle():
                self._clients.wrote_to(session)
                self.resumed.append(session)
        if self.cold_reads:
            self.resumed += self.cold_reads.settle()
        return True

    def run_due(self) -> None:
        """Run again the commands of clients whose recheck is due, with or without a signal."""
        for waiter in self.waiting.to_recheck(self._times.now()):
            self._run(waiter)

    def serve_signalled(self) -> None:
        """Run again, in order of arrival, the commands of clients that wait for a signalled key."""
        keyspace = self._keyspace
        signalled = keyspace.signalled
        while signalled:
            place = next(iter(signalled))
            del signalled[place]
            queues = self.waiting.queues_at(place)
            if queues is not None:
                db, key = place
                self._serve(queues, keyspace.databases[db].values.get(key))

    def _serve(self, queues: Queues, value: Value | None) -> None:
        """Run the waiters of a key with ``value`` that have to run by rules 3 and 4."""
        if self.waiting.take_lost(queues, value):
            for waiter in by_arrival(queues):
                if waiter.wait.wakes_on(value):
                    self._run(waiter)
            return
        if len(queues) == 1 and None not in queues:
            (queue,) = queues.values()
            held = 0  # waiters that neither ran nor ended: killed in this turn, or held by a pause
            while len(queue) > held:
                waiter = next(islice(queue, held, None))
                if self._wake(value, waiter):
                    return
                held += waiter.active
            return
        done: set[object] = set()
        for waiter in by_arrival(queues):
            alike = waiter.wait.alike
            if not waiter.active or alike in done:
                continue
            if self._wake(value, waiter) and alike is not None:
                done.add(alike)

    def _wake(self, value: Value | None, waiter: Waiter) -> bool:
        """Run a waiter again if the value may serve it. Return True if it wakes on the value but finds nothing."""
        wait = waiter.wait
        return wait.wakes_on(value) and (wait.finds_nothing(value) or self._run(waiter))

    def _run(self, waiter: Waiter) -> bool:
        """Run a blocked command again: it is served, fails, or keeps waiting at its place. Return whether it found
        nothing and keeps waiting."""
        session, records = waiter.session, self._records
        session.output.shown_turn = records.turn
        if not waiter.active or session.closing:
            # Its wait has ended, or it was killed in this turn: others get its entries.
            return False
        if self.pause.active and self.pause.holds_again(waiter):
            return False
        call = session.call
        call.now_ms = self._times.now()
        facts_mark = records.begin()
        mark = len(session.output.outbox)
        again: Wait | None = None
        refused = False
        try:
            again = self._runner.run_again(session, waiter.wait.arguments)
        except NoRoom:
            # Nothing signals that the journal has room again, so it is checked from time to time.
            del session.output.outbox[mark:]
            refused = True
            self.waiting.recheck(waiter, call.now_ms + REFUSED_RECHECK_MS)
        except CommandError as error:
            del session.output.outbox[mark:]
            session.output.reply.error(str(error))
        finally:
            records.seal(facts_mark, call.now_ms)
        if session.output.pushes:
            session.output.deliver_pushes()
        if refused:
            return False
        if again is None:
            if len(records.facts.data) > facts_mark:
                session.wrote_turn = records.turn
            self._leave(waiter)
            return False
        waiter.wait.at_timeout, waiter.wait.group = again.at_timeout, again.group
        self.waiting.recheck(waiter, again.recheck_at_ms)
        return True
