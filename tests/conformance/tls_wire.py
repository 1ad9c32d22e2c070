"""TLS connections to a server: ordinary ones, and ones that send records as the test cuts them."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

import pytest

from headwater.testing.server import ServerThread
from tests.conformance.wire import SECONDS, Wire

StartTls = Callable[..., ServerThread]


@contextmanager
def secured(
    server: ServerThread, context: ssl.SSLContext, *, host: str = "127.0.0.1"
) -> Iterator[Wire]:
    """Connect through TLS. The end of the connection without close_notify is an error."""
    with socket.create_connection((host, server.config.tls_port), timeout=SECONDS) as plain:
        with context.wrap_socket(
            plain, server_hostname="localhost", suppress_ragged_eofs=False
        ) as client:
            wire = Wire(client)
            with wire.file:
                yield wire


class Records:
    """A TLS client that returns the bytes to send, so that a test can cut and join them."""

    def __init__(self, server: ServerThread, context: ssl.SSLContext) -> None:
        self.socket = socket.create_connection(
            ("127.0.0.1", server.config.tls_port), timeout=SECONDS
        )
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def hello(self) -> bytes:
        """Return the first bytes of the handshake."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._outgoing.read()

    def handshake(self, *, cut: int | None = None) -> None:
        """Perform the handshake, sending ``cut`` bytes at a time."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.send(self._outgoing.read(), cut=cut)
                self._incoming.write(self.socket.recv(1 << 16))
            else:
                self.send(self._outgoing.read(), cut=cut)
                return

    def records(self, *pieces: bytes) -> bytes:
        """Return a record for each piece."""
        for piece in pieces:
            self.tls.write(piece)
        return self._outgoing.read()

    def goodbye(self) -> bytes:
        """Return close_notify."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self._outgoing.read()

    def send(self, data: bytes, *, cut: int | None = None) -> None:
        for index in range(0, len(data), cut or max(1, len(data))):
            self.socket.sendall(data[index : index + (cut or len(data))])

    def receive(self, count: int) -> bytes:
        """Receive ``count`` plain bytes, or fewer at the end of the connection."""
        got = b""
        while len(got) < count:
            try:
                data = self.tls.read(count - len(got))
            except ssl.SSLWantReadError:
                raw = self.socket.recv(1 << 16)
                assert raw, f"the socket ended without close_notify after {got!r}"
                self._incoming.write(raw)
                continue
            except ssl.SSLZeroReturnError:
                data = b""
            if not data:
                return got
            got += data
        return got

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
