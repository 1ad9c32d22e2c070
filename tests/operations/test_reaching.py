"""What a command says of a store that it cannot use: why, and what to do; and that it reaches every form of server."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from headwater.client.redaction import redacted
from headwater.testing.server import ServerProcess, server_process
from tests import certificates
from tests.certificates import Certificates
from tests.peers import Peer, free_port

Run = Callable[..., str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def locked(
    made: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServerProcess, int]]:
    """A server with a password, a user ``ops``, a TLS port and a unix socket; and its TLS port."""
    port, path = free_port(), tmp_path_factory.mktemp("unix") / "socket"
    flags = ["--port", str(free_port()), "--requirepass", "secret", "--unixsocket", str(path)]
    flags += ["--user", "ops on >word ~* +@all", *made.flags(tls_port=port, auth_clients="no")]
    with server_process(*flags) as server:
        yield server, port


@pytest.mark.parametrize("parameters", ["", "?protocol=3"])  # without and with redis-py
@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("", "wants a password, as in redis://user:password@host"),
        (":wrong@", "does not accept this user and password"),
        ("ops:wrong@", "does not accept this user and password"),
        ("nobody:secret@", "does not accept this user and password"),
    ],
)
def test_a_wrong_password_is_called_so(
    user: str, said: str, parameters: str, locked: tuple[ServerProcess, int], run_headwater: Run
) -> None:
    url = locked[0].url.replace("://", f"://{user}") + parameters
    complaint = run_headwater("streams", "list", "--url", url, status=1)
    assert complaint.startswith(f"headwater: {redacted(url)} {said}: ")
    assert "cannot be reached" not in complaint


@pytest.mark.parametrize("user", [":secret@", "default:secret@", "ops:word@", "ops:w%6Frd@"])
@pytest.mark.parametrize("database", ["", "/0", "/3", "?db=3"])
def test_a_server_is_reached_by_user_and_database(
    user: str, database: str, locked: tuple[ServerProcess, int], run_headwater: Run
) -> None:
    url = locked[0].url.replace("://", f"://{user}") + database
    run_headwater("add", "s", "n=1", "--url", url)
    with redis.Redis.from_url(url) as client:
        assert client.xlen("s") >= 1
        client.delete("s")


def test_a_unix_socket_is_reached(locked: tuple[ServerProcess, int], run_headwater: Run) -> None:
    with redis.Redis.from_url(locked[0].url, password="secret") as client:
        (path,) = client.config_get("unixsocket").values()
    printed = run_headwater("streams", "list", "--url", f"unix://:secret@{path}?db=1")
    assert printed.startswith("STREAM")


def test_tls_to_a_plain_port_and_plain_text_to_a_tls_port_are_named(
    locked: tuple[ServerProcess, int], run_headwater: Run
) -> None:
    server, tls_port = locked
    plain = server.url.replace("redis://", "rediss://")
    said = run_headwater("streams", "list", "--url", plain, status=1)
    assert "that port does not speak TLS: write redis:// instead of rediss://" in said
    said = run_headwater("streams", "list", "--url", f"redis://localhost:{tls_port}", status=1)
    assert "this port requires TLS" in said


@contextmanager
def silent_tls(made: Certificates) -> Iterator[int]:
    """A TLS port that ends a connection of plain text without a word, as Redis does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server, made.server_key)
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            try:
                with listening.accept()[0] as link:
                    link.settimeout(5)
                    context.wrap_socket(link, server_side=True).close()
            except ssl.SSLError:
                continue
            except OSError:
                return

    threading.Thread(target=answer, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.close()


def test_a_port_that_ends_plain_text_is_asked_whether_it_speaks_tls(
    made: Certificates, run_headwater: Run
) -> None:
    with silent_tls(made) as port:
        said = run_headwater("streams", "list", "--url", f"redis://127.0.0.1:{port}", status=1)
    assert "that port speaks TLS: write rediss:// instead of redis://" in said


@pytest.mark.peer
def test_tls_to_a_plain_port_of_redis_is_named(
    shared_peer: Callable[[str], Peer], run_headwater: Run
) -> None:
    url = shared_peer("redis-8.2").url.replace("redis://", "rediss://")
    # redis-py's own limits, so that the handshake that Redis never answers ends soon
    said = run_headwater(
        "streams", "list", "--url", f"{url}?socket_connect_timeout=0.2&socket_timeout=0.2", status=1
    )
    assert "that port does not speak TLS: write redis:// instead of rediss://" in said


def test_what_does_not_answer_cannot_be_reached(run_headwater: Run, tmp_path: Path) -> None:
    for url in (f"redis://localhost:{free_port()}", f"unix://{tmp_path / 'none'}"):
        said = run_headwater("streams", "list", "--url", url, status=1)
        assert said.startswith(f"headwater: {url} cannot be reached: ")


@pytest.mark.parametrize("host", ["[::1", "store..internal", "a" * 64, "caf\udce9", "a]b"])
@pytest.mark.parametrize("parameters", ["", "?protocol=3"])  # without and with redis-py
def test_a_host_that_cannot_be_one_is_named(host: str, parameters: str, run_headwater: Run) -> None:
    # Given an address with a mistyped host, when a command uses it, then the error says which part is wrong
    said = run_headwater(
        "streams", "list", "--url", f"redis://u:secret@{host}{parameters}", status=1
    )
    assert "cannot be parsed: its host is wrong" in said
    assert "secret" not in said
