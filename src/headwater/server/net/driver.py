"""Connects a node to sockets: passes received bytes to a turn, and the turn's output to the sockets.

Rule 1. One turn serves all sockets that were ready, with one commit and one fsync.
Rule 2. An error of a socket closes that connection only. An error of the node stops the server: the
        node's state may be wrong, but the journal is not.
Rule 3. `_on_output` only queues the connection, since another thread may call it (an embedded client of
        the same node). Only the driver's thread sends.
Rule 4. The node's lock is held while input is received, executed and answered: a turn in another
        thread may continue with a session's requests, which are offsets into the receive buffer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from headwater.common import limits
from headwater.server.net.sockets import Connection, ConnectionRejected
from headwater.server.services.observability.traffic import Traffic
from headwater.server.services.replication.link import Groups, LinkRefused
from headwater.server.session.session import Session
from headwater.server.turn.node import Node

log = logging.getLogger("headwater.server")

LAST_BYTES_SECONDS = 60
"""Maximum time that a client may take to accept the last bytes, in seconds."""

LINGER_SECONDS = 2
"""Time for which the socket stays open after the last bytes, in seconds. If the server closed the socket while the
client still sends, the connection would be reset. A reset can overtake the last reply, which often states the
reason."""

SHORTEST_DELAY_S = 0.001
"""Minimum delay of the timer, in seconds, for work that is due but not possible yet (full disk)."""


class Driver:
    """Runs turns and timers, enforces limits, and closes connections. Its subclasses in
    `headwater.server.net.loop` detect which sockets are ready.

    Calls ``on_stop`` once: after SHUTDOWN, or after a failure of the node, whose error is then in `failure`.
    """

    def __init__(self, node: Node, *, on_stop: Callable[[], None]) -> None:
        self.node = node
        self.failure: BaseException | None = None
        """The error because of which the node cannot continue; None if it can."""
        self.connections: dict[int, Connection] = {}
        self.traffic: Traffic = node.services.traffic
        self._asyncio = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._on_stop = on_stop
        self._stopped = False
        self._turning = False
        """True if a turn is running. Output that any thread queues is sent after the turn."""
        self._space = bytearray(limits.RECEIVE_BYTES)
        self._queued: list[Connection] = []
        self._unstalled: dict[Session, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._second = self._asyncio.call_later(1.0, self._each_second)
        node.blocked.offloading.wake = node.blocked.cold_reads.wake = self._wake_for_tick

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
        """Start to serve a connected socket. ``make`` creates its connection, for TCP or TLS."""
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
        """Close every connection. Released output is sent as far as the socket takes it immediately."""
        self._second.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._stopped = True
        self.node.blocked.offloading.wake = self.node.blocked.cold_reads.wake = None
        for connection in list(self.connections.values()):
            self._send(connection)
            self.close(connection)

    # --- turns ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do the work that is due by time. Tests call it after they have moved the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self.node.lock:
            self.run_turn(None)

    def run_turn(self, ready: list[Session] | None) -> None:
        """Run a turn for the sessions in ``ready``, or a tick if it is None, then send the output. The caller must
        hold the node's lock (rule 4)."""
        self._turning = True
        try:
            self.node.turn_locked(ready)
        except Exception as error:
            self.fail(error)
            return
        finally:
            self._turning = False
        self._after_turn()

    def follow(self, groups: Groups) -> int:
        """Apply the groups of a primary, then send the output (`Node.follow`). The caller must hold the node's lock."""
        self._turning = True
        try:
            applied = self.node.follow(groups)
        except LinkRefused:
            raise
        except Exception as error:
            self.fail(error)
            raise LinkRefused("they could not be applied") from error
        finally:
            self._turning = False
        self._after_turn()
        return applied

    def _after_turn(self) -> None:
        self._send_queued()
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
                return  # The timer fires earlier, does nothing and is set again.
            self._timer.cancel()
        self._timer_at = deadline
        delay = max(SHORTEST_DELAY_S, deadline - self.node.clock.monotonic())
        self._timer = self._asyncio.call_later(delay, self.tick)

    def fail(self, error: BaseException) -> None:
        """Stop the server because the node failed. The node's state is no longer read."""
        log.critical("the server stops: a turn failed", exc_info=error)
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
            return  # The connection is closed.
        if not connection.queued:
            connection.queued = True
            self._queued.append(connection)
        if not self._turning and threading.get_ident() != self._thread:
            self._wake()

    def _wake(self) -> None:
        """Request that the queued output be sent. Thread-safe."""
        self._asyncio.call_soon_threadsafe(self._send_all)

    def _wake_for_tick(self) -> None:
        """Request a tick. Thread-safe."""
        with suppress(RuntimeError):  # the asyncio loop is closed
            self._asyncio.call_soon_threadsafe(self._tick_unless_stopped)

    def _tick_unless_stopped(self) -> None:
        if not self._stopped:
            self.tick()

    def _send_all(self) -> None:
        with self.node.lock:  # released output belongs to the node until it is taken
            self._send_queued()

    def _send_queued(self) -> None:
        while self._queued:
            queued, self._queued = self._queued, []
            for connection in queued:
                connection.queued = False
                if not connection.closed:
                    try:
                        self._send(connection)
                    except Exception as error:
                        self._give_up(connection, error)

    def _send(self, connection: Connection) -> None:
        """Send queued output. Close the connection after its last output, or if too much is left."""
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
        if output.stalled and output.takes_more(self.node.clients.output_ahead_bytes):
            self._resume(session)
        if connection.unsent:
            if not connection.writing:
                self._write_interest(connection, True)
            self._check_output_limit(connection)
        elif session.closing or (connection.ended and not self._expects_replies(session)):
            self._finish(connection)
        elif connection.writing and not connection.ended:
            self._write_interest(connection, False)

    def _resume(self, session: Session) -> None:
        """Resume the requests of a client that has taken enough of its replies. They run in a separate
        turn, after the sessions that are ready now."""
        replica = self.node.services.replication.replicas.by_session.get(session)
        if replica is not None:  # its thread goes on
            session.output.stalled = False
            replica.room.set()
            return
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
        if not session.may_run_commands and not connection.handshaking:
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
        """Read from the socket once. Return whether there is new input for a turn."""
        try:
            count = connection.receive(self._space)
        except ConnectionRejected as reason:
            self._reject(connection, reason)
            return False
        except OSError as error:
            self.close(connection, error)
            return False
        if count < 0:
            if connection.unsent and not connection.writing:
                self._write_interest(connection, True)  # part of a handshake
            return False
        if count == 0:
            self._on_end_of_input(connection)
            return False
        self.traffic.reads += 1
        self.traffic.received_bytes += count
        connection.received += count
        session = connection.session
        if session.closing:
            return False
        session.scanner.feed_part(self._space, count)
        most = self.node.clients.query_buffer_limit
        if session.blocked and not session.may_run_commands:
            most = min(most, limits.MAX_INPUT_BYTES_BEFORE_AUTH)
        if session.input_bytes() > most:
            self._cut_off(session, connection)
            return False
        return True

    def _cut_off(self, session: Session, connection: Connection) -> None:
        """Disconnect a client with too much input that has not been executed."""
        self.traffic.input_limit_disconnections += 1
        self.node.services.client_log.warning(
            "client %s (%s) is disconnected: %d bytes of its input are not executed yet "
            "(client-query-buffer-limit)",
            session.id,
            session.client.address,
            session.input_bytes(),
        )
        self.close(connection)

    def _on_end_of_input(self, connection: Connection) -> None:
        """Handle the end of a client's input. The client still gets the replies to its requests."""
        if connection.chunks or connection.unsent or self._expects_replies(connection.session):
            connection.ended = True
            self._stop_reading(connection)
        else:
            self.close(connection)

    def _expects_replies(self, session: Session) -> bool:
        """Return whether the client still waits for replies to received requests."""
        return session.output.stalled or self.node.blocked.works_for(session)

    # --- the end of a connection ----------------------------------------------------------------

    def _give_up(self, connection: Connection, error: Exception) -> None:
        """Close a connection that cannot be served because of an internal error, such as a lack of memory."""
        self.node.services.faults.record(error, f"the connection of client {connection.session.id}")
        self.close(connection)

    def close(self, connection: Connection, error: BaseException | None = None) -> None:
        """Close a connection, with or without an ``error``."""
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
        connection.session.driver = None  # breaks a reference cycle

    def _reject(self, connection: Connection, reason: ConnectionRejected) -> None:
        """Close the connection of a client to which the reason was sent. Discard its further input."""
        address = connection.session.client.address
        self.node.services.client_log.info("client %s is rejected: %s", address, reason)
        self.traffic.rejected_connections += 1
        connection.session.closing = True
        connection.drop_output()
        self._finish(connection)

    def _finish(self, connection: Connection) -> None:
        """End the output. Discard the client's input until it closes the connection."""
        self.node.close_session(connection.session)
        connection.session.client.last_interaction = self.node.clock.monotonic()
        try:
            connection.finish()
            self._write_interest(connection, False)
        except OSError:
            self.close(connection)

    def _each_second(self) -> None:
        self._second = self._asyncio.call_later(1.0, self._each_second)
        commands, turns = self.node.observer.commands_processed(), self.node.records.turn
        self.traffic.sample(self._asyncio.time(), commands, turns)
        self.node.services.client_log.report()
        if self.node.services.storage.checkpoints.due():  # the previous one failed
            self.tick()
        replicas = self.node.services.replication.replicas
        if replicas.by_session or replicas.keeps:
            with self.node.lock:
                replicas.look_after(self.node.services.config)
                self.run_turn(None)
        self.sweep()

    def sweep(self) -> None:
        """Disconnect clients that have been idle or above the soft limit for too long, or that take too long to
        accept the last bytes, to close the connection or to complete their handshake."""
        timeout = self.node.services.config.timeout
        now = self.node.clock.monotonic()
        for connection in list(self.connections.values()):
            session = connection.session
            idle = now - session.client.last_interaction
            if idle > limits.RESTING_SECONDS:
                session.rest()
            age = now - session.client.created
            waits = session.blocked or session.subscriptions.active
            patience = LAST_BYTES_SECONDS if connection.unsent else LINGER_SECONDS
            if (
                ((session.closing or connection.ended) and idle > patience)
                or (timeout and idle > timeout and not waits)
                or (connection.handshaking and age > limits.MAX_HANDSHAKE_SECONDS)
            ):
                self.close(connection)
            elif connection.unsent:
                self._check_output_limit(connection)

    # --- implemented by each loop ----------------------------------------------------------------

    def _watch(self, connection: Connection) -> None:
        """Start to watch for input. Raises `OSError`."""
        raise NotImplementedError

    def _unwatch(self, connection: Connection) -> None:
        """Stop watching the socket."""
        raise NotImplementedError

    def _stop_reading(self, connection: Connection) -> None:
        """Stop watching for input. Keep watching for the socket to accept output."""
        raise NotImplementedError

    def _write_interest(self, connection: Connection, wanted: bool) -> None:
        """Start or stop watching for the socket to accept output, in addition to input."""
        raise NotImplementedError
