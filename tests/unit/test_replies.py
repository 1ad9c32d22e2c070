"""Replies are the bytes of the RESP specification, in both versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.resp.replies import ReplyWriter

Write = Callable[[ReplyWriter], Any]

SAME: dict[bytes, Write] = {
    b"+OK\r\n": lambda reply: reply.ok(),
    b"+PONG\r\n": lambda reply: reply.simple(b"PONG"),
    b"-ERR no such key\r\n": lambda reply: reply.error("ERR no such key"),
    b"-ERR a  b \xff\r\n": lambda reply: reply.error("ERR a\r\nb \udcff"),
    b":-9223372036854775808\r\n": lambda reply: reply.integer(-(2**63)),
    b"$0\r\n\r\n": lambda reply: reply.bulk(b""),
    b"$2\r\n\r\n\r\n": lambda reply: reply.bulk(b"\r\n"),
    b"$3\r\n5-1\r\n": lambda reply: reply.id(5, 1),
    b"*0\r\n": lambda reply: reply.array(0),
    b"*2\r\n$1\r\na\r\n$2\r\nbc\r\n": lambda reply: reply.bulks([b"a", b"bc"]),
    b"*1\r\n:1\r\n": lambda reply: reply.raw(memoryview(b"*1\r\n:1\r\n")),
}

DIFFERENT: dict[str, tuple[Write, bytes, bytes]] = {
    "nil": (lambda reply: reply.nil(), b"$-1\r\n", b"_\r\n"),
    "nil array": (lambda reply: reply.nil_array(), b"*-1\r\n", b"_\r\n"),
    "map": (lambda reply: reply.map(3), b"*6\r\n", b"%3\r\n"),
    "set": (lambda reply: reply.set(3), b"*3\r\n", b"~3\r\n"),
    "push": (lambda reply: reply.push(3), b"*3\r\n", b">3\r\n"),
    "verbatim": (lambda reply: reply.verbatim(b"a\nb"), b"$3\r\na\nb\r\n", b"=7\r\ntxt:a\nb\r\n"),
}


def written(write: Write, resp: int) -> bytes:
    out = bytearray(b"before")
    write(ReplyWriter(out, resp))
    assert out.startswith(b"before"), "a writer only appends"
    return bytes(out[6:])


@pytest.mark.parametrize("expected", SAME)
@pytest.mark.parametrize("resp", [2, 3])
def test_most_replies_are_the_same_in_both_versions(expected: bytes, resp: int) -> None:
    assert written(SAME[expected], resp) == expected


@pytest.mark.parametrize("name", DIFFERENT)
def test_replies_that_differ_between_the_versions(name: str) -> None:
    write, resp2, resp3 = DIFFERENT[name]
    assert written(write, 2) == resp2
    assert written(write, 3) == resp3
