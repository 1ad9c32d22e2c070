"""Drives a node by sockets: what was received into a turn, what the turn released to the sockets.

Rule 1. One turn serves every socket that was ready: one commit, one fsync for all of them.
Rule 2. An error of one socket ends that connection and nothing else. An error of the node ends the
        server: what it holds may be wrong, what the journal holds is not.
Rule 3. `on_output` only puts bytes in line; it may come from another thread (an embedded client of
        the same node). All sending is done in the driver's own.
Rule 4. Input is taken, run and answered under the node's lock: a turn in another thread may go on
        with a session's requests, by offsets into the buffer that input goes to.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from headwater import limits
from headwater.server.net.sockets import Connection, TurnedAway
from headwater.server.services.observability.traffic import Traffic
from headwater.server.session.session import Session
from headwater.server.turn.node import Node

log = logging.getLogger("headwater.server")

LAST_BYTES_SECONDS = 60
"""How long a client may take to accept the last bytes that it gets."""

LINGER_SECONDS = 2
"""How long the socket stays after them: closing while the client still sends would reset the
connection, and the reset can overtake the last reply, which often explains the closing."""

SHORTEST_DELAY_S = 0.001
"""What is due and cannot be done yet (a full disk) must not keep the loop spinning."""


class Driver:
    """Turns, timers, limits, the end. `headwater.server.net.loop` says when a socket is ready.

    ``on_stop`` is called once, when SHUTDOWN was asked for or the node cannot go on; `failure` says
    which.
    """

    def __init__(self, node: Node, *, on_stop: Callable[[], None]) -> None:
        self.node = node
        self.failure: BaseException | None = None
        """Why the node cannot go on."""
        self.connections: dict[int, Connection] = {}
        self.traffic: Traffic = node.services.traffic
        self._asyncio = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._on_stop = on_stop
        self._stopped = False
        self._turning = False
        """What is put in line now is sent when this turn is over, whoever puts it there."""
        self._space = bytearray(limits.RECEIVE_BYTES)
        self._in_line: list[Connection] = []
        self._unstalled: dict[Session, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._second = self._asyncio.call_later(1.0, self._each_second)
        node.blocked.offloading.wake = self._wake_for_tick

    # --- for the listener -----------------------------------------------------------------------

    def adopt(
        self,
        client: socket.socket,
        *,
        kind: str,
        address: str,
        local_address: str,
        make: Callable[[socket.socket, Session], Connection] = Connection,
    ) -> None:
        """Serve a connected socket from now on; ``make`` says what is spoken on it."""
        client.setblocking(False)
        session = self.node.connect(
            kind=kind, address=address, local_address=local_address, on_output=self._on_output
        )
        connection = make(client, session)
        session.driver = connection
        self.connections[connection.descriptor] = connection
        try:
            self._watch(connection)
        except OSError as error:
            self.close(connection, error)

    def stop(self) -> None:
        """End every connection; what was released is sent if the socket takes it at once."""
        self._second.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._stopped = True
        self.node.blocked.offloading.wake = None
        for connection in list(self.connections.values()):
            self._send(connection)
            self.close(connection)

    # --- turns ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """What time alone asks for; a test calls it after it has moved the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self.node.lock:
            self.run_turn(None)

    def run_turn(self, ready: list[Session] | None) -> None:
        """A turn for these sessions, or for None a tick, and its outcome to the sockets; under the
        node's lock (rule 4)."""
        self._turning = True
        try:
            self.node.turn_locked(ready)
        except Exception as error:
            self._fail(error)
            return
        finally:
            self._turning = False
        self._after_turn()

    def _after_turn(self) -> None:
        self._send_in_line()
        if self.node.state.poisoned is not None and self.failure is None:
            self.failure = self.node.state.poisoned
            log.critical("%s", self.failure)
        if self.node.state.stopping:
            self._end()
            return
        deadline = self.node.next_deadline()
        if deadline is None:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return  # It comes early, does nothing and asks again.
            self._timer.cancel()
        self._timer_at = deadline
        delay = max(SHORTEST_DELAY_S, deadline - self.node.clock.monotonic())
        self._timer = self._asyncio.call_later(delay, self.tick)

    def _fail(self, error: BaseException) -> None:
        """The node broke: nothing more is read from its state, and the server ends."""
        log.critical("the server ends: a turn failed", exc_info=error)
        self.failure = error
        self._end()

    def _end(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._on_stop()

    # --- output ---------------------------------------------------------------------------------

    def _on_output(self, session: Session) -> None:
        connection: Connection | None = session.driver
        if connection is None:
            return  # It is closed.
        if not connection.in_line:
            connection.in_line = True
            self._in_line.append(connection)
        if not self._turning and threading.get_ident() != self._thread:
            self._wake()

    def _wake(self) -> None:
        """There is output in line; called in any thread."""
        self._asyncio.call_soon_threadsafe(self._send_all)

    def _wake_for_tick(self) -> None:
        """There is something for a tick to do; called in any thread."""
        with suppress(RuntimeError):  # asyncio has ended
            self._asyncio.call_soon_threadsafe(self._tick_unless_stopped)

    def _tick_unless_stopped(self) -> None:
        if not self._stopped:
            self.tick()

    def _send_all(self) -> None:
        with self.node.lock:  # what is released belongs to the node until it is taken
            self._send_in_line()

    def _send_in_line(self) -> None:
        while self._in_line:
            in_line, self._in_line = self._in_line, []
            for connection in in_line:
                connection.in_line = False
                if not connection.closed:
                    self._send(connection)

    def _send(self, connection: Connection) -> None:
        """Send what is in line; close a connection that ends with it or has too much in it."""
        try:
            count = connection.send()
        except OSError as error:
            self.close(connection, error)
            return
        self.traffic.writes += 1
        self.traffic.sent_bytes += count
        session = connection.session
        output = session.output
        output.taken_bytes += count
        if output.stalled and output.unsent <= self.node.clients.output_ahead_bytes:
            self._go_on(session)
        if connection.unsent:
            if not connection.writing:
                self._write_interest(connection, True)
            self._check_output_limit(connection)
        elif session.closing or (connection.ended and not self._has_more_to_say(session)):
            self._finish(connection)
        elif connection.writing and not connection.ended:
            self._write_interest(connection, False)

    def _go_on(self, session: Session) -> None:
        """The client has taken enough of its answers: the requests behind them run, in a turn of
        their own and after whoever is ready now."""
        if not self._unstalled:
            self._asyncio.call_soon(self._run_unstalled)
        self._unstalled[session] = None

    def _run_unstalled(self) -> None:
        sessions = [session for session in self._unstalled if not session.closed]
        self._unstalled = {}
        if not self._stopped:
            with self.node.lock:
                self.run_turn(sessions)

    def _check_output_limit(self, connection: Connection) -> None:
        session, config = connection.session, self.node.services.config
        if session.subscriptions.cut_off:
            self.close(connection)
            return
        hard, soft, seconds = config.output_limit(listening=session.subscriptions.active)
        if not session.let_in and not connection.handshaking:
            most = limits.MAX_OUTPUT_BYTES_BEFORE_AUTH
            hard = min(hard or most, most)
        if soft and connection.unsent > soft:
            now = self._asyncio.time()
            connection.over_soft_since = connection.over_soft_since or now
            over_soft = now - connection.over_soft_since >= seconds
        else:
            connection.over_soft_since = 0.0
            over_soft = False
        if over_soft or (hard and connection.unsent > hard):
            self.traffic.output_limit_disconnections += 1
            self.node.services.client_log.warning(
                "client %s (%s) is disconnected: it has not read %d bytes of its replies "
                "(client-output-buffer-limit)",
                session.id,
                session.client.address,
                connection.unsent,
            )
            self.close(connection)

    # --- input ----------------------------------------------------------------------------------

    def _receive(self, connection: Connection) -> bool:
        """Read once; whether there is anything new for a turn."""
        try:
            count = connection.receive(self._space)
        except TurnedAway as reason:
            self._turn_away(connection, reason)
            return False
        except OSError as error:
            self.close(connection, error)
            return False
        if count < 0:
            if connection.unsent and not connection.writing:
                self._write_interest(connection, True)  # a part of a handshake
            return False
        if count == 0:
            self._at_end(connection)
            return False
        self.traffic.reads += 1
        self.traffic.received_bytes += count
        connection.received += count
        session = connection.session
        if session.closing:
            return False
        session.scanner.feed_part(self._space, count)
        most = self.node.clients.query_buffer_limit
        if session.blocked and not session.let_in:
            most = min(most, limits.MAX_INPUT_BYTES_BEFORE_AUTH)
        if session.input_bytes() > most:
            self._cut_off(session, connection)
            return False
        return True

    def _cut_off(self, session: Session, connection: Connection) -> None:
        """Disconnect a client that sent more than it may before it runs."""
        self.traffic.input_limit_disconnections += 1
        self.node.services.client_log.warning(
            "client %s (%s) is disconnected: %d bytes of its input wait "
            "(client-query-buffer-limit)",
            session.id,
            session.client.address,
            session.input_bytes(),
        )
        self.close(connection)

    def _at_end(self, connection: Connection) -> None:
        """The client sends no more: what it has asked for is still its own."""
        if connection.chunks or connection.unsent or self._has_more_to_say(connection.session):
            connection.ended = True
            self._stop_reading(connection)
        else:
            self.close(connection)

    def _has_more_to_say(self, session: Session) -> bool:
        """Whether answers to what a client has sent are still to come, though it sends no more."""
        return session.output.stalled or session in self.node.blocked.offloading

    # --- the end of a connection ----------------------------------------------------------------

    def close(self, connection: Connection, error: BaseException | None = None) -> None:
        """End a connection, for whatever reason."""
        if connection.closed:
            return
        connection.closed = True
        del self.connections[connection.descriptor]
        if error is not None and not isinstance(error, ConnectionError):
            self.node.services.client_log.warning("client %s: %s", connection.session.id, error)
        connection.drop_output()
        connection.unsent = 0
        self._unwatch(connection)
        connection.discard_input(self._space)
        connection.socket.close()
        self.node.close_session(connection.session)
        connection.session.driver = None  # Else both would wait for the cyclic collector.

    def _turn_away(self, connection: Connection, reason: TurnedAway) -> None:
        """It was told why; what it still sends is read over."""
        address = connection.session.client.address
        self.node.services.client_log.info("client %s is turned away: %s", address, reason)
        self.traffic.rejected_connections += 1
        connection.session.closing = True
        connection.drop_output()
        self._finish(connection)

    def _finish(self, connection: Connection) -> None:
        """The client has its last byte: let it close, and read over what it still sends."""
        self.node.close_session(connection.session)
        connection.session.client.last_interaction = self.node.clock.monotonic()
        try:
            connection.finish()
            self._write_interest(connection, False)
        except OSError:
            self.close(connection)

    def _each_second(self) -> None:
        self._second = self._asyncio.call_later(1.0, self._each_second)
        self.traffic.sample(self._asyncio.time(), self.node.observer.commands_processed())
        self.node.services.client_log.report()
        self.sweep()

    def sweep(self) -> None:
        """Disconnect who was idle for too long, is over the soft limit for too long, or does not
        take the last bytes or the end, and whose handshake does not end."""
        timeout = self.node.services.config.timeout
        now = self.node.clock.monotonic()
        for connection in list(self.connections.values()):
            session = connection.session
            idle = now - session.client.last_interaction
            if idle > limits.RESTING_SECONDS:
                session.rest()
            age, waits = (
                now - session.client.created,
                session.blocked or session.subscriptions.active,
            )
            patience = LAST_BYTES_SECONDS if connection.unsent else LINGER_SECONDS
            if (
                ((session.closing or connection.ended) and idle > patience)
                or (timeout and idle > timeout and not waits)
                or (connection.handshaking and age > limits.MAX_HANDSHAKE_SECONDS)
            ):
                self.close(connection)
            elif connection.unsent:
                self._check_output_limit(connection)

    # --- what each loop does its own way ---------------------------------------------------------

    def _watch(self, connection: Connection) -> None:
        """Begin to receive. Raises `OSError`."""
        raise NotImplementedError

    def _unwatch(self, connection: Connection) -> None:
        """Be told nothing more."""
        raise NotImplementedError

    def _stop_reading(self, connection: Connection) -> None:
        """Be told only when the socket takes more."""
        raise NotImplementedError

    def _write_interest(self, connection: Connection, wanted: bool) -> None:
        """Whether to be told also when the socket takes more."""
        raise NotImplementedError
