"""Scripts: what runs leave in Lua's memory, and what one run can see of another."""

from __future__ import annotations

import pytest

from headwater.server.config import Config
from headwater.testing.node import LocalClient, LocalStore, Word, request
from headwater.testing.replies import Failure

pytest.importorskip("lupa")

BATCH = 1000
SPARE_BYTES = 1 << 20
"""What the collector may leave for its next steps: Lua's own starts a cycle at twice what is in use."""

INCREMENT = "return redis.call('INCR', KEYS[1])"


@pytest.fixture
def store() -> LocalStore:
    return LocalStore(config=Config(port=0, lua_time_limit=60_000), journaled=False)


@pytest.fixture
def client(store: LocalStore) -> LocalClient:
    return store.client()


def run(store: LocalStore, client: LocalClient, times: int, words: tuple[Word, ...]) -> None:
    """Send a command so many times, a batch in each turn."""
    data = request(words) * BATCH
    for _ in range(times // BATCH):
        client.session.feed(data)
        store.node.turn([client.session])
        client.session.take_output()


def lua_bytes(client: LocalClient) -> int:
    """What Lua holds, garbage included."""
    kilobytes = client("EVAL", "return collectgarbage('count')", 0)
    assert isinstance(kilobytes, int)
    return kilobytes * 1024


def test_100_000_calls_of_a_script_leave_nothing_behind(
    store: LocalStore, client: LocalClient
) -> None:
    # Given a script that has run for a while
    sha = client("SCRIPT", "LOAD", INCREMENT)
    assert isinstance(sha, bytes)
    run(store, client, 2000, ("EVALSHA", sha, 1, "n"))
    before = lua_bytes(client)
    # When it runs 100,000 times more
    run(store, client, 100_000, ("EVALSHA", sha, 1, "n"))
    # Then each run has done its work, and Lua holds no more than before
    assert client("GET", "n") == b"102000"
    assert lua_bytes(client) < before + SPARE_BYTES


@pytest.mark.parametrize(
    "script",
    [
        "local c = coroutine.create(function() coroutine.yield(KEYS) end) coroutine.resume(c)",
        "local t = {} t.self = t setmetatable(t, {__index = function() return t, _G end}) return 1",
        "error({err = 'no', t = _G})",
        "return pcall(redis.call, 'nonsense')",
        "return loadstring('return ARGV')()[1]",
        "local names = {} for name, value in pairs(_G) do names[name] = value end return #names",
        "return {redis, string, {ok = 'x'}}",
        "return cjson.decode('[[1], {\"a\": [2]}]')",
        "return ('x'):rep(100000)",
        "return ('a.b'):gsub('%a', function(letter) return letter:upper() .. tostring(_G) end)",
    ],
)
def test_no_kind_of_script_leaves_anything_behind(
    store: LocalStore, client: LocalClient, script: str
) -> None:
    run(store, client, 1000, ("EVAL", script, 1, "key", "value"))
    before = lua_bytes(client)
    run(store, client, 10_000, ("EVAL", script, 1, "key", "value"))
    assert lua_bytes(client) < before + SPARE_BYTES


def test_what_a_large_script_has_used_is_given_back(client: LocalClient) -> None:
    # Given a script that has held 60 MB
    script = "local t = {} for i = 1, 60 do t[i] = ('x'):rep(1e6) .. i end return #t"
    before = lua_bytes(client)
    assert client("EVAL", script, 0) == 60
    # Then the next one finds that memory free
    assert lua_bytes(client) < before + (8 << 20)


@pytest.mark.parametrize(
    "script",
    [
        "table.insert(_G, 'left')",
        "table.insert(redis, 1, 'left')",
        "table.insert(string, 'left')",
        "table.sort(table)",
        "return {redis, _G, string, {cjson}}",
        "KEYS[2] = 'left' ARGV.x = 'left'",
        "setmetatable(KEYS, {__index = function() return 'left' end})",
        "setmetatable(ARGV, {__len = error, __newindex = error})",
        "cjson.decode('{}').x = 'left'",
        "coroutine.wrap(function() KEYS[2] = 'left' coroutine.yield() end)()",
        "loadstring('KEYS[2] = ...')('left')",
        "pcall(loadstring, 'x = 1')",
        "local f = loadstring('left = 1') pcall(f)",
        "loadstring('return _G')().KEYS[2] = 'left'",
    ],
)
def test_a_run_sees_nothing_of_the_run_before(client: LocalClient, script: str) -> None:
    client("EVAL", script, 1, "theirs", "secret")
    seen = """
    local found = {}
    for _, library in ipairs({_G, redis, string, table, cjson, math, coroutine, os, KEYS, ARGV}) do
        for name in next, library do found[#found + 1] = tostring(name) end
        if rawget(library, 1) or getmetatable(library) then found[#found + 1] = 'left' end
    end
    found[#found + 1] = type(redis.call) .. type(string.rep) .. type(_G.cjson.null)
    return found
    """
    assert client("EVAL", seen, 0) == [b"functionfunctionuserdata"]


def test_keys_and_arguments_are_those_of_the_run_everywhere(client: LocalClient) -> None:
    script = """
    local inner = loadstring('return KEYS[1] .. ARGV[1]')
    local routine = coroutine.wrap(function() return _G.KEYS[1] .. _G.ARGV[1] end)
    return {KEYS[1] .. ARGV[1], inner(), routine(), _G == _G._G and 'same' or 'other'}
    """
    for number in (b"1", b"2"):
        expected = [b"k" + number + b"v" + number] * 3 + [b"same"]
        assert client("EVAL", script, 1, b"k" + number, b"v" + number) == expected


def test_a_failed_run_leaves_the_next_one_whole(client: LocalClient) -> None:
    for script in ("error('x')", "return nothing", "redis = 1", "local t = nil; t.x = 1"):
        assert isinstance(client("EVAL", script, 1, "theirs", "secret"), Failure)
        assert client("EVAL", "return {#KEYS, #ARGV, type(redis.call)}", 0) == [0, 0, b"function"]
