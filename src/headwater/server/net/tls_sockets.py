"""A TLS connection: records on its socket, plain bytes in its session.

    socket ──recv──▶ _incoming ──▶ SSLObject ──read──▶ Session
    socket ◀──send── _encrypted ◀── _outgoing ◀── SSLObject ◀──write── chunks

OpenSSL reads and writes only memory, never a socket, and therefore never blocks.

Rule 1. `receive` decrypts all that was received, except for an incomplete record. Therefore epoll
        reports everything that can still be read.
Rule 2. OpenSSL's own messages (its part of a handshake, an alert, a new key, a ticket) are sent in
        the same way and order as replies.
Rule 3. The `SSLObject` is created when a client's first bytes arrive: a silent connection takes little memory.
Rule 4. A client that cannot be served gets the reason in the form that it expects: an alert, or plain text. Then
        the socket stays open for a while, because a reset could overtake the reason.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any, NoReturn, cast

from headwater.common.limits import MAX_TLS_RECORD_BYTES, TLS_AHEAD_BYTES
from headwater.server.net.sockets import Connection, ConnectionRejected
from headwater.server.session.session import Session

_HANDSHAKE = 0x16
"""The first byte of every TLS connection: the type of a handshake record."""

NOT_TLS = (
    b"-ERR this port requires TLS but received plain text; connect with TLS (rediss://, "
    b"redis-cli --tls) or to the port without TLS\r\n"
)


class TlsConnection(Connection):
    """A `Connection` with TLS between socket and session.

    ``denial`` is sent to the client after the handshake, and then the connection ends.
    """

    __slots__ = ("_closing", "_context", "_denial", "_encrypted", "_incoming", "_outgoing", "_tls")

    def __init__(
        self,
        client: socket.socket,
        session: Session,
        *,
        context: ssl.SSLContext,
        denial: bytes = b"",
    ) -> None:
        super().__init__(client, session)
        self._denial = denial
        self.handshaking = True
        self._context = context
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._encrypted = memoryview(b"")
        """Records that the socket has not taken yet."""
        self._closing = False
        """True if the last record was written. Later input is discarded."""

    # --- input ----------------------------------------------------------------------------------

    def receive(self, space: bytearray) -> int:
        """Read once and decrypt. Return the number of plain bytes in ``space``, 0 at the end of
        input, -1 if none can be read yet. Raises `ConnectionRejected` and `OSError`."""
        try:
            with memoryview(space) as view:
                return self._receive(view)
        except (BlockingIOError, InterruptedError):
            return -1

    def _receive(self, space: memoryview) -> int:
        if self._closing:
            return self.socket.recv_into(space)
        # Leave space for an incomplete record from before: it and the new bytes are decrypted into ``space``.
        count = self.socket.recv_into(space[: len(space) - MAX_TLS_RECORD_BYTES])
        if count == 0:
            return 0
        if self._tls is None:
            self._start(space[0])
        self._incoming.write(space[:count])
        if self.handshaking:
            self._handshake()
        total = self._decrypt(space)
        if self._outgoing.pending and not self._encrypted:
            self._try_flush()
        if total < 0:
            raise BlockingIOError
        return total

    def _start(self, first: int) -> None:
        if first != _HANDSHAKE:
            self._closing = True
            self._send_plain(NOT_TLS)
            raise ConnectionRejected("plain text at the TLS port")
        self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def _handshake(self) -> None:
        """Continue the handshake. Raises `BlockingIOError` until it is complete."""
        assert self._tls is not None, "_start() creates it"
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._try_flush()
            raise BlockingIOError from None
        except ssl.SSLError as error:
            self._refuse(f"the TLS handshake failed: {_reason(error)}")
        self.handshaking = False
        if self._denial:
            self._tls.write(self._denial)
            self._refuse("protected mode")

    def _decrypt(self, space: memoryview) -> int:
        """Decrypt into ``space``. Return the number of bytes, 0 at the end, -1 if none can be read."""
        assert self._tls is not None, "_start() creates it"
        total, count = 0, 1
        try:
            while count:
                # With a buffer, read() returns the number of bytes; typeshed has a wrong type.
                count = cast("int", self._tls.read(len(space) - total, cast("Any", space[total:])))
                total += count
        except ssl.SSLWantReadError:
            return total or -1
        except ssl.SSLError as error:
            self._refuse(f"TLS error: {_reason(error)}")
        # The client sent close_notify, but may leave the socket open: let epoll report the end next turn.
        self.socket.shutdown(socket.SHUT_RD)
        return total

    # --- output ---------------------------------------------------------------------------------

    def send(self) -> int:
        """Send output as `Connection.send` does, in records. Plain bytes in a record count as sent."""
        total = 0
        self.queue_released()
        try:
            self._flush()
            while self.chunks and not self.handshaking and not self._closing:
                total += self._encrypt()
                self._flush()
        except (BlockingIOError, InterruptedError):
            pass
        self.sent += total
        self.unsent = sum(map(len, self.chunks or ())) + len(self._encrypted)
        return total

    def _encrypt(self) -> int:
        """Encrypt up to `TLS_AHEAD_BYTES` of the chunks. Return the number of bytes."""
        assert self._tls is not None, "_start() creates it"
        total = 0
        while self.chunks and total < TLS_AHEAD_BYTES:
            first = self.chunks[0]
            count = self._tls.write(memoryview(first)[: TLS_AHEAD_BYTES - total])
            total += count
            if count == len(first):
                self.chunks.popleft()
            else:
                self.chunks[0] = memoryview(first)[count:]
        return total

    def _flush(self) -> None:
        """Send all records. Raises `BlockingIOError` if the socket is full."""
        while self._encrypted or self._outgoing.pending:
            if not self._encrypted:
                self._encrypted = memoryview(self._outgoing.read())
            self._encrypted = self._encrypted[self.socket.send(self._encrypted) :]

    def _try_flush(self) -> None:
        """Send records as `_flush` does, without raising errors: the next read or write reports them."""
        try:
            self._flush()
        except OSError:
            pass
        self.unsent = sum(map(len, self.chunks or ())) + len(self._encrypted)

    # --- the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        """Send close_notify, then end the socket's output. Raises `OSError`."""
        self._send_close_notify()
        super().finish()

    def discard_input(self, space: bytearray) -> None:
        self._send_close_notify()
        super().discard_input(space)

    def _send_close_notify(self) -> None:
        if self._tls is not None and not self.handshaking and not self._closing:
            try:
                self._tls.unwrap()
            except OSError:
                pass  # OpenSSL waits for the client's close_notify, which is discarded with all other input.
            self._try_flush()
        self._closing = True

    def _refuse(self, reason: str) -> NoReturn:
        """Send what OpenSSL has queued, such as an alert, and raise `ConnectionRejected`."""
        self._try_flush()
        self._send_close_notify()
        raise ConnectionRejected(reason) from None

    def _send_plain(self, text: bytes) -> None:
        try:
            self.socket.send(text)
        except OSError:
            pass


def _reason(error: ssl.SSLError) -> str:
    """Describe an error, without OpenSSL's file names and lines:
    ``certificate verify failed: self-signed certificate``."""
    text = (error.reason or str(error)).replace("_", " ").lower()
    found = getattr(error, "verify_message", "")
    return f"{text}: {found}" if found else text
