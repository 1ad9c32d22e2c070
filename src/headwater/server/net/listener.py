"""Accepts clients over TCP, TLS and unix sockets, and rejects those that may not connect.

Sockets are bound before the data is read, so that a port in use is reported first. They listen only
once the server can answer.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from headwater.common.addresses import address_text
from headwater.config.config import Config
from headwater.errors import ListenError
from headwater.server.net.driver import Driver
from headwater.server.net.sockets import Connection
from headwater.server.session.session import Session

log = logging.getLogger("headwater.server")

TOO_MANY = b"-ERR max number of clients reached\r\n"
DENIED = (
    b"-DENIED Headwater is running in protected mode: it has no password and accepts only clients of "
    b"its own machine. To accept others, set a password (requirepass) or, if the network itself is "
    b"trusted, turn protected-mode off.\r\n"
)

ACCEPTS_PER_EVENT = 64
"""Maximum number of connections accepted at a time, before existing clients are served again."""

PAUSE_SECONDS = 0.5
"""Time for which no connection is accepted after the process ran out of file descriptors, in seconds."""


class Listener:
    """A bound socket. `bind_all` creates it."""

    def __init__(
        self, bound: socket.socket, *, kind: str, name: str, wanted: tuple[str, int] = ("", 0)
    ) -> None:
        self.socket = bound
        self.wanted = wanted
        """The configured host, and the port."""
        self.kind = kind
        """``tcp``, ``tls`` or ``unix``."""
        self.name = name
        """The address in the ready line: ``127.0.0.1:6379``, ``tls:127.0.0.1:6390``,
        ``unix:/run/headwater.sock``."""
        self._loop: Driver | None = None
        self._paused: asyncio.TimerHandle | None = None
        self._inode = Path(bound.getsockname()).stat().st_ino if kind == "unix" else 0

    def listen(self, loop: Driver, *, backlog: int) -> None:
        """Start to accept clients for ``loop``. Raises `ListenError`."""
        self._loop = loop
        try:
            self.socket.listen(backlog)
        except OSError as error:
            raise _listen_error(self.name, error) from None
        asyncio.get_running_loop().add_reader(self.socket.fileno(), self._on_ready)

    def close(self) -> None:
        """Accept no more clients. Remove the unix socket's file if it is still this socket's."""
        if self._paused is not None:
            self._paused.cancel()
        path = Path(self.socket.getsockname()) if self.kind == "unix" else None
        if self._loop is not None:
            asyncio.get_running_loop().remove_reader(self.socket.fileno())
            self._loop = None
        self.socket.close()
        if path is not None:
            try:
                if path.stat().st_ino == self._inode:
                    path.unlink()
            except OSError:
                pass  # Another process removed it.

    def _on_ready(self) -> None:
        for _ in range(ACCEPTS_PER_EVENT):
            try:
                client, peer = self.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._admit(client, peer)

    def _pause(self, error: OSError) -> None:
        """Stop accepting for a while. Without a free descriptor every accept would fail."""
        assert self._loop is not None, "accepting before listening"
        self._loop.node.services.client_log.warning(
            "clients cannot be accepted at %s: %s", self.name, error.strerror
        )
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.socket.fileno())
        self._paused = loop.call_later(
            PAUSE_SECONDS, loop.add_reader, self.socket.fileno(), self._on_ready
        )

    def _admit(self, client: socket.socket, peer: object) -> None:
        assert self._loop is not None, "accepting before listening"
        loop, config = self._loop, self._loop.node.services.config
        if len(loop.connections) >= config.maxclients:
            loop.node.services.traffic.rejected_connections += 1
            # No text can be sent through TLS before the handshake.
            _reject(client, b"" if self.kind == "tls" else TOO_MANY)
            return
        if self.kind == "unix":
            path = self.socket.getsockname()
            loop.adopt(client, kind="unix", address=f"{path}:0", local_address=f"{path}:0")
            return
        assert isinstance(peer, tuple), peer
        denied = (
            config.protected_mode
            and loop.node.services.access.default.nopass
            and not _is_local(peer[0])
        )
        if denied and self.kind == "tcp":
            loop.node.services.traffic.rejected_connections += 1
            _reject(client, DENIED)
            return
        try:
            _tune(client, keepalive=config.tcp_keepalive)
            local = client.getsockname()
        except OSError:
            client.close()  # The client disconnected before it was served.
            return
        loop.adopt(
            client,
            kind=self.kind,
            address=show(peer),
            local_address=show(local),
            make=self._tls_connection(denied=denied) if self.kind == "tls" else Connection,
        )

    def _tls_connection(self, *, denied: bool) -> Callable[[socket.socket, Session], Connection]:
        """Return the constructor of TLS connections."""
        from headwater.server.net.tls_sockets import TlsConnection

        assert self._loop is not None, "accepting before listening"
        context = self._loop.node.services.clients.tls
        assert context is not None, "the context is set before a TLS listener listens"
        return partial(TlsConnection, context=context, denial=DENIED if denied else b"")


def bind_all(config: Config, bound: Sequence[Listener] = ()) -> list[Listener]:
    """Bind every address of the configuration, except those that are ``bound``. With port 0 the system chooses a
    port, which is the same for all addresses and is stored in ``config.port``; if a TLS port is set, port 0 means
    no TCP without TLS. Raises `ListenError`, in which case nothing but ``bound`` remains bound."""
    listeners: list[Listener] = []
    try:
        if config.port or not config.tls_port:
            _bind_addresses(config, "tcp", listeners, bound)
        if config.tls_port:
            _bind_addresses(config, "tls", listeners, bound)
        if config.unixsocket:
            there = [one for one in bound if one.kind == "unix"]
            listeners += there or [_bind_unix(config)]
        if not listeners:
            raise ListenError("no address to listen on: set --bind or --unixsocket")
    except BaseException:
        for listener in listeners:
            if listener not in bound:
                listener.close()
        raise
    return listeners


def listener_info(listeners: list[Listener]) -> dict[str, str]:
    """Return the listeners as INFO shows them: ``listener0`` is TCP, 1 the unix socket, 2 TLS.

    Source: Redis, connection.c, getListensInfoString.
    """
    found: dict[str, str] = {}
    for number, kind in enumerate(("tcp", "unix", "tls")):
        places = [one.socket.getsockname() for one in listeners if one.kind == kind]
        if places:
            hosts = places if kind == "unix" else [place[0] for place in places]
            port = [] if kind == "unix" else [f"port={places[0][1]}"]
            words = [f"name={kind}", *(f"bind={host}" for host in hosts), *port]
            found[f"listener{number}"] = ",".join(words)
    return found


def show(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    """Format an address: ``127.0.0.1:6379``, ``[::1]:6379``."""
    return address_text(*address[:2])


_PROBE_S = 1.0
"""Maximum time to connect to a unix socket that exists, in seconds."""

_ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT}
"""Errors of a machine that lacks the address or the protocol."""


def _bind_addresses(
    config: Config, kind: str, listeners: list[Listener], already: Sequence[Listener]
) -> None:
    for word in config.bind:
        host = word.removeprefix("-")
        port = config.tls_port if kind == "tls" else config.port
        there = [one for one in already if (one.kind, one.wanted) == (kind, (host, port))]
        if there:
            listeners += there
            continue
        try:
            bound = _bind_tcp(host, port)
        except OSError as error:
            if word.startswith("-") and error.errno in _ABSENT:
                log.debug("not listening on %s: %s", host, error.strerror)
                continue
            raise _listen_error(_name(kind, (host, port)), error) from None
        port = bound.getsockname()[1]
        if kind == "tcp":
            config.port = port
        name = _name(kind, bound.getsockname())
        listeners.append(Listener(bound, kind=kind, name=name, wanted=(host, port)))


def _name(kind: str, address: tuple[str, int]) -> str:
    return f"tls:{show(address)}" if kind == "tls" else show(address)


def _bind_tcp(host: str, port: int) -> socket.socket:
    wanted = {"*": "0.0.0.0", "::*": "::"}.get(host, host)  # noqa: S104 (the user asked for it)
    # For a str, Python would import its encoding of international names, which takes 2 ms at a start.
    asked = wanted.encode() if wanted.isascii() else wanted
    try:
        found = socket.getaddrinfo(asked, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise OSError(errno.EADDRNOTAVAIL, error.strerror) from None
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


def _bind_unix(config: Config) -> Listener:
    path = Path(config.located().unixsocket)
    _remove_stale(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        bound.bind(str(path))
        permissions = int(config.unixsocketperm, 8)
        if permissions:
            path.chmod(permissions)
    except OSError as error:
        bound.close()
        raise _listen_error(f"unix:{path}", error) from None
    return Listener(bound, kind="unix", name=f"unix:{path}")


def _remove_stale(path: Path) -> None:
    """Remove an unused socket file. Raises `ListenError` if the socket is in use, and for any other file."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"cannot listen on unix:{path}: the file exists and is not a socket")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_PROBE_S)
            with suppress(TimeoutError):  # its server is busy
                probe.connect(str(path))
        raise ListenError(
            f"cannot listen on unix:{path}: another server uses it; choose another --unixsocket"
        )
    except (ConnectionRefusedError, FileNotFoundError):
        with suppress(FileNotFoundError):
            path.unlink()
    except OSError as error:
        raise _listen_error(f"unix:{path}", error) from None


def _listen_error(name: str, error: OSError) -> ListenError:
    remedy: dict[int | None, str] = {
        errno.EADDRINUSE: "; another server listens there: choose another "
        + ("--tls-port" if name.startswith("tls:") else "--port (0 picks a free one)"),
        errno.EACCES: "; the process lacks the permission: choose another "
        + ("--unixsocket" if name.startswith("unix:") else "--port or directory"),
        errno.EADDRNOTAVAIL: "; this machine has no such address: choose another --bind",
    }
    reason = error.strerror or str(error)
    return ListenError(f"cannot listen on {name}: {reason}{remedy.get(error.errno, '')}")


def _tune(client: socket.socket, *, keepalive: int) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if keepalive:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", keepalive),
            ("TCP_KEEPINTVL", max(1, keepalive // 3)),
            ("TCP_KEEPCNT", 3),
        ):
            with suppress(AttributeError, OSError):  # the system's own times apply
                client.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _is_local(host: str) -> bool:
    return host.startswith(("127.", "::ffff:127.")) or host == "::1"


def _reject(client: socket.socket, text: bytes) -> None:
    """Send the reason, if the socket accepts it immediately, and close the connection."""
    try:
        client.setblocking(False)
        if text:
            client.send(text)
    except OSError:
        pass
    client.close()
