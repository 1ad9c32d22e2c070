"""Every request of the written cases gets the same reply whole, byte by byte, and with more behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.config.config import Config
from headwater.testing.clock import ManualClock
from headwater.testing.node import LocalStore, request
from tests.conformance.cases import Case, all_cases

START_MS = 1_800_000_000_000

CASES = [case for case in all_cases() if case.title != "the log"]
"""ACL LOG shows how much of a client's input has arrived."""


def pieces(data: bytes, requests: list[bytes], way: str) -> Iterator[bytes]:
    """``data``, which is ``requests`` end to end, as it may arrive."""
    if way == "whole":
        yield from requests
    elif way == "bytes":
        for at in range(len(data)):
            yield data[at : at + 1]
    else:  # each request comes with the first half of the next
        end = 0
        for at, one in enumerate(requests):
            following = requests[at + 1] if at + 1 < len(requests) else b""
            start, end = end, sum(map(len, requests[: at + 1])) + len(following) // 2
            yield data[start:end] if one else b""


def answers(case: Case, way: str, resp: int) -> bytes:
    """All that comes back."""
    clock = ManualClock(START_MS)
    config = Config(port=0, appendonly=False)
    store = LocalStore(clock=clock, config=config, journaled=False)
    client = store.client(resp=resp)
    requests = [request(words) for words in case.history(START_MS)]
    found = bytearray()
    for piece in pieces(b"".join(requests), requests, way):
        client.session.feed(piece)
        store.node.turn([client.session])
        while client.session.blocked:
            store.advance(store.seconds_ahead())
        found += client.session.output.take()
    return bytes(found)


@pytest.mark.parametrize("case", CASES, ids=[f"{case.file}: {case.title}" for case in CASES])
def test_a_request_is_answered_alike_however_it_arrives(case: Case) -> None:
    # Given each request by itself
    expected = answers(case, "whole", 2 + len(case.lines) % 2)
    # When they arrive otherwise, then the replies are the same
    for way in ("bytes", "trailing"):
        # The clock stands still but for what blocks, so ids and times are the same as well.
        assert answers(case, way, 2 + len(case.lines) % 2) == expected, way


def test_ten_thousand_requests_at_once_are_answered_in_order() -> None:
    # Given a pipeline of 10,000
    store = LocalStore(clock=ManualClock(START_MS), config=Config(port=0))
    client = store.client()
    client.session.feed(b"".join(request(("ECHO", number)) for number in range(10_000)))
    # When it is run in one turn
    store.node.turn([client.session])
    # Then every one is answered, in its place
    expected = b"".join(b"$%d\r\n%d\r\n" % (len(str(at)), at) for at in range(10_000))
    assert bytes(client.session.output.take()) == expected
