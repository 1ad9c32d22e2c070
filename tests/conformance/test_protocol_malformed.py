"""The replies to invalid bytes and unusual requests equal those of Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headwater.testing.server import ServerThread, server_thread
from tests.conformance.wire import encode, exchange
from tests.peers import Peer

PING = encode("PING")

SAME_AS_REDIS = [
    b"*0\r\n*-1\r\n\r\n\n" + PING,
    b"*x\r\n" + PING,
    b"*03\r\n" + PING,
    b"*-5\r\n" + PING,
    b"*-05\r\n" + PING,
    b"*\r\n" + PING,
    b"*+1\r\n" + PING,
    b"* 1\r\n" + PING,
    b"*2147483648\r\n" + PING,
    b"*1\r\nx\r\n" + PING,
    b"*1\r\n\r\n" + PING,
    b"*1\r\n\xff\r\n" + PING,
    b"*1\r\n$-1\r\n" + PING,
    b"*1\r\n$\r\n" + PING,
    b"*1\r\n$04\r\nPING\r\n" + PING,
    b"*1\r\n$536870913\r\n" + PING,
    b"*1\r\n$99999999999999999999\r\n" + PING,
    b"*1\r\n$4\nPING\r\nPING\r\n" + PING,
    b"*1\r\n$4\rXPINGab" + PING,
    b"*1\rX$4\r\nPING\r\n" + PING,
    b"*2\r\n$4\r\nPING\r\n\r\n$1\r\na\r\n" + PING,
    b"*1\r\n$0\r\n\r\n" + PING,
    b'""\r\n' + PING,
    b'set "a\r\n' + PING,
    b'PING "a"b\r\n' + PING,
    b"PING 'a\\'b' \r\n" + PING,
    b'PING "\\x41\\n\\q\\xzz"\n' + PING,
    b'PING a"b c"\n' + PING,
    b"PING\x0b1\r\n" + PING,
    b"PING \x0c2\r\n" + PING,
    b" \t PING\r\n" + PING,
    b"$4\r\nPING\r\n" + PING,
    b"+OK\r\nPING\r\n" + PING,
    b"\xff\xfe\r\n" + PING,
    b"*2\r\n$4\r\nECHO\r\n$3\rXfooYZ" + PING,
    encode("FOO", "a\r\nb", "x" * 200) + PING,
    encode("x" * 300) + PING,
    encode("XADD") + PING,
    encode("xadd", "s") + PING,
    encode("XGROUP", "CREATE", "s") + PING,
    encode("XGROUP", "Foo") + PING,
    encode("PING", "a", "b") + PING,
    encode("GET") + encode("GET", "a", "b") + PING,
    encode(b"\xff\x01", b"\xfe") + PING,
]

TOO_BIG = [
    b"*" + b"1" * 70_000,
    b"*1\r\n$" + b"1" * 70_000,
    b"*1\r\nx" + b"1" * 70_000,
    b"P" * 70_000,
]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with server_thread() as started:
        yield started


@pytest.mark.peer
@pytest.mark.parametrize("data", SAME_AS_REDIS, ids=lambda data: repr(data[:30]))
def test_replies_to_unusual_bytes_are_those_of_redis(
    data: bytes, server: ServerThread, shared_peer: Callable[[str], Peer]
) -> None:
    expected = exchange(shared_peer("redis-8.2").port, data)
    assert exchange(server.port, data) == expected


@pytest.mark.peer
@pytest.mark.parametrize("data", TOO_BIG, ids=lambda data: repr(data[:10]))
def test_a_line_that_is_too_long_is_the_error_of_redis(
    data: bytes, server: ServerThread, shared_peer: Callable[[str], Peer]
) -> None:
    # Redis may reset the connection before its reply is read; Headwater first reads what has arrived.
    expected = exchange(shared_peer("redis-8.2").port, data)
    answer = exchange(server.port, data)
    assert answer.startswith(b"-ERR Protocol error: too big")
    assert expected in {answer, b""}


@pytest.mark.parametrize("data", [*SAME_AS_REDIS, *TOO_BIG], ids=lambda data: repr(data[:30]))
def test_replies_do_not_depend_on_how_the_bytes_arrive(data: bytes, server: ServerThread) -> None:
    whole = exchange(server.port, data)
    step = max(1, len(data) // 150)
    pieces = (data[start : start + step] for start in range(0, len(data), step))
    assert exchange(server.port, pieces) == whole


def test_an_http_request_is_an_error_and_runs_nothing(server: ServerThread) -> None:
    request = b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET hacked 1\r\n"
    answer = exchange(server.port, request)
    assert answer == b"-ERR Protocol error: this is not a web server (HTTP request refused)\r\n"
    assert exchange(server.port, encode("EXISTS", "hacked")) == b":0\r\n"


def test_a_request_in_pieces_waits_for_its_end(server: ServerThread) -> None:
    # Without the last byte there is no reply; with it, the request is complete
    request = encode("ECHO", "x" * 100_000)
    assert exchange(server.port, request[:-1]) == b""
    assert exchange(server.port, [request[:-1], request[-1:]]) == request[14:]
