"""A TCP proxy that can close a connection before a request reaches the server, or after the server has
replied and before the client has the reply; and that can be slow."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Literal, NamedTuple, Self


class Cut(NamedTuple):
    """Closes the connection at the next request that contains ``marker``: ``before`` the server receives
    it, or ``after`` the server has replied."""

    marker: bytes
    when: Literal["before", "after"]


class CuttingProxy:
    """Forwards to a port of 127.0.0.1, except for the requests in ``cuts``, each of which is cut once."""

    def __init__(self, port: int) -> None:
        self.cuts: list[Cut] = []
        self.connections = 0
        self.silent = False
        """Whether replies are dropped while the connection stays open."""
        self.rate: float | None = None
        """How many bytes a second a connection takes in each direction."""
        self.piece = 16 * 1024
        self._closed = threading.Event()
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._links: list[_Link] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Refuse new connections and close the open ones."""
        self._closed.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        for link in self._links:
            link.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.close()

    def take(self, request: bytes) -> Cut | None:
        """Remove and return the cut that matches ``request``, if any."""
        for cut in self.cuts:
            if cut.marker in request.upper():
                self.cuts.remove(cut)
                return cut
        return None

    def received(self, sock: socket.socket) -> bytes:
        """Return what has arrived; as much as the rate allows, and later."""
        rate = self.rate
        data = sock.recv(self.piece if rate else 1 << 20)
        if rate:
            self._closed.wait(len(data) / rate)
        return data

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.create_connection(("127.0.0.1", self._target))
            self._links.append(_Link(self, client, server))


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._cutting = False
        for pump in (self._forward, self._answer):
            threading.Thread(target=pump, daemon=True).start()

    def end(self) -> None:
        for side in (self._client, self._server):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()

    def _forward(self) -> None:
        with suppress(OSError):
            while request := self._proxy.received(self._client):
                cut = self._proxy.take(request)
                if cut is not None and cut.when == "before":
                    break
                self._cutting = cut is not None
                self._server.sendall(request)
                if cut is not None:
                    return  # `_answer` closes it
        self.end()

    def _answer(self) -> None:
        with suppress(OSError):
            while answer := self._proxy.received(self._server):
                if self._cutting:
                    break
                if not self._proxy.silent:
                    self._client.sendall(answer)
        self.end()
