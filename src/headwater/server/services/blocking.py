"""Clients that wait: blocked, woken and run again, given up, held up by CLIENT PAUSE.

Rule 1. A woken command is run again from its start and judges itself: it is served, fails, or waits
        on where it stood. Its record group is its own (node.py, rule 2).
Rule 2. A session that waits no longer is in ``resumed``; what it sent meanwhile runs in this turn.
Rule 3. A line of those who wait alike is passed over from the first who waits on: a thousand readers
        of a group cost an entry one of them.

`headwater.server.services.waiting` keeps the lines; this says what happens to who stands in them. Clients that
wait for a job of their own command are `headwater.server.services.offloading`'s.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from headwater.commands.call import Wait
from headwater.commands.jobs import Job
from headwater.engine.database import Value
from headwater.errors import CommandError, NoRoom
from headwater.limits import REFUSED_RECHECK_MS
from headwater.server.services.offloading import Offloading
from headwater.server.services.pausing import Pause
from headwater.server.services.waiting import Lines, Waiter, WaitingRoom, by_arrival
from headwater.server.turn import execution

if TYPE_CHECKING:
    from headwater.server.session.session import Session
    from headwater.server.turn.node import Node


class BlockedClients:
    """The blocked clients of a node."""

    def __init__(self, node: Node, waiting: WaitingRoom, pause: Pause) -> None:
        self._node = node
        self._waiting = waiting
        self._pause = pause
        self.resumed: list[Session] = []
        """Sessions that wait no longer and whose further requests have not run yet."""
        self.offloading = Offloading(node)

    def block(self, session: Session, wait: Wait | Job) -> None:
        """``session`` waits from now on."""
        if not isinstance(wait, Wait):
            self.offloading.begin(session, wait)
            return
        deadline = inf
        if wait.timeout_ms:
            # In whole microseconds, so that 0.1 s and 0.2 s more are what a clock shows at 0.3 s.
            deadline = round(self._node.clock.monotonic() + wait.timeout_ms / 1000, 6)
        waiter = Waiter(session, session.call.db, wait, deadline)
        session.blocked = waiter
        self._waiting.add(waiter)

    def waiter_of(self, session: Session) -> Waiter | None:
        """What ``session`` is blocked in, in Redis's sense: not a job of its own command, nor the delay
        of a refused login. None if it is not blocked."""
        if session in self.offloading or session in self._node.access.logins:
            return None
        return session.blocked

    def unblock(self, session: Session, *, error: bool) -> bool:
        """CLIENT UNBLOCK: end a wait as by a timeout, or with an error; False if there is none."""
        waiter = self.waiter_of(session)
        if waiter is None or session in self._pause:
            return False
        self._give_up(waiter, error)
        return True

    def end_timed_out(self) -> None:
        """Give up every wait whose time is over."""
        for waiter in self._waiting.timed_out(self._node.clock.monotonic()):
            self._give_up(waiter, False)

    def _give_up(self, waiter: Waiter, error: bool) -> None:
        session, logins = waiter.session, self._node.access.logins
        failed = logins.release(session) if session in logins else error
        self._node.observer.stopped_waiting(session, waiter.wait.arguments, failed=failed)
        self._leave(waiter)
        reply, answer = session.reply, waiter.wait.at_timeout
        if error:
            reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK")
        elif answer is not None:
            reply.raw(answer)
        else:
            reply.nil_array()

    def end_pause(self) -> None:
        """What CLIENT PAUSE held up runs in this turn."""
        missed = self._pause.take_missed()
        for session, arguments in self._pause.end().items():
            session.postponed = arguments
            if session.blocked is not None:
                self._leave(session.blocked)
        for waiter in missed:
            self._run(waiter)
        self.settle()

    def _leave(self, waiter: Waiter) -> None:
        self._waiting.remove(waiter)
        waiter.session.blocked = None
        self.resumed.append(waiter.session)

    def forget(self, session: Session) -> None:
        """The client is gone."""
        if session in self.offloading:
            self.offloading.cancel(session)
        elif session.blocked is not None:
            self._waiting.remove(session.blocked)
            session.blocked = None

    def settle(self) -> bool:
        """End the jobs that are done, on a node that is poisoned as well; True."""
        if self.offloading:
            for session in self.offloading.settle():
                self._node.wrote_to(session)
                self.resumed.append(session)
        return True

    def run_due(self) -> None:
        """Run again whoever is to be looked at by now, signalled or not."""
        for waiter in self._waiting.to_recheck(self._node.times.now()):
            self._run(waiter)

    def serve_signalled(self) -> None:
        """Run again whoever waits for a key that something happened to, first come first."""
        keyspace = self._node.keyspace
        signalled = keyspace.signalled
        while signalled:
            place = next(iter(signalled))
            del signalled[place]
            lines = self._waiting.lines_at(place)
            if lines is not None:
                db, key = place
                self._serve(lines, keyspace.databases[db].values.get(key))

    def _serve(self, lines: Lines, value: Value | None) -> None:
        """Run again whoever waits in the lines of a key that holds ``value``, as far as rule 3 says."""
        if len(lines) == 1 and None not in lines:
            (line,) = lines.values()
            held = 0  # who is neither served nor waits on: killed in this turn, held by a pause
            while len(line) > held:
                waiter = next(islice(line, held, None))
                if self._heed(value, waiter):
                    return
                held += waiter.active
            return
        done: set[object] = set()
        for waiter in by_arrival(lines):
            alike = waiter.wait.alike
            if not waiter.active or alike in done:
                continue
            if self._heed(value, waiter) and alike is not None:
                done.add(alike)

    def _heed(self, value: Value | None, waiter: Waiter) -> bool:
        """Run a waiter to whom a signal of a key that holds ``value`` matters; True as by `_run`."""
        wait = waiter.wait
        return wait.heeds(value) and (wait.finds_nothing(value) or self._run(waiter))

    def _run(self, waiter: Waiter) -> bool:
        """Run a blocked command again; it is served, fails, or waits on where it stood. True when there
        was nothing for it."""
        session, records = waiter.session, self._node.records
        if not waiter.active or session.closing:
            # It has left, or was killed in this turn: what it would take is for others.
            return False
        if self._pause.active and self._pause.holds_again(waiter):
            return False
        call = session.call
        call.now_ms = self._node.times.now()
        facts_mark = records.begin()
        mark = len(session.outbox)
        again: Wait | None = None
        refused = False
        try:
            again = execution.invoke_again(self._node, session, waiter.wait.arguments)
        except NoRoom:
            # Nothing signals that the journal has room again, so it is asked now and then.
            del session.outbox[mark:]
            refused = True
            self._waiting.recheck(waiter, call.now_ms + REFUSED_RECHECK_MS)
        except CommandError as error:
            del session.outbox[mark:]
            session.reply.error(str(error))
        finally:
            records.seal(facts_mark, call.now_ms)
        if session.pushes:
            session.deliver_pushes()
        if refused:
            return False
        if again is None:
            session.wrote_turn = records.turn
            self._leave(waiter)
            return False
        waiter.wait.at_timeout, waiter.wait.group = again.at_timeout, again.group
        self._waiting.recheck(waiter, again.recheck_at_ms)
        return True
