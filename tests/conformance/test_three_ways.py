"""Requests of the written cases get the same replies whole, byte by byte, and with more requests
after them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.config.config import Config
from headwater.testing.clock import ManualClock
from headwater.testing.node import LocalStore, request
from tests.conformance.cases import Case, all_cases

START_MS = 1_800_000_000_000

CASES = [case for case in all_cases() if case.title != "the log"]
"""Without ACL LOG's case: it shows how much of a client's input has arrived."""


def pieces(data: bytes, requests: list[bytes], way: str) -> Iterator[bytes]:
    """Yield ``data``, the concatenation of ``requests``, in one of the ways in which it may arrive."""
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
    """Return all output of a case."""
    clock = ManualClock(START_MS)
    config = Config(port=0, appendonly=False, save=())
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
def test_replies_do_not_depend_on_how_requests_arrive(case: Case) -> None:
    # Given the replies to requests that arrive one by one
    expected = answers(case, "whole", 2 + len(case.lines) % 2)
    # When they arrive in other ways, then the replies are the same
    for way in ("bytes", "trailing"):
        # The clock moves only for blocked clients, so ids and times are the same as well.
        assert answers(case, way, 2 + len(case.lines) % 2) == expected, way


def test_replies_to_ten_thousand_requests_in_one_turn_are_in_order() -> None:
    # Given a pipeline of 10,000 requests
    store = LocalStore(clock=ManualClock(START_MS), config=Config(port=0))
    client = store.client()
    client.session.feed(b"".join(request(("ECHO", number)) for number in range(10_000)))
    # When it runs in one turn
    store.node.turn([client.session])
    # Then every request has its reply, in order
    expected = b"".join(b"$%d\r\n%d\r\n" % (len(str(at)), at) for at in range(10_000))
    assert bytes(client.session.output.take()) == expected
