"""The scanner finds the same requests and the same error however the bytes are split."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.common.limits import MAX_ARGUMENTS, MAX_BULK_BYTES, MAX_INLINE_BYTES
from headwater.errors import ProtocolError
from headwater.resp import scanner as scanner_module
from headwater.resp.arguments import Arguments
from headwater.resp.scanner import Scanner

Outcome = tuple[list[list[bytes]], str | None]


def wire(*values: bytes) -> bytes:
    """Encode a canonical request."""
    return bytes(Arguments.of(*values).buffer)


def drain(scanner: Scanner) -> Outcome:
    """Return all complete requests and the text of the error after them."""
    arguments, found = Arguments(), []
    try:
        while scanner.next(arguments):
            found.append(arguments.values())
    except ProtocolError as error:
        return found, str(error)
    return found, None


def scan(chunks: list[bytes], *, authenticated: bool = True) -> Outcome:
    """Return the requests and the error when the chunks arrive one after the other."""
    scanner = Scanner(authenticated=authenticated)
    requests: list[list[bytes]] = []
    for chunk in chunks:
        scanner.feed(chunk)
        found, error = drain(scanner)
        requests += found
        if error is not None:
            assert drain(scanner) == ([], error), "the error must be raised again"
            return requests, error
    return requests, None


def three_ways(
    data: bytes, *, trailing: bytes = b"*1\r\n$4", authenticated: bool = True
) -> Outcome:
    """Scan as a whole, one byte at a time, and followed by the beginning of another request."""
    whole = scan([data], authenticated=authenticated)
    bytewise = scan([data[i : i + 1] for i in range(len(data))], authenticated=authenticated)
    followed = scan([data + trailing], authenticated=authenticated)
    assert whole == bytewise == followed
    return whole


LONG = b"x" * 300

REQUESTS = {
    "nothing": (b"", []),
    "one argument": (wire(b"PING"), [[b"PING"]]),
    "an empty argument": (wire(b"ECHO", b""), [[b"ECHO", b""]]),
    "an empty name": (wire(b""), [[b""]]),
    "nine bytes": (wire(b"123456789"), [[b"123456789"]]),
    "ten bytes": (wire(b"1234567890"), [[b"1234567890"]]),
    "ninety-nine bytes": (wire(b"x" * 99), [[b"x" * 99]]),
    "a hundred bytes": (wire(b"x" * 100), [[b"x" * 100]]),
    "three digits": (wire(b"SET", b"k", LONG), [[b"SET", b"k", LONG]]),
    "RESP inside an argument": (wire(b"A", b"$3\r\n*1\r\n\r\n"), [[b"A", b"$3\r\n*1\r\n\r\n"]]),
    "eleven arguments": (wire(*[b"a"] * 11), [[b"a"] * 11]),
    "two requests": (wire(b"A") + wire(b"B", b"c"), [[b"A"], [b"B", b"c"]]),
    "no request, five spellings": (b"*0\r\n*-1\r\n*-5\r\n\r\n\n" + wire(b"A"), [[b"A"]]),
    "spaces only": (b"  \t\r\n" + wire(b"A"), [[b"A"]]),
    "inline": (b"PING\r\n", [[b"PING"]]),
    "inline without CR": (b"PING\n", [[b"PING"]]),
    "inline with quotes": (
        b"set k 'it\\'s' \"a\\x41\\n\\q\"\r\n",
        [[b"set", b"k", b"it's", b"aA\nq"]],
    ),
    "inline with an empty word": (b'""\r\n', [[b""]]),
    "inline between requests": (
        wire(b"A") + b"b c\r\n" + wire(b"D"),
        [[b"A"], [b"b", b"c"], [b"D"]],
    ),
    "a line that only looks like RESP": (b"$4\r\nPING\r\n", [[b"$4"], [b"PING"]]),
    "an inline request at its limit": (
        b"x" * MAX_INLINE_BYTES + b"\n",
        [[b"x" * MAX_INLINE_BYTES]],
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_found_in_three_ways(name: str) -> None:
    data, expected = REQUESTS[name]
    assert three_ways(data) == (expected, None)


ERRORS = {
    b"*x\r\n": "invalid multibulk length",
    b"*\r\n": "invalid multibulk length",
    b"*03\r\n": "invalid multibulk length",
    b"*-05\r\n": "invalid multibulk length",
    b"*+1\r\n": "invalid multibulk length",
    b"* 1\r\n": "invalid multibulk length",
    b"*1_0\r\n": "invalid multibulk length",
    b"*%d\r\n" % (MAX_ARGUMENTS + 1): "invalid multibulk length",
    b"*99999999999999999999999\r\n": "invalid multibulk length",
    b"*1\r\nx\r\n": "expected '$', got 'x'",
    b"*1\r\n*1\r\n": "expected '$', got '*'",
    b"*1\r\n\xff\r\n": "expected '$', got '\udcff'",
    b"*2\r\n$1\r\na\r\nxyz\r\n": "expected '$', got 'x'",
    b"*1\r\n\r\n": "expected '$', got '\r'",
    b"*1\r\n$-1\r\n": "invalid bulk length",
    b"*1\r\n$\r\n": "invalid bulk length",
    b"*1\r\n$04\r\nPING\r\n": "invalid bulk length",
    b"*1\r\n$4x\r\n": "invalid bulk length",
    b"*1\r\n$x4\r\n": "invalid bulk length",
    b"*1\r\n$4\nPING\r\n": "invalid bulk length",
    b"*1\r\n$%d\r\n" % (MAX_BULK_BYTES + 1): "invalid bulk length",
    b"*1\r\n$99999999999999999999\r\n": "invalid bulk length",
    b"*" + b"1" * (MAX_INLINE_BYTES + 1): "too big mbulk count string",
    b"*1\r\n$" + b"1" * (MAX_INLINE_BYTES + 1): "too big bulk count string",
    b"*1\r\nx" + b"1" * (MAX_INLINE_BYTES + 1): "too big bulk count string",
    b"x" * (MAX_INLINE_BYTES + 1): "too big inline request",
    b"x" * (MAX_INLINE_BYTES + 1) + b"\r\n": "too big inline request",
    b'ECHO "a\r\n': "unbalanced quotes in request",
    b"ECHO 'a\r\n": "unbalanced quotes in request",
    b'ECHO "a"b\r\n': "unbalanced quotes in request",
    b"ECHO 'a'b\r\n": "unbalanced quotes in request",
    b'ECHO "a\\"\r\n': "unbalanced quotes in request",
    b"POST / HTTP/1.1\r\n": "this is not a web server (HTTP request refused)",
    b"host: localhost\r\n": "this is not a web server (HTTP request refused)",
}


@pytest.mark.parametrize("data", ERRORS, ids=lambda data: repr(data[:24]))
def test_an_invalid_request_has_the_same_error_in_three_ways(data: bytes) -> None:
    before = wire(b"PING")
    requests, error = three_ways(before + data)
    assert requests == [[b"PING"]], "requests before the error are answered"
    assert error == "Protocol error: " + ERRORS[data]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"*11\r\n", "Protocol error: unauthenticated multibulk length"),
        (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "Protocol error: unauthenticated bulk length"),
    ],
)
def test_before_auth_a_request_is_small(data: bytes, error: str) -> None:
    assert three_ways(data, authenticated=False) == ([], error)
    assert three_ways(data, trailing=b"") == ([], None), "after AUTH it is only incomplete"


def test_before_auth_ten_arguments_of_sixteen_kibibytes_are_allowed() -> None:
    request = [b"x" * 16384, *[b"a"] * 9]
    assert scan([wire(*request)], authenticated=False) == ([request], None)


def test_changed_limits_apply_from_the_next_header_on() -> None:
    # Given a client that has not authenticated, and requests above its limits
    scanner = Scanner(authenticated=False, max_bulk_bytes=20_000)
    scanner.feed(wire(b"AUTH", b"secret") + wire(*[b"x"] * 11) + wire(b"y" * 20_001))
    arguments = Arguments()

    # When the first request authenticates it
    assert scanner.next(arguments)
    scanner.authenticated = True

    # Then the second is accepted, and the third still exceeds the longest argument
    assert scanner.next(arguments)
    assert arguments.count == 11
    with pytest.raises(ProtocolError, match="invalid bulk length"):
        scanner.next(arguments)


def test_a_bulk_longer_than_the_limit_is_refused_at_its_header() -> None:
    scanner = Scanner()
    scanner.feed(b"*1\r\n$%d\r\n" % (MAX_BULK_BYTES + 1))
    with pytest.raises(ProtocolError, match=r"^Protocol error: invalid bulk length$"):
        scanner.next(Arguments())
    assert scanner.unread() < 100


def test_an_announced_length_allocates_nothing() -> None:
    scanner = Scanner()
    scanner.feed(b"*%d\r\n$%d\r\n" % (MAX_ARGUMENTS, MAX_BULK_BYTES))
    assert not scanner.next(Arguments())
    assert len(scanner.buffer) < 100


def test_ten_thousand_pipelined_requests_are_found_in_order() -> None:
    # Given 10,000 requests in one piece and in pieces of any size
    requests = [[b"XADD", b"s", b"*", b"n", b"%d" % i] for i in range(10_000)]
    data = b"".join(wire(*request) for request in requests)

    assert scan([data]) == (requests, None)
    for size in (7, 1_021, 65_536):
        chunks = [data[i : i + size] for i in range(0, len(data), size)]
        assert scan(chunks) == (requests, None)


def test_two_arguments_objects_hold_two_requests_until_the_next_feed() -> None:
    scanner, first, second = Scanner(), Arguments(), Arguments()
    scanner.feed(wire(b"A", b"one") + wire(b"B", b"two", b"three"))
    assert scanner.next(first)
    assert scanner.next(second)
    assert first.values() == [b"A", b"one"]
    assert second.values() == [b"B", b"two", b"three"]


def test_consumed_bytes_are_dropped_and_an_incomplete_request_stays() -> None:
    scanner, arguments = Scanner(), Arguments()
    whole, begun = wire(b"A" * 50, b"b"), wire(b"C", b"d", b"e" * 200)
    scanner.feed(whole + begun[:20])
    assert scanner.next(arguments)
    assert not scanner.next(arguments)
    assert scanner.unread() == 20

    scanner.feed(begun[20:])

    assert len(scanner.buffer) == len(begun)
    assert scanner.next(arguments)
    assert arguments.values() == [b"C", b"d", b"e" * 200]
    assert scanner.unread() == 0


@pytest.mark.skipif(
    not (scanner_module.__file__ or "").endswith(".py"),
    reason="looks are counted in plain Python; the compiled module has the same source",
)
def test_a_large_request_in_small_pieces_is_not_scanned_again_from_its_start() -> None:
    # Given a request of 2,000 arguments that arrives argument by argument
    class Counting(bytearray):
        """Counts the accesses to single bytes."""

        looked_at = 0

        def __getitem__(self, key: Any) -> Any:
            Counting.looked_at += 1
            return super().__getitem__(key)

    scanner, arguments = Scanner(), Arguments()
    scanner.buffer = Counting()
    request = wire(*[b"value"] * 2_000)
    step = len(wire(b"value")) - 4

    # When each piece is scanned as it arrives
    for start in range(0, len(request), step):
        found = scanner.next(arguments)
        assert not found
        scanner.feed(request[start : start + step])
    assert scanner.next(arguments)

    # Then the work per piece is constant and does not grow with the length of earlier pieces
    assert arguments.count == 2_000
    assert Counting.looked_at < 2_001 * 40


NOT_CANONICAL = [
    b"*2\r\n$4\r\nECHO\r\n$3\rXfoo\r\n",
    b"*2\r\n$4\r\nECHO\r\n$3\r\nfooXY",
    b"*2\r\n$4\r\nECHOXY$3\r\nfoo\r\n",
    b"*2\r\n$4\rXECHO\r\n$3\r\nfoo\r\n",
    b"*2\rX$4\r\nECHO\r\n$3\r\nfoo\r\n",
]


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize("data", NOT_CANONICAL)
def test_terminators_that_redis_does_not_check_are_never_stored(
    data: bytes, bytewise: bool
) -> None:
    # Given a request that Redis accepts although its line ends are wrong
    scanner, arguments = Scanner(), Arguments()
    for chunk in [data[i : i + 1] for i in range(len(data) - 1)] if bytewise else [data[:-1]]:
        scanner.feed(chunk)
        assert not scanner.next(arguments)
    scanner.feed(data[-1:])
    assert scanner.next(arguments)

    # Then its values are right, and the bytes to store are canonical
    canonical = arguments.canonical
    assert not canonical
    assert arguments.values() == [b"ECHO", b"foo"]
    arguments.find_wire(1, 2)
    found = arguments.buffer[arguments.wire_start : arguments.wire_end]
    assert found == b"$3\r\nfoo\r\n"
    assert arguments.canonical

    # And the request after it is canonical again
    scanner.feed(wire(b"PING"))
    assert scanner.next(arguments)
    assert arguments.canonical


words = st.binary(max_size=120) | st.sampled_from([b"", b"\r\n", b"$1\r\n", b"*1\r\n"])
requests_of_words = st.lists(st.lists(words, min_size=1, max_size=12), max_size=8)


@given(requests_of_words, st.data())
def test_any_requests_split_anywhere_are_read_back(
    requests: list[list[bytes]], data: st.DataObject
) -> None:
    stream = b"".join(wire(*request) for request in requests)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=10).map(sorted))
    bounds = [0, *cuts, len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(bounds)]
    assert scan(chunks) == (requests, None)


soup = st.lists(
    st.sampled_from([b"*", b"$", b"\r\n", b"\r", b"\n", b"1", b"2", b"0", b"-", b"a", b'"', b"'"])
    | st.binary(max_size=4),
    max_size=40,
).map(b"".join)


@given(soup)
def test_any_bytes_give_the_same_result_whole_and_byte_by_byte(data: bytes) -> None:
    assert scan([data]) == scan([data[i : i + 1] for i in range(len(data))])
