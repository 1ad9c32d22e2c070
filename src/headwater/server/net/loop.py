"""Event loops: detect which sockets are ready. `EpollLoop` uses one epoll object for all of them, within asyncio.

    asyncio ── reader on one descriptor ──▶ epoll over all clients
                                             │ at most MAX_EVENTS_PER_TURN ready sockets
       receive from each ──▶ its Scanner     │
       Node.turn_locked(them)  ◀─────────────┘  executes, commits, then calls on_output
       send to each; output that a socket does not take waits for EPOLLOUT

asyncio handles timers, signals and new connections. Input is level-triggered: a socket that was not
read completely is ready again the next time, after the others.
"""

from __future__ import annotations

import os
import select
from array import array
from collections.abc import Callable

from headwater.common.limits import HANDSHAKES_PER_TURN, LOOP_HOLD_SECONDS, MAX_EVENTS_PER_TURN
from headwater.server.net.driver import Driver
from headwater.server.net.sockets import Connection
from headwater.server.session.session import Session
from headwater.server.turn.node import Node

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # compiled modules use the C versions
    from time import monotonic as passed_seconds

    from headwater.native.memory import new_words, word_at
    from headwater.server.net.polling import wait_ready


def _has_epoll() -> bool:
    """Return whether this system supports and permits `EpollLoop`."""
    try:
        select.epoll().close()
        os.close(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
    except (AttributeError, OSError):
        return False
    return True


HAS_EPOLL = _has_epoll()

_READABLE, _WRITABLE = 1, 4
"""EPOLLIN and EPOLLOUT."""


class EpollLoop(Driver):
    """The loop for systems with epoll: a single asyncio reader for all sockets."""

    def __init__(self, node: Node, *, on_stop: Callable[[], None]) -> None:
        self._epoll = select.epoll()
        self._descriptor = self._epoll.fileno()
        self._found = new_words(array("Q"), 2 * MAX_EVENTS_PER_TURN)
        """Two words for each ready socket: descriptor and events."""
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Event descriptor that wakes the loop when another thread has released output."""
        self._epoll.register(self._waker, select.EPOLLIN)
        super().__init__(node, on_stop=on_stop)
        self._asyncio.add_reader(self._descriptor, self._on_ready)

    def stop(self) -> None:
        super().stop()
        self._asyncio.remove_reader(self._descriptor)
        self._epoll.close()
        os.close(self._waker)

    def _on_ready(self) -> None:
        """Run turns while requests keep arriving, for `LOOP_HOLD_SECONDS` at most. Then asyncio handles
        its timers and new connections."""
        began = passed_seconds()
        wait = 0.0
        while not self._stopped and self._one_turn(wait):
            now = passed_seconds()
            if now - began > LOOP_HOLD_SECONDS or self._unstalled:
                return
            wait = LOOP_HOLD_SECONDS
            if self._timer is not None and self._timer_at - now < wait:
                return

    def _wake(self) -> None:
        super()._wake()
        os.eventfd_write(self._waker, 1)

    def _one_turn(self, wait: float) -> bool:
        """Serve the sockets that are ready within ``wait`` seconds. Return whether there was input."""
        count = wait_ready(self._epoll, self._descriptor, wait, self._found)
        if not count:
            return False
        with self.node.lock:
            return self._serve(count)

    def _serve(self, count: int) -> bool:
        """Receive from ready sockets and run a turn. Return whether there was input."""
        ready: list[Session] = []
        handshakes = HANDSHAKES_PER_TURN
        for at in range(count):
            descriptor, event = word_at(self._found, 2 * at), word_at(self._found, 2 * at + 1)
            connection = self.connections.get(descriptor)
            if connection is None:
                if descriptor == self._waker:
                    os.eventfd_read(self._waker)
                    self._send_queued()
                continue
            try:
                if event != _READABLE:
                    if event & _WRITABLE:
                        self._send(connection)
                    if not event & ~_WRITABLE or connection.closed:
                        continue
                if connection.handshaking:
                    if not handshakes:
                        continue  # The socket is ready again the next time, after the others.
                    handshakes -= 1
                if self._receive(connection):
                    ready.append(connection.session)
            except Exception as error:
                self._give_up(connection, error)
        if ready:
            self.run_turn(ready)
        return bool(ready)

    def _watch(self, connection: Connection) -> None:
        self._epoll.register(connection.descriptor, select.EPOLLIN)

    def _unwatch(self, connection: Connection) -> None:
        try:
            self._epoll.unregister(connection.descriptor)
        except OSError:
            pass  # The socket was never registered.

    def _stop_reading(self, connection: Connection) -> None:
        connection.writing = True
        self._epoll.modify(connection.descriptor, select.EPOLLOUT)

    def _write_interest(self, connection: Connection, wanted: bool) -> None:
        connection.writing = wanted
        events = select.EPOLLIN | select.EPOLLOUT if wanted else select.EPOLLIN
        self._epoll.modify(connection.descriptor, events)


class ReaderLoop(Driver):
    """The loop for systems without epoll: an asyncio reader for each socket, and one turn for all
    sockets that are ready in the same iteration of asyncio."""

    def __init__(self, node: Node, *, on_stop: Callable[[], None]) -> None:
        super().__init__(node, on_stop=on_stop)
        self._ready: dict[Session, None] = {}

    def _on_readable(self, connection: Connection) -> None:
        received = False
        with self.node.lock:
            try:
                received = self._receive(connection)
            except Exception as error:
                self._give_up(connection, error)
        if received:
            if not self._ready:
                self._asyncio.call_soon(self._on_ready)
            self._ready[connection.session] = None

    def _on_writable(self, connection: Connection) -> None:
        with self.node.lock:
            try:
                self._send(connection)
            except Exception as error:
                self._give_up(connection, error)

    def _on_ready(self) -> None:
        ready = [session for session in self._ready if not session.closed]
        self._ready = {}
        if not self._stopped:
            with self.node.lock:
                self.run_turn(ready)

    def _watch(self, connection: Connection) -> None:
        self._asyncio.add_reader(connection.descriptor, self._on_readable, connection)

    def _unwatch(self, connection: Connection) -> None:
        self._asyncio.remove_reader(connection.descriptor)
        self._asyncio.remove_writer(connection.descriptor)

    def _stop_reading(self, connection: Connection) -> None:
        self._asyncio.remove_reader(connection.descriptor)
        self._write_interest(connection, True)

    def _write_interest(self, connection: Connection, wanted: bool) -> None:
        connection.writing = wanted
        if wanted:
            self._asyncio.add_writer(connection.descriptor, self._on_writable, connection)
        else:
            self._asyncio.remove_writer(connection.descriptor)


def make_loop(node: Node, *, on_stop: Callable[[], None]) -> Driver:
    """Create the best loop for this system, within the running asyncio loop."""
    kind = EpollLoop if HAS_EPOLL else ReaderLoop
    return kind(node, on_stop=on_stop)
