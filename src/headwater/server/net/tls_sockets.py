"""A client behind TLS: records on its socket, plain bytes for its session.

    socket ──recv──▶ _incoming ──▶ SSLObject ──read──▶ Session
    socket ◀──send── _raw ◀── _outgoing ◀── SSLObject ◀──write── chunks

OpenSSL sees no socket, only memory, and so never waits for one.

Rule 1. After `receive` nothing that was sent is left undecrypted but a part of a record: epoll
        knows of all that can be read.
Rule 2. What OpenSSL says by itself (its part of a handshake, an alert, a new key, a ticket) goes
        out by the same way and in the same order as replies.
Rule 3. Nothing is set up for a client that has sent nothing: a silent connection costs a socket.
Rule 4. Who cannot be served is told why in what it speaks: an alert, or plain text; the connection
        then lingers, for a reset could overtake that.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any, NoReturn, cast

from headwater.limits import MAX_TLS_RECORD_BYTES, TLS_AHEAD_BYTES
from headwater.server.net.sockets import Connection, TurnedAway
from headwater.server.session.session import Session

_HANDSHAKE = 0x16
"""First byte of every connection that speaks TLS: the type of a handshake record."""

NOT_TLS = (
    b"-ERR this port speaks TLS and what arrived is plain text; connect with TLS (rediss://, "
    b"redis-cli --tls) or to the port without it\r\n"
)


class TlsConnection(Connection):
    """A `Connection` with TLS between socket and session.

    ``denial`` is what is said to the client as soon as it can read it, and then no more.
    """

    __slots__ = ("_context", "_denial", "_incoming", "_outgoing", "_over", "_raw", "_tls")

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
        self._raw = memoryview(b"")
        """Records that the socket has not taken yet."""
        self._over = False
        """The last record was written; what still arrives is read over."""

    # --- input ----------------------------------------------------------------------------------

    def receive(self, space: bytearray) -> int:
        """Read once and decrypt: the number of plain bytes now in ``space``, 0 at the end, -1 when
        there are none yet. Raises `TurnedAway` and `OSError`."""
        try:
            with memoryview(space) as view:
                return self._receive(view)
        except (BlockingIOError, InterruptedError):
            return -1

    def _receive(self, space: memoryview) -> int:
        if self._over:
            return self.socket.recv_into(space)
        # With the part of a record that was left, what comes now still fits once it is decrypted.
        count = self.socket.recv_into(space[: len(space) - MAX_TLS_RECORD_BYTES])
        if count == 0:
            return 0
        if self._tls is None:
            self._begin(space[0])
        self._incoming.write(space[:count])
        if self.handshaking:
            self._shake()
        total = self._decrypt(space)
        if self._outgoing.pending and not self._raw:
            self._try_flush()
        if total < 0:
            raise BlockingIOError
        return total

    def _begin(self, first: int) -> None:
        if first != _HANDSHAKE:
            self._over = True
            self._send_plain(NOT_TLS)
            raise TurnedAway("plain text at the port for TLS")
        self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def _shake(self) -> None:
        """Go on with the handshake; returns when it is done."""
        assert self._tls is not None, "it begins with the first byte"
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._try_flush()
            raise BlockingIOError from None
        except ssl.SSLError as error:
            self._refuse(f"no TLS handshake: {_reason(error)}")
        self.handshaking = False
        if self._denial:
            self._tls.write(self._denial)
            self._refuse("protected mode")

    def _decrypt(self, space: memoryview) -> int:
        """Plain bytes into ``space``: how many, 0 at the client's end, -1 when there are none."""
        assert self._tls is not None, "it begins with the first byte"
        total, count = 0, 1
        try:
            while count:
                # With a buffer it answers how much it put there, whatever typeshed says.
                count = cast("int", self._tls.read(len(space) - total, cast("Any", space[total:])))
                total += count
        except ssl.SSLWantReadError:
            return total or -1
        except ssl.SSLError as error:
            self._refuse(f"TLS is broken: {_reason(error)}")
        # close_notify. The socket need not end with it: let epoll say so in the next turn.
        self.socket.shutdown(socket.SHUT_RD)
        return total

    # --- output ---------------------------------------------------------------------------------

    def send(self) -> int:
        """As `Connection.send`, in records; plain bytes count as sent when they are in one."""
        total = 0
        self.put_in_line()
        try:
            self._flush()
            while self.chunks and not self.handshaking and not self._over:
                total += self._encrypt()
                self._flush()
        except (BlockingIOError, InterruptedError):
            pass
        self.sent += total
        self.unsent = sum(map(len, self.chunks or ())) + len(self._raw)
        return total

    def _encrypt(self) -> int:
        """Make records of the next chunks, no more than a socket takes at once."""
        assert self._tls is not None, "it begins with the first byte"
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
        """Give the socket every record. Raises `BlockingIOError` when it takes no more now."""
        while self._raw or self._outgoing.pending:
            if not self._raw:
                self._raw = memoryview(self._outgoing.read())
            self._raw = self._raw[self.socket.send(self._raw) :]

    def _try_flush(self) -> None:
        """The same; what is left waits in line. An error is found by who reads or writes next."""
        try:
            self._flush()
        except OSError:
            pass
        self.unsent = sum(map(len, self.chunks or ())) + len(self._raw)

    # --- the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        """close_notify, then the end of the socket's output. Raises `OSError`."""
        self._say_the_end()
        super().finish()

    def discard_input(self, space: bytearray) -> None:
        self._say_the_end()
        super().discard_input(space)

    def _say_the_end(self) -> None:
        if self._tls is not None and not self.handshaking and not self._over:
            try:
                self._tls.unwrap()
            except OSError:
                pass  # It wants the client's close_notify, which is read over like all the rest.
            self._try_flush()
        self._over = True

    def _refuse(self, reason: str) -> NoReturn:
        """OpenSSL has put its alert in line: send it, and read nothing more."""
        self._try_flush()
        self._say_the_end()
        raise TurnedAway(reason) from None

    def _send_plain(self, text: bytes) -> None:
        try:
            self.socket.send(text)
        except OSError:
            pass


def _reason(error: ssl.SSLError) -> str:
    """``certificate verify failed: self-signed certificate``, without OpenSSL's files and lines."""
    text = (error.reason or str(error)).replace("_", " ").lower()
    found = getattr(error, "verify_message", "")
    return f"{text}: {found}" if found else text
