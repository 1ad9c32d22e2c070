"""Scripts leave nothing in Lua's memory, and no run sees anything of another."""

from __future__ import annotations

import pytest

from headwater.config.config import Config
from headwater.testing.node import LocalClient, LocalStore, Word, request
from headwater.testing.replies import Failure, Nil

pytest.importorskip("lupa")

BATCH = 1000
SPARE_BYTES = 1 << 20
"""Garbage that Lua's collector may leave: it starts a cycle at twice the memory in use."""

INCREMENT = "return redis.call('INCR', KEYS[1])"


@pytest.fixture
def store() -> LocalStore:
    return LocalStore(config=Config(port=0, lua_time_limit=60_000), journaled=False)


def run(store: LocalStore, client: LocalClient, times: int, words: tuple[Word, ...]) -> None:
    """Send a command ``times`` times, a batch in each turn."""
    data = request(words) * BATCH
    for _ in range(times // BATCH):
        client.session.feed(data)
        store.node.turn([client.session])
        client.session.output.take()


def lua_bytes(client: LocalClient) -> int:
    """Return the memory of Lua in bytes, including garbage."""
    kilobytes = client("EVAL", "return collectgarbage('count')", 0)
    assert isinstance(kilobytes, int)
    return kilobytes * 1024


@pytest.mark.slow
def test_many_calls_of_a_script_leave_no_memory(store: LocalStore, client: LocalClient) -> None:
    # Given a script that has run for a while
    sha = client("SCRIPT", "LOAD", INCREMENT)
    assert isinstance(sha, bytes)
    run(store, client, 2000, ("EVALSHA", sha, 1, "n"))
    before = lua_bytes(client)
    # When it runs 100,000 times more
    run(store, client, 100_000, ("EVALSHA", sha, 1, "n"))
    # Then each run has done its work, and Lua uses no more memory than before
    assert client("GET", "n") == b"102000"
    assert lua_bytes(client) < before + SPARE_BYTES


@pytest.mark.slow
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
def test_no_kind_of_script_leaves_memory(
    store: LocalStore, client: LocalClient, script: str
) -> None:
    run(store, client, 1000, ("EVAL", script, 1, "key", "value"))
    before = lua_bytes(client)
    run(store, client, 10_000, ("EVAL", script, 1, "key", "value"))
    assert lua_bytes(client) < before + SPARE_BYTES


def test_the_memory_of_a_large_script_is_freed(client: LocalClient) -> None:
    # Given a script that has used 60 MB
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
def test_a_run_sees_nothing_of_the_previous_run(client: LocalClient, script: str) -> None:
    client("EVAL", script, 1, "theirs", "secret")
    seen = """
    local found = {}
    for _, library in ipairs({_G, redis, string, table, cjson, math, coroutine, os, KEYS, ARGV}) do
        for name in next, library do found[#found + 1] = tostring(name) end
        if rawget(library, 1) then found[#found + 1] = 'left' end
        if library ~= _G and getmetatable(library) then found[#found + 1] = 'left' end
    end
    for name in next, getmetatable(_G) do found[#found + 1] = tostring(name) end
    found[#found + 1] = type(redis.call) .. type(string.rep) .. type(_G.cjson.null)
    return found
    """
    assert client("EVAL", seen, 0) == [b"functionfunctionuserdata"]


def test_no_function_bypasses_the_metatable_of_a_library(client: LocalClient) -> None:
    # When a script calls each of its functions with each library, in many ways
    script = """
    local tables, functions = {_G, getmetatable(_G)}, {}
    for _, value in pairs(_G) do
        if type(value) == 'function' then functions[#functions + 1] = value end
        if type(value) == 'table' and value ~= KEYS and value ~= ARGV and value ~= _G then
            tables[#tables + 1] = value
            for _, inner in pairs(value) do
                if type(inner) == 'function' then functions[#functions + 1] = inner end
            end
        end
    end
    local tried = 0
    for _, call in ipairs(functions) do
        for _, target in ipairs(tables) do
            for _, given in ipairs({1, 'x', function() return 1 end, {}}) do
                pcall(call, target)
                pcall(call, target, given)
                pcall(call, target, given, given)
                pcall(call, target, 1, given)
                pcall(call, given, target)
                pcall(call, given, given, target)
                tried = tried + 6
            end
        end
    end
    for _, target in ipairs(tables) do
        if next(target) ~= nil or (target ~= _G and getmetatable(target)) then return 'written to' end
    end
    return tried
    """
    # Then no library is changed
    tried = client("EVAL", script, 0)
    assert isinstance(tried, int), tried
    assert tried > 10_000
    assert client("EVAL", "return {type(redis.call), #KEYS, ('x'):rep(2)}", 0) == [
        *(b"function", 0, b"xx"),
    ]


def test_replies_of_any_length_and_depth_cross_in_both_directions(store: LocalStore) -> None:
    client = store.client(resp=3)
    # Given replies of a few values and of many, flat and nested
    for number in range(600):
        client("XADD", "s", f"{number + 1}-1", "field", number, "", "x" * number)
        client("RPUSH", "l", number)
    client("HSET", "h", "a", 1, "b", 2)
    for command in ("'XRANGE', 's', '-', '+'", "'LRANGE', 'l', 0, -1", "'LRANGE', 'l', 0, 3"):
        words = [word.strip("' ") for word in command.split(",")]
        # Then a script returns them unchanged
        expected = client(*words)
        assert client("EVAL", f"return redis.call({command})", 0) == expected
        inner = f"return #redis.call({command})"
        assert client("EVAL", inner, 0) == len(expected)  # type: ignore[arg-type]
    script = "redis.setresp(3) return redis.call('HGETALL', 'h')"
    assert client("EVAL", script, 0) == client("HGETALL", "h")
    script = "local t = {} for i = 1, 5000 do t[i] = {i, {tostring(i)}, false} end return t"
    answer = store.client()("EVAL", script, 0)
    assert answer == [[number, [b"%d" % number], Nil.BULK] for number in range(1, 5001)]


@pytest.mark.slow
def test_many_and_large_keys_and_arguments_reach_a_script(client: LocalClient) -> None:
    script = "return {#KEYS, #ARGV, KEYS[#KEYS], #ARGV[#ARGV], select('#', unpack(ARGV, 1, 5))}"
    for keys, large in ((1, 10), (999, 10), (1000, 10), (5000, 10), (2, 100_000_000)):
        names = [f"k{number}" for number in range(1, keys + 1)]
        answer = client("EVAL", script, keys, *names, "a", b"b" * large)
        assert answer == [keys, 2, b"k%d" % keys, large, 5]


def test_keys_and_arguments_are_those_of_the_run_everywhere(client: LocalClient) -> None:
    script = """
    local inner = loadstring('return KEYS[1] .. ARGV[1]')
    local routine = coroutine.wrap(function() return _G.KEYS[1] .. _G.ARGV[1] end)
    return {KEYS[1] .. ARGV[1], inner(), routine(), _G == _G._G and 'same' or 'other'}
    """
    for number in (b"1", b"2"):
        expected = [b"k" + number + b"v" + number] * 3 + [b"same"]
        assert client("EVAL", script, 1, b"k" + number, b"v" + number) == expected


def test_a_failed_run_does_not_affect_the_next_one(client: LocalClient) -> None:
    for script in ("error('x')", "return nothing", "redis = 1", "local t = nil; t.x = 1"):
        assert isinstance(client("EVAL", script, 1, "theirs", "secret"), Failure)
        assert client("EVAL", "return {#KEYS, #ARGV, type(redis.call)}", 0) == [0, 0, b"function"]


def test_info_shows_the_memory_of_lua(client: LocalClient) -> None:
    def memory() -> dict[str, str]:
        text = client("INFO", "memory")
        assert isinstance(text, bytes)
        return dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)

    # Given no script yet, then Lua uses no memory
    fresh = memory()
    assert fresh["used_memory_vm_eval"] == fresh["used_memory_lua"] == "0"
    assert fresh["number_of_cached_scripts"] == fresh["used_memory_scripts"] == "0"
    # When scripts are loaded, then INFO shows Lua's memory and that of their table
    for number in range(100):
        client("SCRIPT", "LOAD", f"return '{number:010}{'x' * 20_000}'")
    loaded = memory()
    assert int(loaded["used_memory_vm_eval"]) > 1_000_000
    assert loaded["used_memory_vm_total"] == loaded["used_memory_vm_eval"]
    assert loaded["used_memory_scripts_eval"] == loaded["used_memory_scripts"] != "0"
    assert loaded["number_of_cached_scripts"] == "100"
    # And SCRIPT FLUSH frees it
    client("SCRIPT", "FLUSH")
    assert memory()["used_memory_vm_eval"] == "0"
