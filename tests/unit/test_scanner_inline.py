"""Inline requests are split as in Redis, and quoted words are read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ProtocolError
from headwater.resp.inline import quote, split

SPLITS = {
    b"": [],
    b" \t\v\f\r": [],
    b"PING": [b"PING"],
    b"  set  k\tv  ": [b"set", b"k", b"v"],
    b"a\vb \fc": [b"a\vb", b"c"],
    b'a"b c"': [b"ab c"],
    b"a'b c' d": [b"ab c", b"d"],
    b"\"\" ''": [b"", b""],
    b'"\\n\\r\\t\\b\\a\\"\\\\"': [b'\n\r\t\b\a"\\'],
    b'"\\x41\\xzz\\x4"': [b"Axzzx4"],
    b"'\\n\\''": [b"\\n'"],
    b"\\n": [b"\\n"],
    b"\xff\x00": [b"\xff\x00"],
}


@pytest.mark.parametrize("line", SPLITS)
def test_a_line_is_split_at_white_space_outside_quotes(line: bytes) -> None:
    assert split(line) == SPLITS[line]


@pytest.mark.parametrize("line", [b'"', b"'", b'a "b', b"'a\\'", b'"a"b', b"'a'b", b'"\\"'])
def test_quotes_that_do_not_balance_are_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"^Protocol error: unbalanced quotes in request$"):
        split(line)


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_quoted_words_are_read_back(words: list[bytes]) -> None:
    assert split(b" ".join(quote(word) for word in words)) == words
