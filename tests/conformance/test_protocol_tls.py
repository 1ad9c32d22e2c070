"""TLS: which clients are accepted, and that the split into records makes no difference.

Every test runs on both event loops: the one with epoll, and the one for systems without it.
"""

from __future__ import annotations

import ssl

import pytest

from tests.certificates import Certificates
from tests.conformance.test_protocol_server import own_address
from tests.conformance.tls_wire import Records, StartTls, secured
from tests.conformance.wire import connected, encode

# --- which clients are accepted ---------------------------------------------------------------------


def test_a_client_with_a_certificate_is_served_and_one_without_gets_an_alert(
    start_tls: StartTls, made: Certificates
) -> None:
    server = start_tls()
    with secured(server, made.context()) as client:
        assert client.ask("PING") == b"+PONG\r\n"
    # With TLS 1.3 a client may write before it learns whether the server accepts its certificate.
    for who, said in ((None, "CERTIFICATE_REQUIRED"), ("stranger", "UNKNOWN_CA")):
        with secured(server, made.context(who)) as client:
            with pytest.raises(ssl.SSLError, match=f"(?i){said}|{said.replace('_', ' ')}"):
                client.ask("PING")
    with secured(server, made.context()) as client:
        assert client.ask("PING") == b"+PONG\r\n"


def test_client_certificates_may_be_optional_or_disabled(
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


def test_only_the_configured_versions_are_accepted(start_tls: StartTls, made: Certificates) -> None:
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
        field = f"listener2:name=tls,bind=127.0.0.1,port={server.config.tls_port}"
        assert f"\r\n{field}\r\n" in info
        assert client.ask("CONFIG", "GET", "port") == b"*2\r\n$4\r\nport\r\n$1\r\n0\r\n"


def test_protected_mode_is_explained_through_tls(start_tls: StartTls, made: Certificates) -> None:
    server, address = start_tls(bind=("*",)), own_address()
    with secured(server, made.context(), host=address) as client:
        assert client.reply().startswith(b"-DENIED Headwater is running in protected mode")
        assert client.reply() == b"", "close_notify follows"
    with secured(server, made.context()) as client:
        assert client.ask("PING") == b"+PONG\r\n"


def test_a_client_above_maxclients_is_rejected_before_its_handshake(
    start_tls: StartTls, made: Certificates
) -> None:
    server = start_tls(maxclients=1)
    with connected(server.port) as only:
        assert only.ask("PING") == b"+PONG\r\n"
        with pytest.raises(OSError), secured(server, made.context()):
            pass
        assert b"\r\nrejected_connections:1\r\n" in only.ask("INFO", "stats")


# --- records ----------------------------------------------------------------------------------------


def test_a_handshake_and_requests_may_come_byte_by_byte(
    start_tls: StartTls, made: Certificates
) -> None:
    server = start_tls()
    with Records(server, made.context()) as client:
        client.handshake(cut=1)
        client.send(client.records(encode("PING"), encode("ECHO", "tea")), cut=1)
        assert client.receive(16) == b"+PONG\r\n$3\r\ntea\r\n"


def test_all_records_that_arrive_together_are_answered(
    start_tls: StartTls, made: Certificates
) -> None:
    server = start_tls()
    with Records(server, made.context()) as client:
        client.handshake()
        # One record per byte: no data may remain inside OpenSSL without an event of epoll.
        request = encode("ECHO", "x" * 5000) + encode("PING")
        client.send(client.records(*(bytes([byte]) for byte in request)))
        answer = b"$5000\r\n" + b"x" * 5000 + b"\r\n+PONG\r\n"
        assert client.receive(len(answer)) == answer
        # And the longest records, one after the other
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
        assert other.ask("PING") == b"+PONG\r\n", "others are not delayed"
        for _ in range(5):
            assert slow.reply() == b"$%d\r\n%b\r\n" % (len(value), value)
        assert slow.reply() == b"+PONG\r\n"


def test_a_blocked_client_is_served(start_tls: StartTls, made: Certificates) -> None:
    server = start_tls()
    with secured(server, made.context()) as waiting, connected(server.port) as other:
        waiting.socket.sendall(encode("XREAD", "BLOCK", "0", "STREAMS", "s", "$"))
        while b" flags=b " not in other.ask("CLIENT", "LIST"):
            pass
        other.ask("XADD", "s", "1-1", "f", "v")
        assert b"1-1" in waiting.reply()
