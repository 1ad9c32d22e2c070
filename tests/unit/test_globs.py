"""Patterns match as in Redis, in bounded time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.commands.globs import literal, matches, select
from headwater.errors import CommandError
from tests.peers import Peer

CASES = {
    (b"", b""): True,
    (b"", b"a"): False,
    (b"*", b""): False,  # as in Redis, where only a whole key or channel can be empty
    (b"**", b"a"): True,
    (b"a*c", b"abbc"): True,
    (b"a*c", b"abb"): False,
    (b"*a*b*", b"xxaxxbxx"): True,
    (b"h?llo", b"hello"): True,
    (b"h?llo", b"hllo"): False,
    (b"[a-c]x", b"bx"): True,
    (b"[c-a]x", b"bx"): True,
    (b"[^a-c]x", b"bx"): False,
    (b"[^a-c]x", b"dx"): True,
    (b"[]", b"a"): False,
    (b"[^]", b"a"): True,
    (b"[\\]]", b"]"): True,
    (b"[ab", b"b"): True,
    (b"\\*", b"*"): True,
    (b"\\*", b"a"): False,
    (b"a\\", b"a\\"): True,
    (b"a[", b"a"): False,
}


@pytest.mark.parametrize(("pattern", "text"), CASES)
def test_a_pattern_matches_the_whole_text(pattern: bytes, text: bytes) -> None:
    assert matches(pattern, text) is CASES[pattern, text]


def test_a_pattern_made_to_be_slow_is_refused_in_bounded_time() -> None:
    with pytest.raises(CommandError, match="takes too long"):
        matches(b"*" + b"a" * 3_000 + b"b", b"a" * 6_000)
    assert matches(b"*a" * 500 + b"*", b"a" * 1_000)
    assert not matches(b"*a" * 500 + b"b", b"a" * 1_000)


alphabet = st.sampled_from(list(b"abc*?[]^-\\"))
patterns = st.lists(alphabet, max_size=8).map(bytes)
texts = st.lists(st.sampled_from(list(b"abc-]\\")), min_size=1, max_size=5).map(bytes)


@pytest.mark.slow
@given(patterns, st.lists(texts | st.just(b"")))
def test_selecting_many_texts_equals_matching_each(pattern: bytes, names: list[bytes]) -> None:
    if pattern != b"*":
        assert select(pattern, names) == [name for name in names if matches(pattern, name)]
    assert select(b"*", names) == names


@pytest.mark.parametrize("pattern", [b"*" + b"a" * 999 + b"b", b"?" * 2000 + b"*", b"[a-c]" * 200])
def test_selecting_works_with_long_patterns_and_texts(pattern: bytes) -> None:
    names = [b"a" * 5, b"a" * 200, b"a" * 1000 + b"b", b"c" * 2000, b"a" * 1500]
    assert select(pattern, names) == [name for name in names if matches(pattern, name)]


def test_a_pattern_without_special_characters_matches_only_itself() -> None:
    assert (literal(b"a-^]b"), literal(b"a?"), literal(b"\\a")) == (b"a-^]b", None, None)


@pytest.mark.peer
def test_keys_in_redis_finds_the_same(shared_peer: Callable[[str], Peer]) -> None:
    with redis.Redis(port=shared_peer("redis-8.2").port) as real:

        @settings(
            max_examples=300,
            suppress_health_check=[HealthCheck.function_scoped_fixture],
        )
        @given(patterns, st.lists(texts, min_size=1, max_size=6, unique=True))
        def same(pattern: bytes, names: list[bytes]) -> None:
            real.flushdb()
            real.mset(dict.fromkeys(names, b""))
            assert set(real.keys(pattern)) == {name for name in names if matches(pattern, name)}

        same()
