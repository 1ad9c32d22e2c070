"""TLS: who is let in, what is said to who is not, and that records are only another envelope.

Every test runs on both loops: the one with epoll, and the one for systems without it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from headwater.limits import HANDSHAKES_PER_TURN, MAX_HANDSHAKE_SECONDS
from headwater.server.config import Config
from headwater.server.driver import LINGER_SECONDS
from headwater.server.loop import EpollLoop
from headwater.server.running import Server
from headwater.testing.clock import ManualClock
from headwater.testing.server import ServerThread, server_thread
from tests import certificates
from tests.certificates import Certificates
from tests.conformance.test_protocol_server import own_address
from tests.conformance.wire import SECONDS, Start, Wire, connected, encode, value_of
from tests.peers import free_port

StartTls = Callable[..., ServerThread]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def start_tls(start: Start, made: Certificates) -> StartTls:
    """Starts a server that speaks TLS at one port and plain text at another."""

    def starting(*, auth_clients: str = "yes", **settings: object) -> ServerThread:
        tls = made.settings(tls_port=free_port(), auth_clients=auth_clients)
        words: dict[str, object] = {
            name.replace("-", "_"): int(value) if name == "tls-port" else value
            for name, value in tls.items()
        }
        return start(**{"port": free_port(), **words, **settings})

    return starting


@contextmanager
def secured(
    server: ServerThread, context: ssl.SSLContext, *, host: str = "127.0.0.1"
) -> Iterator[Wire]:
    """A connection through TLS, whose end has to be said."""
    with socket.create_connection((host, server.config.tls_port), timeout=SECONDS) as plain:
        with context.wrap_socket(
            plain, server_hostname="localhost", suppress_ragged_eofs=False
        ) as client:
            wire = Wire(client)
            with wire.file:
                yield wire


class Records:
    """TLS by hand: the bytes that would be sent, to be cut and joined at will."""

    def __init__(self, server: ServerThread, context: ssl.SSLContext) -> None:
        self.socket = socket.create_connection(
            ("127.0.0.1", server.config.tls_port), timeout=SECONDS
        )
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def hello(self) -> bytes:
        """The first flight."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._outgoing.read()

    def shake(self, *, cut: int | None = None) -> None:
        """The whole handshake, sent ``cut`` bytes at a time."""
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
        """A record for each piece."""
        for piece in pieces:
            self.tls.write(piece)
        return self._outgoing.read()

    def goodbye(self) -> bytes:
        """close_notify."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self._outgoing.read()

    def send(self, data: bytes, *, cut: int | None = None) -> None:
        for index in range(0, len(data), cut or max(1, len(data))):
            self.socket.sendall(data[index : index + (cut or len(data))])

    def receive(self, count: int) -> bytes:
        """So many plain bytes; fewer at the end."""
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


# --- who is let in ----------------------------------------------------------------------------------


def test_a_client_with_a_certificate_is_served_and_one_without_is_told(
    start_tls: StartTls, made: Certificates
) -> None:
    server = start_tls()
    with secured(server, made.context()) as client:
        assert client.ask("PING") == b"+PONG\r\n"
    # TLS 1.3 lets a client write before it hears what the server thinks of its certificate.
    for who, said in ((None, "CERTIFICATE_REQUIRED"), ("stranger", "UNKNOWN_CA")):
        with secured(server, made.context(who)) as client:
            with pytest.raises(ssl.SSLError, match=f"(?i){said}|{said.replace('_', ' ')}"):
                client.ask("PING")
    with secured(server, made.context()) as client:
        assert client.ask("PING") == b"+PONG\r\n"


def test_a_certificate_may_be_optional_or_not_asked_for(
    start_tls: StartTls, made: Certificates
) -> None:
    optional = start_tls(auth_clients="optional")
    for who in (None, "client"):
        with secured(optional, made.context(who)) as client:
            assert client.ask("PING") == b"+PONG\r\n"
    with secured(optional, made.context("stranger")) as client, pytest.raises(ssl.SSLError):
        client.ask("PING")

    never = start_tls(auth_clients="no")
    with secured(never, made.context("stranger")) as client:
        assert client.ask("PING") == b"+PONG\r\n"


def test_only_the_versions_that_are_set_are_spoken(start_tls: StartTls, made: Certificates) -> None:
    server = start_tls(tls_protocols=("TLSv1.3",))
    old = made.context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"), secured(server, old):
        pass
    with secured(server, made.context()) as client:
        assert client.ask("PING") == b"+PONG\r\n"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_serve_commands_in_order(
    start_tls: StartTls, made: Certificates, version: ssl.TLSVersion
) -> None:
    server = start_tls()
    context = made.context()
    context.minimum_version = context.maximum_version = version
    with secured(server, context) as client:
        client.socket.sendall(b"".join(encode("ECHO", str(n)) for n in range(10_000)))
        assert [client.reply() for _ in range(10_000)] == [
            b"$%d\r\n%d\r\n" % (len(str(n)), n) for n in range(10_000)
        ]


def test_with_port_0_there_is_only_tls(start_tls: StartTls, made: Certificates) -> None:
    server = start_tls(port=0)
    assert server.server.addresses == [f"tls:127.0.0.1:{server.config.tls_port}"]
    with secured(server, made.context()) as client:
        info = client.ask("INFO", "server").decode()
        assert f"\r\ntcp_port:{server.config.tls_port}\r\n" in info
        assert client.ask("CONFIG", "GET", "port") == b"*2\r\n$4\r\nport\r\n$1\r\n0\r\n"


def test_protected_mode_is_explained_through_tls(start_tls: StartTls, made: Certificates) -> None:
    server, address = start_tls(bind=("*",)), own_address()
    with secured(server, made.context(), host=address) as client:
        assert client.reply().startswith(b"-DENIED Headwater is running in protected mode")
        assert client.reply() == b"", "and the end is said"
    with secured(server, made.context()) as client:
        assert client.ask("PING") == b"+PONG\r\n"


def test_a_client_too_many_is_dropped_before_its_handshake(
    start_tls: StartTls, made: Certificates
) -> None:
    server = start_tls(maxclients=1)
    with connected(server.port) as only:
        assert only.ask("PING") == b"+PONG\r\n"
        with pytest.raises(OSError), secured(server, made.context()):
            pass
        assert b"\r\nrejected_connections:1\r\n" in only.ask("INFO", "stats")


# --- the envelope -----------------------------------------------------------------------------------


def test_a_handshake_and_requests_may_come_byte_by_byte(
    start_tls: StartTls, made: Certificates
) -> None:
    server = start_tls()
    with Records(server, made.context()) as client:
        client.shake(cut=1)
        client.send(client.records(encode("PING"), encode("ECHO", "tea")), cut=1)
        assert client.receive(16) == b"+PONG\r\n$3\r\ntea\r\n"


def test_all_records_that_arrive_together_are_answered(
    start_tls: StartTls, made: Certificates
) -> None:
    server = start_tls()
    with Records(server, made.context()) as client:
        client.shake()
        # A record for each byte: nothing is left inside OpenSSL that epoll does not tell of.
        request = encode("ECHO", "x" * 5000) + encode("PING")
        client.send(client.records(*(bytes([byte]) for byte in request)))
        answer = b"$5000\r\n" + b"x" * 5000 + b"\r\n+PONG\r\n"
        assert client.receive(len(answer)) == answer
        # And the longest records, one after another
        client.send(client.records(*[encode("ECHO", "y" * 16_000)] * 40))
        answer = (b"$16000\r\n" + b"y" * 16_000 + b"\r\n") * 40
        assert client.receive(len(answer)) == answer


def test_a_client_that_reads_late_gets_every_byte(start_tls: StartTls, made: Certificates) -> None:
    server = start_tls()
    value = bytes(range(256)) * 16_384
    with secured(server, made.context()) as slow, connected(server.port) as other:
        assert slow.ask("SET", "k", value) == b"+OK\r\n"
        slow.socket.sendall(encode("GET", "k") * 5 + encode("PING"))
        while b"cmd=get" not in other.ask("CLIENT", "LIST"):
            pass
        assert other.ask("PING") == b"+PONG\r\n", "nobody waits for it"
        for _ in range(5):
            assert slow.reply() == b"$%d\r\n%b\r\n" % (len(value), value)
        assert slow.reply() == b"+PONG\r\n"


def test_a_blocked_client_is_woken(start_tls: StartTls, made: Certificates) -> None:
    server = start_tls()
    with secured(server, made.context()) as waiting, connected(server.port) as other:
        waiting.socket.sendall(encode("XREAD", "BLOCK", "0", "STREAMS", "s", "$"))
        while b" flags=b " not in other.ask("CLIENT", "LIST"):
            pass
        other.ask("XADD", "s", "1-1", "f", "v")
        assert b"1-1" in waiting.reply()


# --- ends -------------------------------------------------------------------------------------------


def test_the_server_says_goodbye(start_tls: StartTls, made: Certificates) -> None:
    server = start_tls()
    with secured(server, made.context()) as client, secured(server, made.context()) as other:
        assert client.ask("QUIT") == b"+OK\r\n"
        assert client.reply() == b"", "close_notify, or reading would have failed"
        number = other.ask("CLIENT", "ID")[1:-2]
        other.socket.sendall(encode("CLIENT", "KILL", "ID", number, "SKIPME", "no"))
        assert other.reply() == b":1\r\n"
        assert other.reply() == b""


def test_who_says_goodbye_with_a_request_gets_its_answer(
    start_tls: StartTls, made: Certificates
) -> None:
    server = start_tls()
    with Records(server, made.context()) as client:
        client.shake()
        client.send(client.records(encode("ECHO", "tea")) + client.goodbye())
        assert client.receive(100) == b"$3\r\ntea\r\n"
    with Records(server, made.context()) as client:
        client.shake()
        client.send(
            client.records(encode("XREAD", "BLOCK", "0", "STREAMS", "s", "$")) + client.goodbye()
        )
        assert client.receive(100) == b"", "and one that would wait is not waited for"
    assert value_of(server, "connected_clients") == "1"


def test_plain_text_at_the_port_for_tls_is_told_so(start_tls: StartTls, made: Certificates) -> None:
    server = start_tls()
    with connected(server.config.tls_port) as lost:
        assert lost.ask("PING").startswith(b"-ERR this port speaks TLS and what arrived is plain")
        assert lost.reply() == b""


def test_tls_at_the_plain_port_is_told_so(start_tls: StartTls, made: Certificates) -> None:
    server = start_tls()
    with pytest.raises(ssl.SSLError, match=r"(?i)wrong.version.number|record.layer"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) as plain:
            made.context().wrap_socket(plain, server_hostname="localhost")
    with connected(server.port) as client:
        assert client.ask("PING") == b"+PONG\r\n"
        assert b"\r\nrejected_connections:1\r\n" in client.ask("INFO", "stats")


def test_damaged_records_end_their_connection_and_no_other(
    start_tls: StartTls, made: Certificates
) -> None:
    server = start_tls()
    with secured(server, made.context()) as other, Records(server, made.context()) as client:
        client.shake()
        assert other.ask("PING") == b"+PONG\r\n"
        damaged = bytearray(client.records(encode("SET", "k", "v")))
        damaged[-1] ^= 1
        client.send(bytes(damaged))
        with pytest.raises(ssl.SSLError, match=r"(?i)bad.record.mac"):
            client.receive(100)
        assert other.ask("EXISTS", "k") == b":0\r\n"


@pytest.mark.parametrize("garbage", [b"\x16", b"\x16\x03\x01\xff\xff" + b"x" * 5000, b"\x16" * 99])
def test_a_handshake_that_is_none_ends_its_connection_and_no_other(
    start_tls: StartTls, made: Certificates, garbage: bytes
) -> None:
    server = start_tls()
    with socket.create_connection(("127.0.0.1", server.config.tls_port), timeout=SECONDS) as lost:
        lost.sendall(garbage)
        lost.shutdown(socket.SHUT_WR)
        while lost.recv(1000):
            pass
    with secured(server, made.context()) as client:
        assert client.ask("PING") == b"+PONG\r\n"


# --- floods -----------------------------------------------------------------------------------------


def sweep(server: Server) -> None:
    server.loop.sweep()


def test_who_does_not_end_the_handshake_is_disconnected(
    start_tls: StartTls, made: Certificates
) -> None:
    clock = ManualClock()
    server = start_tls(clock=clock)
    with (
        secured(server, made.context()) as served,
        socket.create_connection(("127.0.0.1", server.config.tls_port), timeout=SECONDS) as silent,
        Records(server, made.context()) as half,
    ):
        half.send(half.hello()[:100])
        while not served.ask("CLIENT", "LIST").count(b"\n") > 3:
            pass
        server.advance(MAX_HANDSHAKE_SECONDS + LINGER_SECONDS)
        server.run(sweep)
        assert silent.recv(100) == b""
        assert half.socket.recv(100) == b""
        assert served.ask("PING") == b"+PONG\r\n"


def test_many_handshakes_at_once_are_a_few_a_turn(made: Certificates) -> None:
    # Given 20 clients that begin a handshake, and one that is served (the other loop has no turns of
    # its own: asyncio calls each reader)
    config = Config(port=free_port(), appendonly=False, tls_port=free_port())
    for name, value in made.settings(tls_port=config.tls_port).items():
        config.set(name, value)
    with server_thread(config, make=EpollLoop) as server:
        _flood(server, made)


def _flood(server: ServerThread, made: Certificates) -> None:
    loop = server.server.loop
    assert isinstance(loop, EpollLoop)
    flood = [Records(server, made.context()) for _ in range(20)]
    with connected(server.port) as served:
        while value_of(server, "connected_clients") != "22":
            pass
        begun: list[int] = []

        def one_turn(server: Server) -> None:
            # When all of them send at once
            for client in flood:
                client.send(client.hello())
            served.socket.sendall(encode("PING"))
            loop._on_ready()
            tls = [one for one in loop.connections.values() if one.handshaking]
            begun.append(sum(1 for one in tls if getattr(one, "_tls", None) is not None))

        server.run(one_turn)
        # Then the one is answered in the same turn as the first few
        assert begun == [HANDSHAKES_PER_TURN]
        assert served.reply() == b"+PONG\r\n"
    for client in flood:
        client.shake()
        client.send(client.records(encode("PING")))
        assert client.receive(7) == b"+PONG\r\n"
        client.socket.close()


# --- renewal ----------------------------------------------------------------------------------------


def test_config_set_reads_a_renewed_certificate(start_tls: StartTls, tmp_path: Path) -> None:
    made = certificates.make(tmp_path)
    server = start_tls(
        tls_cert_file=made.server, tls_key_file=made.server_key, tls_ca_cert_file=made.authority
    )

    def shown(wire: Wire) -> bytes | None:
        assert isinstance(wire.socket, ssl.SSLSocket)
        return wire.socket.getpeercert(binary_form=True)

    with secured(server, made.context()) as early:
        before = shown(early)
        # When the files hold another certificate, and the server is told to look
        made.renew()
        assert early.ask("CONFIG", "SET", "tls-cert-file", made.server) == b"+OK\r\n"
        # Then it is shown to those who connect from now on, and nobody is disconnected
        with secured(server, made.context()) as late:
            assert shown(late) != before
        assert early.ask("PING") == b"+PONG\r\n"


def test_config_set_refuses_what_the_start_would_refuse(
    start_tls: StartTls, made: Certificates
) -> None:
    server = start_tls()
    with secured(server, made.context()) as client:
        said = client.ask("CONFIG", "SET", "tls-key-file", made.client_key)
        assert said.startswith(
            b"-ERR CONFIG SET failed (possibly related to argument 'tls-key-file') - tls-key-file"
        )
        assert made.server_key.encode() in client.ask("CONFIG", "GET", "tls-key-file")
        assert client.ask("CONFIG", "SET", "tls-port", "1").endswith(b"immutable config\r\n")
        assert client.ask("CONFIG", "SET", "tls-auth-clients", "no") == b"+OK\r\n"
    with secured(server, made.context(None)) as client:
        assert client.ask("PING") == b"+PONG\r\n"
