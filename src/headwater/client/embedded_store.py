"""A node in this process, driven by the threads and event loops that use it.

Rule 1. The thread that sends runs the turn. A thread or loop that waits for a reply also ticks the node at
        the node's next deadline, so that BLOCK times out and delays end even if every client waits.
Rule 2. After a fork, every use in the child raises `ForkedStore`, before any lock is acquired, because the
        thread that held the lock does not exist in the child.
Rule 3. When a store is closed, stopped by SHUTDOWN or poisoned, it ends every connection, so that no
        client waits for a reply that will not come.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Any, Protocol
from weakref import ref

from headwater.client.reentrancy import INTERRUPT_GUARD, REENTRANCY_GUARD, run_outside
from headwater.common.clock import SystemClock
from headwater.common.forks import FORKS
from headwater.errors import ForkedStore, StoreClosed
from headwater.journal.disk.files import Files
from headwater.server.session.session import Session
from headwater.server.turn.node import Node

TURN_BYTES = 1024 * 1024
"""Number of input bytes after which a turn is run, even if there is more input, because the replies of a turn
stay in memory until it is committed, and other threads wait for its end."""

SHORTEST_PAUSE_S = 0.001
"""Minimum wait for work that is due but cannot be done yet, such as on a full disk, in seconds."""


class Transport(Protocol):
    """The client's end of a session."""

    def deliver(self, session: Session) -> None:
        """Take the session's output. Called under the node's lock, by the thread that runs the turn."""
        ...

    def end(self) -> None:
        """End the connection, because the store closes it. Called under the node's lock."""
        ...


class Sleeper(Protocol):
    """A thread or an event loop that waits for a reply and ticks the store at its deadlines."""

    def wake(self) -> None:
        """Wait again, because the next deadline is earlier than before. Called under the node's lock."""
        ...


class EmbeddedStore:
    """A node in this process and its sleepers. ``address`` is its name in errors. ``past`` are the files of a node
    that `server.opening.open_past` returned. The clock of such a node stands still, so commands never wait."""

    def __init__(
        self, node: Node, *, address: str, owned: bool = True, past: Files | None = None
    ) -> None:
        self.node = node
        self.address = address
        self.owned = owned
        """True if closing the last handle closes the node; False for a node that the caller has made."""
        self.users = 0
        self.closed = ""
        """Reason why the store is closed; empty while it is open."""
        self._past = past
        self._process_id = os.getpid()
        self._generation = FORKS.generation
        self._sleepers: dict[Sleeper, None] = {}
        self._due = inf
        """Deadline last announced to the sleepers, by the node's monotonic clock in seconds."""
        self._real_time = isinstance(node.clock, SystemClock) or not hasattr(
            node.clock, "call_later"
        )
        self._timers: list[Any] = []
        """The timers of a manual clock."""
        self.loop_timers: dict[int, Any] = {}
        """The `LoopTimer` of each event loop, by the loop's identity."""

    def __repr__(self) -> str:
        return f"<EmbeddedStore {self.address}{', closed' if self.closed else ''}>"

    @property
    def here(self) -> bool:
        """True in the process that opened the store; False in a forked child."""
        return self._generation == FORKS.generation

    # --- sessions -------------------------------------------------------------------------------

    def connect(self, transport: Transport) -> Session:
        """Return a new session that sends its output to ``transport`` and holds a weak reference to it.

        Raises `ForkedStore` or `StoreClosed`.
        """
        self.check_process()
        with REENTRANCY_GUARD, self.node.lock:
            self._check_open()
            session = self.node.connect(
                kind="embedded", address=f"{self.address}:0", on_output=partial(_deliver, self.node)
            )
            session.call.may_block = self._past is None
            session.driver = ref(transport)  # weak: the node does not keep a client alive
            return session

    def exchange(self, session: Session, chunks: Iterable[bytes | bytearray | memoryview]) -> None:
        """Run the requests in ``chunks`` in this thread: as one turn, or several if they exceed `TURN_BYTES`.
        The output is delivered before this returns, to this client and to the clients that a turn woke.

        Raises `BrokenPipeError` if the store has closed the session, `ForkedStore`, `StoreClosed`.
        """
        self.check_process()
        with REENTRANCY_GUARD, self.node.lock:
            self._check_open()
            if session.closed:
                raise BrokenPipeError(errno.EPIPE, "the store has closed this connection")
            fed = 0
            try:
                for chunk in chunks:
                    session.feed(chunk)
                    fed += len(chunk)
                    if fed >= TURN_BYTES:
                        self._turn(session)
                        fed = 0
                self._turn(session)
            finally:
                self._after_turn()

    def _turn(self, session: Session) -> None:
        with INTERRUPT_GUARD:
            self.node.turn((session,))

    def tick(self) -> None:
        """Do the work that is due by time alone."""
        if self.closed or not self.here:
            return
        with REENTRANCY_GUARD, self.node.lock:
            if not self.closed:
                self._tick()

    def retire(self, session: Session) -> None:
        """Close the session of a client that closed its connection. May be called at any time."""
        run_outside(lambda: self._retire(session))

    def _retire(self, session: Session) -> None:
        if self.here and not session.closed:
            with REENTRANCY_GUARD, self.node.lock:
                self._end_session(session)

    # --- time -----------------------------------------------------------------------------------

    def pause(self) -> float | None:
        """Return the seconds until a sleeper has to `tick`; None for never. The caller must hold
        the node's lock and be a sleeper or about to become one."""
        if not self._real_time:
            return None  # a timer of the clock calls `tick`
        due = self._next_deadline()
        self._announce(due)
        return None if due == inf else max(due - self.node.clock.monotonic(), 0.0)

    def add_sleeper(self, sleeper: Sleeper) -> None:
        """Begin to wake ``sleeper`` when a deadline becomes earlier. The caller must hold the node's lock."""
        self._sleepers[sleeper] = None

    def remove_sleeper(self, sleeper: Sleeper) -> None:
        """Stop waking ``sleeper``. The caller must hold the node's lock."""
        self._sleepers.pop(sleeper, None)

    def sleep(
        self,
        sleeper: Sleeper,
        condition: threading.Condition,
        until: float,
        *,
        woken: Callable[[], bool],
    ) -> bool:
        """Wait on ``condition``, whose lock is the node's, until ``woken()`` is true, but not after
        ``until`` on the machine's monotonic clock. Returns whether it was woken. The caller must
        hold the lock."""
        self.add_sleeper(sleeper)
        try:
            while not woken():
                left = until - time.monotonic()
                if left <= 0:
                    return False
                if self.pause() == 0.0:
                    self._tick()
                    if woken():
                        break
                pause = self.pause()
                if pause is not None:
                    left = min(left, max(pause, SHORTEST_PAUSE_S))
                condition.wait(None if left == inf else min(left, threading.TIMEOUT_MAX))
            return True
        finally:
            self.remove_sleeper(sleeper)

    def _tick(self) -> None:
        try:
            with INTERRUPT_GUARD:
                self.node.tick()
        finally:
            self._after_turn()

    def _next_deadline(self) -> float:
        due = self.node.next_deadline()
        return inf if due is None else due

    def _after_turn(self) -> None:
        """Wake the sleepers if a deadline is now earlier; end all sessions if the node has ended."""
        if self.node.state.poisoned is not None:
            self._end_sessions()
        elif self.node.state.stopping:
            self.close("SHUTDOWN ended it")
        elif not self._real_time:
            self._set_timer(self._next_deadline())
        elif self._sleepers:
            self._announce(self._next_deadline())

    def _announce(self, due: float) -> None:
        """Wake the sleepers if ``due`` is earlier than the deadline last announced to them."""
        earlier, self._due = due < self._due, due
        if earlier:
            for sleeper in list(self._sleepers):
                sleeper.wake()

    def _set_timer(self, due: float) -> None:
        """Set a timer of a manual clock, which fires its timers itself, in the order of their times."""
        clock: Any = self.node.clock
        self._cancel_timers()
        call = clock.call_later
        if hasattr(clock, "call_upkeep"):
            event = self.node.next_event()
            if event > due:
                call = clock.call_upkeep
                self._add_timer(clock.call_later, event)
        self._add_timer(call, due)

    def _add_timer(self, call: Callable[..., Any], due: float) -> None:
        if due != inf:
            # Slightly later than now: with a timer that is due now, a manual clock would never advance.
            left = max(due - self.node.clock.monotonic(), 1e-6)
            self._timers.append(call(left, self.tick))

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    # --- closing --------------------------------------------------------------------------------

    def close(self, why: str) -> None:
        """End every session; if the store owns the node, close the node and end its journal cleanly.

        Raises `NodePoisoned` if the journal's last writes fail.
        """
        if self.closed or not self.here:
            return
        with REENTRANCY_GUARD, self.node.lock:
            self.closed = why
            self._end_sessions()
            self._cancel_timers()
            if self.owned:
                self.node.close()
            if self._past is not None:
                self._past.unlock()

    def _end_sessions(self) -> None:
        for session in list(self.node.clients.sessions.values()):
            if session.client.kind == "embedded":
                self._end_session(session)

    def _end_session(self, session: Session) -> None:
        self.node.close_session(session)
        transport = _transport_of(session)
        if transport is not None:
            transport.end()

    def check_process(self) -> None:
        """Raise `ForkedStore` in a child of the process that opened the store."""
        if not self.here:
            raise ForkedStore(
                f"{self.address} was opened by process {self._process_id}, and this process was "
                "forked from it. Connect after the fork, or serve the store (headwater serve) and "
                "connect over a socket."
            )

    def check(self) -> None:
        """Raise `ForkedStore` or `StoreClosed` if the store cannot be used."""
        self.check_process()
        self._check_open()

    def _check_open(self) -> None:
        if self.closed:
            raise StoreClosed(f"{self.address} is closed: {self.closed}. Connect again.")


def _transport_of(session: Session) -> Transport | None:
    """Return the client's end of a session; None if that end was garbage collected."""
    transport: Transport | None = session.driver()
    return transport


def _deliver(node: Node, session: Session) -> None:
    transport = _transport_of(session)
    if transport is None:
        node.close_session(session)
        return
    transport.deliver(session)
    if session.closing:
        node.close_session(session)
        transport.end()
