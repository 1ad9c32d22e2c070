"""What the load generator recognises as a reply, an error, or neither."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import load

pytestmark = pytest.mark.usefixtures("program")

ENTRIES = (
    b"*1\r\n*2\r\n$1\r\ns\r\n*2\r\n"
    b"*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$4\r\nx\r\n \r\n"
    b"*4\r\n$4\r\n12-0\r\n*0\r\n:17\r\n:2\r\n"
)
"""A reply of XREADGROUP: an entry with a line end in a value, and one with the numbers of CLAIM."""

WHOLE: dict[str, tuple[bytes, dict[str, Any]]] = {
    "a status": (b"+OK\r\n", {"replies": 1}),
    "an integer": (b":3\r\n", {"replies": 1, "sum": 3}),
    "a negative integer": (b":-2\r\n", {"replies": 1, "sum": -2}),
    "a bulk with line ends in it": (b"$7\r\n-x\r\n+y\n\r\n", {"replies": 1}),
    "an empty bulk": (b"$0\r\n\r\n", {"replies": 1}),
    "nil": (b"$-1\r\n*-1\r\n_\r\n", {"replies": 3}),
    "an empty array": (b"*0\r\n", {"replies": 1}),
    "nested arrays": (b"*2\r\n*2\r\n:1\r\n:0\r\n*1\r\n*0\r\n", {"replies": 1, "sum": 1}),
    "two flags and no new id": (b"*2\r\n*2\r\n:1\r\n:1\r\n*0\r\n", {"replies": 1, "sum": 2}),
    "entries": (ENTRIES, {"replies": 1, "ids": ["1-1", "12-0"]}),
    "entries by name": (b"%1" + ENTRIES[2:4] + ENTRIES[8:], {"ids": ["1-1", "12-0"]}),
    "a map": (b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:5\r\n", {"replies": 1, "sum": 6}),
    "a set, a double, a boolean, a big number": (
        b"~4\r\n,1.5\r\n#t\r\n(12345678901234567890\r\n=5\r\ntxt:a\r\n",
        {"replies": 1},
    ),
    "a push": (b">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n:1\r\n", {"replies": 1}),
    "attributes before a value": (b"|1\r\n+ttl\r\n:9\r\n$1\r\nv\r\n:1\r\n", {"replies": 2}),
    "an error": (b"-ERR no such key\r\n", {"replies": 1, "errors": 1}),
    "an error among others": (b":1\r\n-NOGROUP no\r\n:1\r\n", {"replies": 3, "errors": 1}),
    "an error within an array": (b"*2\r\n:1\r\n-ERR in EXEC\r\n", {"replies": 1, "errors": 1}),
    "a long error": (b"!10\r\nSYNTAX bad\r\n", {"replies": 1, "errors": 1}),
}

BROKEN = {
    "an HTTP reply": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an invalid length": b"$x\r\n",
    "bytes after a bulk": b"$1\r\nabc\r\n",
    "an endless length": b"$99999999999999\r\n",
}


def read(data: bytes, piece: int) -> dict[str, Any]:
    """Return what the reader finds in ``data`` when it arrives in pieces of ``piece`` bytes."""
    found: dict[str, Any] = json.loads(load.run_program("read", piece, given=data))
    return found


@pytest.mark.parametrize("name", WHOLE)
def test_the_end_of_a_reply_is_found_in_pieces_of_any_size(name: str) -> None:
    data, expected = WHOLE[name]
    expected = {"errors": 0, "broken": 0, "unfinished": 0, **expected}
    for piece in (1, 2, 7, 1000):
        found = read(data, piece)
        assert {key: found[key] for key in expected} == expected, f"in pieces of {piece}"


@pytest.mark.parametrize("name", WHOLE)
def test_a_reply_that_is_cut_short_is_not_counted(name: str) -> None:
    # Given a reply, and another one without its last byte
    data, expected = WHOLE[name]
    found = read(b"+OK\r\n" + data[:-1], 3)
    # Then the second is not counted, and the reader waits for the rest
    assert found["replies"] == expected.get("replies", 1)
    assert found["unfinished"] == 1


@pytest.mark.parametrize("name", BROKEN)
def test_data_that_are_not_resp_break_the_reader(name: str) -> None:
    for piece in (1, 1000):
        assert read(BROKEN[name], piece)["broken"] == 1
