"""TLS: the end of a connection, clients that cannot be served, and renewed certificates.

Every test runs on both event loops: the one with epoll, and the one for systems without it.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from headwater.common.limits import HANDSHAKES_PER_TURN, MAX_HANDSHAKE_SECONDS
from headwater.config.config import Config
from headwater.server.net.driver import LINGER_SECONDS
from headwater.server.net.loop import EpollLoop
from headwater.server.running import Server
from headwater.testing.clock import ManualClock
from headwater.testing.server import ServerThread, server_thread
from tests import certificates
from tests.certificates import Certificates
from tests.conformance.tls_wire import Records, StartTls, secured
from tests.conformance.wire import SECONDS, Wire, connected, encode, value_of
from tests.peers import free_port

# --- the end of a connection ------------------------------------------------------------------------


def test_the_server_sends_close_notify(start_tls: StartTls, made: Certificates) -> None:
    server = start_tls()
    with secured(server, made.context()) as client, secured(server, made.context()) as other:
        assert client.ask("QUIT") == b"+OK\r\n"
        assert client.reply() == b"", "close_notify, or reading would have failed"
        number = other.ask("CLIENT", "ID")[1:-2]
        other.socket.sendall(encode("CLIENT", "KILL", "ID", number, "SKIPME", "no"))
        assert other.reply() == b":1\r\n"
        assert other.reply() == b""


def test_a_request_with_close_notify_gets_its_reply(
    start_tls: StartTls, made: Certificates
) -> None:
    server = start_tls()
    with Records(server, made.context()) as client:
        client.handshake()
        client.send(client.records(encode("ECHO", "tea")) + client.goodbye())
        assert client.receive(100) == b"$3\r\ntea\r\n"
    with Records(server, made.context()) as client:
        client.handshake()
        client.send(
            client.records(encode("XREAD", "BLOCK", "0", "STREAMS", "s", "$")) + client.goodbye()
        )
        assert client.receive(100) == b"", "a command that would block is dropped"
    assert value_of(server, "connected_clients") == "1"


def test_plain_text_on_the_tls_port_gets_an_error(start_tls: StartTls, made: Certificates) -> None:
    server = start_tls()
    with connected(server.config.tls_port) as lost:
        assert lost.ask("PING").startswith(b"-ERR this port requires TLS but received plain")
        assert lost.reply() == b""


def test_tls_on_the_plain_port_gets_an_error(start_tls: StartTls, made: Certificates) -> None:
    server = start_tls()
    with pytest.raises(ssl.SSLError, match=r"(?i)wrong.version.number|record.layer"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) as plain:
            made.context().wrap_socket(plain, server_hostname="localhost")
    with connected(server.port) as client:
        assert client.ask("PING") == b"+PONG\r\n"
        assert b"\r\nrejected_connections:1\r\n" in client.ask("INFO", "stats")


def test_damaged_records_close_only_their_own_connection(
    start_tls: StartTls, made: Certificates
) -> None:
    server = start_tls()
    with secured(server, made.context()) as other, Records(server, made.context()) as client:
        client.handshake()
        assert other.ask("PING") == b"+PONG\r\n"
        damaged = bytearray(client.records(encode("SET", "k", "v")))
        damaged[-1] ^= 1
        client.send(bytes(damaged))
        with pytest.raises(ssl.SSLError, match=r"(?i)bad.record.mac"):
            client.receive(100)
        assert other.ask("EXISTS", "k") == b":0\r\n"


@pytest.mark.parametrize("garbage", [b"\x16", b"\x16\x03\x01\xff\xff" + b"x" * 5000, b"\x16" * 99])
def test_an_invalid_handshake_closes_only_its_own_connection(
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


def test_corrupted_bytes_of_a_client_close_only_its_own_connection(
    start_tls: StartTls, made: Certificates
) -> None:
    server, chance = start_tls(), Random(7)
    with secured(server, made.context()) as other:
        for _ in range(150):
            with Records(server, made.context()) as client, suppress(OSError):
                flights = [client.hello()]
                if chance.random() < 0.5:
                    client.send(flights.pop())
                    client.handshake()
                    flights = [client.records(encode("PING")) for _ in range(4)]
                spoiled = bytearray(b"".join(flights))
                for _ in range(chance.randrange(1, 9)):
                    at = chance.randrange(len(spoiled))
                    match chance.randrange(3):
                        case 0:
                            spoiled[at] ^= 1 << chance.randrange(8)
                        case 1:
                            del spoiled[at : at + chance.randrange(1, 40)]
                            spoiled += b"\x16"
                        case _:
                            spoiled[at:at] = spoiled[:at]
                client.send(bytes(spoiled), cut=chance.choice([7, 100, 1 << 16]))
        assert other.ask("PING") == b"+PONG\r\n"
    assert server.server.loop.failure is None


# --- many connections -------------------------------------------------------------------------------


def sweep(server: Server) -> None:
    server.loop.sweep()


def test_a_client_that_does_not_complete_its_handshake_is_disconnected(
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


def test_simultaneous_handshakes_are_limited_per_turn(made: Certificates) -> None:
    # Given 20 clients that start a handshake, and one that is served. (In the other loop asyncio calls each
    # reader separately.)
    config = Config(port=free_port(), appendonly=False, save=(), tls_port=free_port())
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
            loop._one_turn(0.0)
            tls = [one for one in loop.connections.values() if one.handshaking]
            begun.append(sum(1 for one in tls if getattr(one, "_tls", None) is not None))

        server.run(one_turn)
        # Then the latter gets its reply in the same turn as the first few handshakes
        assert begun == [HANDSHAKES_PER_TURN]
        assert served.reply() == b"+PONG\r\n"
    for client in flood:
        client.handshake()
        client.send(client.records(encode("PING")))
        assert client.receive(7) == b"+PONG\r\n"
        client.socket.close()


# --- renewal ----------------------------------------------------------------------------------------


def test_config_set_loads_a_renewed_certificate(start_tls: StartTls, tmp_path: Path) -> None:
    made = certificates.make(tmp_path)
    server = start_tls(
        tls_cert_file=made.server, tls_key_file=made.server_key, tls_ca_cert_file=made.authority
    )

    def shown(wire: Wire) -> bytes | None:
        assert isinstance(wire.socket, ssl.SSLSocket)
        return wire.socket.getpeercert(binary_form=True)

    with secured(server, made.context()) as early:
        before = shown(early)
        # When the files contain another certificate, and CONFIG SET reloads them
        made.renew()
        assert early.ask("CONFIG", "SET", "tls-cert-file", made.server) == b"+OK\r\n"
        # Then new connections get it, and open ones remain
        with secured(server, made.context()) as late:
            assert shown(late) != before
        assert early.ask("PING") == b"+PONG\r\n"


def test_config_set_has_the_errors_of_the_start(start_tls: StartTls, made: Certificates) -> None:
    server = start_tls()
    with secured(server, made.context()) as client:
        said = client.ask("CONFIG", "SET", "tls-key-file", made.client_key)
        assert said.startswith(
            b"-ERR CONFIG SET failed (possibly related to argument 'tls-key-file') - tls-key-file"
        )
        assert made.server_key.encode() in client.ask("CONFIG", "GET", "tls-key-file")
        assert b"immutable config" in client.ask("CONFIG", "SET", "tls-port", "1")
        assert client.ask("CONFIG", "SET", "tls-auth-clients", "no") == b"+OK\r\n"
    with secured(server, made.context(None)) as client:
        assert client.ask("PING") == b"+PONG\r\n"
