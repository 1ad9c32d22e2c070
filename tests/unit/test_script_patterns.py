"""Lua patterns: endless backtracking is ended, and all other results equal those of C's functions."""

from __future__ import annotations

import random
from importlib import resources
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.config.config import Config
from headwater.server.services import scripting
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure

lua51 = pytest.importorskip("lupa.lua51")

BACKTRACKING = [
    "('a'):rep(30):find(('a*'):rep(20) .. 'b')",
    "('a'):rep(40):match(('a?'):rep(40) .. ('a'):rep(40) .. 'b')",
    "('a'):rep(100000):find('a*b')",
    "('a'):rep(3000):match('^(.-)(.-)(.-)x$')",
    "('a'):rep(30):gsub(('a-'):rep(20) .. 'b', '')",
    "('a'):rep(100000):gsub('(a+)%1b', '%0')",
    "('('):rep(200000):find('%b()')",
    "('a'):rep(2e6):find(('a'):rep(1e6) .. 'b', 1, true)",
    "('a'):rep(2e6):find(('a'):rep(1e6) .. 'b')",
    "('a'):rep(1e5):find(('[^b]'):rep(5000) .. 'b')",
    "string.find(('x '):rep(50000), ('.-%s'):rep(9) .. 'y')",
]


@pytest.fixture
def client() -> LocalClient:
    return LocalStore(config=Config(port=0, lua_time_limit=100)).client()


@pytest.mark.parametrize("expression", BACKTRACKING)
def test_a_pattern_that_backtracks_ends_at_the_time_limit(
    client: LocalClient, expression: str
) -> None:
    # When C would take too long for a pattern
    reply = client("EVAL", f"return {expression}", 0)
    # Then the script is ended, and the next one runs
    assert isinstance(reply, Failure), reply
    assert b"lua-time-limit" in reply.text
    assert client("EVAL", "return {('key=1'):match('(%w+)=(%d)')}", 0) == [b"key", b"1"]


@pytest.mark.parametrize(
    "script",
    [
        "while true do pcall(string.find, ('a'):rep(30), ('a*'):rep(20) .. 'b') end",
        "while true do pcall(string.find, ('a'):rep(5000), 'a*b') end",
        "coroutine.wrap(function() return ('a'):rep(30):find(('a*'):rep(20) .. 'b') end)()",
        "for word in ('a'):rep(30):gmatch(('a*'):rep(20) .. 'b') do end",
        "local s = ('ab'):gsub('.', function() return ('a'):rep(30):find(('a*'):rep(20) .. 'b') end)",
        "xpcall(function() return ('a'):rep(30):find(('a*'):rep(20) .. 'b') end, error)",
    ],
)
def test_a_script_cannot_catch_the_end_of_a_pattern(client: LocalClient, script: str) -> None:
    reply = client("EVAL", script + " while true do end", 0)
    assert isinstance(reply, Failure)
    assert b"lua-time-limit" in reply.text
    assert client("EVAL", "return 1", 0) == 1


def test_common_patterns_over_long_subjects_are_fast(client: LocalClient) -> None:
    # Given subjects for which C's worst case would be too long
    script = """
    local long = ('word=12345, '):rep(20000)
    local _, count = long:gsub('(%w+)=(%d+)', '%2=%1')
    local words = 0
    for word in long:gmatch('[^,]+') do words = words + 1 end
    local spaces = (' '):rep(1000)
    return {count, words, #(spaces .. 'x' .. spaces):match('^%s*(.-)%s*$'),
        #(('x'):rep(100000) .. '  '):match('^(.-)%s*$'), long:find('word=99999')}
    """
    # Then searches that are fast in fact end within the limit
    unbounded = LocalStore(config=Config(port=0, lua_time_limit=60_000)).client()
    assert unbounded("EVAL", script, 0) == [20000, 20001, 1, 100000]
    # And a single one ends within a tenth of a second
    assert client("EVAL", "return (('a'):rep(1e6) .. '=1'):match('^(%w+)=(%d+)$') ~= nil", 0) == 1


# --- the matcher compared with C's ------------------------------------------------------------------


class Both:
    """C's functions, and those of the matcher, which here runs every pattern."""

    def __init__(self) -> None:
        lua = lua51.LuaRuntime(encoding=None, unpack_returned_tuples=True)
        load = lua.eval(b"function(text, name) return loadstring(text, name) end")

        def chunk(name: str, *given: Any) -> Any:
            file = resources.files(scripting).joinpath(f"{name}.lua")
            return load(file.read_bytes(), b"@" + name.encode())(*given)

        host = lua.table_from({b"expired": lambda: False, b"timeout": b"timeout"})
        parse, first, growth, _, steps = chunk("patterns")
        matcher, charge, unfinished = chunk("matcher", host)
        endless = lua.eval(b"function() return 1 / 0 end")
        given = (parse, first, growth)
        self._slow = chunk("matching", *given, endless, matcher, charge, unfinished)
        self._attempts = chunk("matching", *given, steps, matcher, charge, unfinished)
        self._run = lua.eval(
            b"""function(name, slow, ...)
                local f = slow and slow[name] or string[name]
                local function all(ok, ...)
                    if not ok then
                        return false, (tostring((...)):gsub("^.-:%d+: ", ""))
                    end
                    return true, ...
                end
                if name == "gmatch" then
                    local subject, pattern = ...
                    local found = {}
                    local ok, problem = pcall(function()
                        local function add(first, ...)
                            if first == nil then return false end
                            found[#found + 1] = table.concat({"[", first, ...}, ";")
                            return true
                        end
                        local following = f(subject, pattern)
                        while #found < 100 and add(following()) do end
                    end)
                    return all(ok, ok and table.concat(found, "|") or problem)
                end
                return all(pcall(f, ...))
            end"""
        )
        self.replacements = {
            b"%0": b"<%0>",
            b"captures": b"%1-%2",
            b"odd": b"%%x%",
            b"table": lua.table_from({b"a": b"A", b"ab": 5, b"b": False, 1: b"one"}),
            b"function": lua.eval(b"function(...) return select('#', ...) .. (...) end"),
            b"wrong": lua.eval(b"function(...) return {} end"),
            b"none": lua.eval(b"function(...) end"),
        }

    def check(self, name: bytes, *arguments: Any) -> None:
        """Check that all three implementations return the same."""
        expected = self._run(name, None, *arguments)
        for way in (self._slow, self._attempts):
            assert self._run(name, way, *arguments) == expected, (name, arguments)


BOTH = Both()

CLASSES = (
    *("a", "b", "c", ".", "%a", "%A", "%d", "%s", "%w", "%W", "%z", "%.", "%%", "-", "]", "^", "$"),
    *("[ab]", "[^ab]", "[a-c]", "[%a_]", "[^%s]", "[]]", "[^]]", "[a-]", "[%]]", "[-a]", "[b-a]"),
)
ITEMS = st.one_of(
    st.builds(
        lambda one, many: one + many,
        st.sampled_from(CLASSES),
        st.sampled_from(("", "*", "+", "-", "?")),
    ),
    st.sampled_from(
        ("(", ")", "()", "%1", "%2", "%0", "%bab", "%b((", "%f[a]", "%f[^%w]", "^", "$")
    ),
    st.sampled_from(("%", "[", "[^", "%b", "%f", "[a", "[%", "\0")),
)
PATTERNS = st.lists(ITEMS, max_size=7).map(lambda items: "".join(items).encode())
WELL_FORMED = st.builds(
    lambda inner, after: "(" + "".join(inner) + ")" + "".join(after),
    st.lists(
        st.sampled_from(CLASSES).flatmap(
            lambda one: st.sampled_from([one + many for many in ("", "*", "+", "-", "?")])
        ),
        max_size=3,
    ),
    st.lists(st.sampled_from((*CLASSES, "%1", "()")), max_size=3),
).map(str.encode)
SUBJECTS = st.text(alphabet="aabbc 1.%-]^$(\0", max_size=14).map(str.encode)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(
    subject=SUBJECTS,
    pattern=st.one_of(PATTERNS, WELL_FORMED, PATTERNS.map(lambda one: b"^" + one)),
    init=st.sampled_from((None, 1, 2, -1, -3, 0, 5, 100, 1.5, -1.5)),
    most=st.sampled_from((None, 0, 1, 2, 100)),
    replacement=st.sampled_from(sorted(BOTH.replacements)),
)
def test_the_matcher_returns_the_same_as_cs_functions(
    subject: bytes, pattern: bytes, init: float | None, most: int | None, replacement: bytes
) -> None:
    where = () if init is None else (init,)
    if any(byte in b"^$*+?.([%-" for byte in pattern.partition(b"\0")[0]):
        BOTH.check(b"find", subject, pattern, *where)
    BOTH.check(b"match", subject, pattern, *where)
    BOTH.check(b"gmatch", subject, pattern)
    count = () if most is None else (most,)
    BOTH.check(b"gsub", subject, pattern, BOTH.replacements[replacement], *count)


def test_patterns_of_32_captures_and_of_more() -> None:
    for count in (31, 32, 33):
        BOTH.check(b"match", b"x" * 40, b"(.)" * count)
        BOTH.check(b"gsub", b"x" * 40, b"(.)" * count, b"%9")
        BOTH.check(b"match", b"y" * 40, b"x" + b"(.)" * count)


def test_a_plain_search_finds_the_same_as_cs() -> None:
    rng = random.Random(7)
    lua = lua51.LuaRuntime(encoding=None, unpack_returned_tuples=True)
    find = lua.eval(b"function(s, p, i) return string.find(s, p, i, true) end")
    for _ in range(500):
        subject = bytes(rng.choices(b"ab", k=rng.randrange(40)))
        text = bytes(rng.choices(b"ab", k=rng.randrange(1, 6)))
        init = rng.randrange(-45, 45)
        assert BOTH._slow[b"find_text"](subject, text, init, 8) == find(subject, text, init)
