"""Scripts: what they cannot access, cannot exhaust and cannot break."""

from __future__ import annotations

import hashlib
import itertools
import time

import pytest

from headwater.commands import dispatch
from headwater.commands.call import Call
from headwater.config.config import Config
from headwater.engine.check import broken_invariants
from headwater.resp.arguments import Arguments
from headwater.server.services.scripting import cache, interpreter
from headwater.server.services.scripting.tailcalls import without_tail_calls
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Push
from tests.property.state import picture

pytest.importorskip("lupa")


@pytest.fixture
def store() -> LocalStore:
    return LocalStore(config=Config(port=0, lua_time_limit=100))


def failure(client: LocalClient, script: str) -> str:
    """Run a script and return the text of its error."""
    reply = client("EVAL", script, 0)
    assert isinstance(reply, Failure), reply
    return reply.text.decode()


def loaded(client: LocalClient, script: str) -> bytes:
    """Load a script and return its digest."""
    sha = client("SCRIPT", "LOAD", script)
    assert isinstance(sha, bytes)
    return sha


# --- what scripts cannot access -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("io", "require", "package", "debug", "dofile", "loadfile", "module", "newproxy"),
        *("print", "getfenv", "setfenv", "python", "host"),
    ],
)
def test_unsafe_globals_are_missing(client: LocalClient, name: str) -> None:
    assert f"nonexistent global variable '{name}'" in failure(client, f"return {name}")


@pytest.mark.parametrize(
    "script",
    [
        "return redis.call.__globals__",
        "return redis.sha1hex.__self__",
        "return tostring.x",
        "return os.execute('true')",
        "return os.getenv('HOME')",
        "return getmetatable('').__index.rep",
        "return getmetatable(redis).__index",
        "return setmetatable(redis, {})",
        "return loadstring('\\27Lua')()",
        "return coroutine.create(1)",
    ],
)
def test_a_script_cannot_leave_its_environment(client: LocalClient, script: str) -> None:
    failure(client, script)


@pytest.mark.parametrize(
    "script",
    [
        "string.rep = 1",
        "getmetatable('').__index = 1",
        "redis.x = 1",
        "_G.x = 1",
        "x = 1",
        "rawset(_G, 'x', 1)",
        "rawset(string, 'x', 1)",
        "for k in pairs(redis) do redis[k] = nil end",
        "cjson.null = 1",
        "local _, real = pairs(redis) real.call = nil",
        "local _, real = pairs(_G) real.redis = nil",
    ],
)
def test_a_script_cannot_change_what_the_next_one_sees(client: LocalClient, script: str) -> None:
    failure(client, script)
    assert client("EVAL", "return {('x'):rep(2), type(redis.call), type(cjson.null)}", 0) == [
        b"xx",
        b"function",
        b"userdata",
    ]


def test_bytecode_is_refused(client: LocalClient) -> None:
    reply = client("EVAL", b"\x1bLua\x51\x00", 0)
    assert isinstance(reply, Failure)
    assert b"precompiled chunks are not loaded" in reply.text


# --- what they cannot exhaust ---------------------------------------------------------------------

RESUMED = ("coroutine.wrap(inner)", "coroutine.resume, coroutine.create(inner)")
NESTED = """
local function level(number)
    while true do
        local function inner()
            if number == 0 then while true do end end
            level(number - 1)
        end
        pcall(%s)
    end
end
level(%d)
"""


LONG = (
    "table.remove(t, 1)",
    "table.insert(t, 1, 1)",
    "table.maxn(t)",
    "pcall(table.sort, t, rawequal)",
)


@pytest.mark.parametrize(
    "caught",
    ["pcall(f)", "xpcall(f, f)", "coroutine.resume(coroutine.create(f))", "pcall(pcall, f)"],
)
def test_a_script_that_fills_cs_stack_again_and_again_is_ended(
    client: LocalClient, caught: str
) -> None:
    # Given calls so deep that even the function that checks the clock fails, and is tried again at each level
    text = failure(client, f"local function f() while true do {caught} end end f()")
    # Then the time limit ends them
    assert "lua-time-limit" in text
    assert client("EVAL", "return 1", 0) == 1


def test_the_clock_is_checked_between_slow_calls(
    client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a clock on which each reading takes a tenth of the limit, and calls with few instructions of Lua between
    readings = itertools.count()
    monkeypatch.setattr(
        interpreter, "monotonic_ns", lambda: time.monotonic_ns() + next(readings) * 10**7
    )
    for call in ("redis.sha1hex('')", "cjson.decode('[]')", "struct.pack('b', 1)"):
        client("DEL", "n")
        loop = f"for i = 1, 1e9 do redis.call('incr', 'n') pcall(function() {call} end) end"
        assert "lua-time-limit" in failure(client, loop)
        # Then the limit ends them after a few, and not after the ten thousand instructions that Lua counts
        runs = client("GET", "n")
        assert isinstance(runs, bytes)
        assert int(runs) < 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "coroutine.wrap(function() while true do end end)()",
        pytest.param(
            "local s = ('x'):rep(8e6) while true do pcall(string.upper, s) end",
            marks=pytest.mark.slow,
        ),
        "local t = {} for i = 1, 1e5 do t[i] = '' end while true do pcall(table.concat, t) end",
        "local s, t = ('x'):rep(1e6), {} for i = 1, 1e5 do t[i] = s end table.sort(t)",
        *(NESTED % (resumed, depth) for resumed in RESUMED for depth in (1, 2, 4, 8)),
        "local f f = function() return f() end f()",
        "while true do redis.call('incr', 'n') end",
        *(
            f"local t = {{}} for i = 1, 1e6 do t[i] = i end while true do {call} end"
            for call in LONG
        ),
    ],
)
def test_a_script_that_does_not_end_is_ended(
    store: LocalStore, client: LocalClient, script: str
) -> None:
    # When it reaches the time limit
    reply = client("EVAL", script, 0)
    # Then it is ended, what it wrote remains and is in the journal, and the next one runs
    assert isinstance(reply, Failure)
    assert b"lua-time-limit" in reply.text or b"stack overflow" in reply.text
    assert client("EVAL", "return redis.call('incr', 'm')", 0) == 1
    assert broken_invariants(store.node.keyspace) == []
    before = picture(store.node.keyspace)
    store.crash()
    assert picture(store.node.keyspace) == before


def test_a_script_cannot_fill_the_memory(client: LocalClient) -> None:
    text = failure(client, "local t = {} while true do t[#t+1] = ('x'):rep(1e6) .. #t end")
    assert "not enough memory" in text or "lua-time-limit" in text
    assert client("EVAL", "return 1", 0) == 1


@pytest.mark.parametrize(
    "script",
    [
        "return setmetatable({}, {__index = function() error('x') end})",
        "return setmetatable({}, {__index = function() while true do end end})",
        "return {{setmetatable({}, {__index = function() while true do end end})}}",
        "error({err = setmetatable({}, {__tostring = function() while true do end end})})",
        "error(setmetatable({}, {__index = function() while true do end end}))",
        "error({err = 'x', line = setmetatable({}, {__tostring = error})})",
    ],
)
def test_returning_a_table_does_not_run_its_metamethods(client: LocalClient, script: str) -> None:
    client("EVAL", script, 0)
    assert client("EVAL", "return 1", 0) == 1


@pytest.mark.parametrize(
    "script",
    [
        "return xpcall(function() while true do end end, function() while true do end end)",
        "local t = {1} for i = 1, 40 do t = {t, t} end return t",
        "local t = {1} for i = 1, 40 do t = {t, t} end return cjson.encode(t)",
    ],
)
def test_error_handlers_and_replies_are_bounded(client: LocalClient, script: str) -> None:
    text = failure(client, script)
    assert "lua-time-limit" in text or "too long" in text


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("return string.find(('a'):rep(1e6), ('a?'):rep(1e6))", "malformed pattern (too complex)"),
        ("return ('a'):gsub(('a?'):rep(1e6), '')", "malformed pattern (too complex)"),
        ("return unpack({}, 0, 2^31 - 1)", "too many results to unpack"),
        ("return unpack({}, -2^31, 2^31 - 1)", "too many results to unpack"),
        ("return unpack({}, 2^31, 0)", "too many results to unpack"),
        ("return unpack({}, -2^31, -2)", "too many results to unpack"),
        ("return unpack({}, 1, -2^31 - 1)", "too many results to unpack"),
        ("table.insert({}, -2^31, 'x')", "position out of bounds"),
        ("table.insert({}, 2^31, 'x')", "position out of bounds"),
        ("table.insert({}, '0x80000000', 'x')", "position out of bounds"),
        ("return ('x'):rep(-2^31 - 1)", "2147483647 bytes are too many for one call"),
        ("return struct.size(('x'):rep(1e6))", "1000000 bytes are too many for a format"),
    ],
)
def test_calls_that_would_overflow_cs_stack_or_never_end_are_refused(
    client: LocalClient, script: str, expected: str
) -> None:
    assert f"user_script:1: {expected}" in failure(client, script).replace(
        "bad argument #2 to 'insert' (position out of bounds)", "position out of bounds"
    )
    assert client("EVAL", "return ('').rep('', '2147483647')", 0) == b""


@pytest.mark.parametrize(
    ("first", "last", "count"),
    [
        ("-2^31", "-2^31 + 2", 3),
        ("2^31 - 2", "2^31 - 1", 2),
        ("2^31 - 1", "2^31 - 1", 1),
        ("2^31 - 1", "2^31", 0),
        ("1", "-2^31", 0),
        ("-1", "-2", 0),
        ("2^32 + 1", "2^32 + 2", 2),
        ("-1.5", "0.5", 2),
        ("1", "1.9", 1),
        ("1", "2^53", 0),
        ("1", "1e100", 0),
        ("0/0", "3", 4),
        ("-1/0", "'3'", 4),
    ],
)
def test_unpack_counts_with_the_integers_of_c(
    client: LocalClient, first: str, last: str, count: int
) -> None:
    assert client("EVAL", f"return select('#', unpack({{1, 2, 3}}, {first}, {last}))", 0) == count


def test_bounded_functions_behave_as_in_lua(client: LocalClient) -> None:
    script = """
    local t = {1, 2} table.insert(t, 3) table.insert(t, 1, 0)
    local words = {} for word in ('a b'):gmatch('%a') do words[#words + 1] = word end
    return {('a+b'):find('+', 1, true), ('ab'):match('(a)(b)'), (('ab'):gsub('.', '%0%0')), words,
        {unpack(t)}, {unpack(t, 2, 3)}, {unpack({}, 1, 2)}}
    """
    assert client("EVAL", script, 0) == [
        *(2, b"a", b"aabb", [b"a", b"b"], [0, 1, 2, 3], [1, 2], []),
    ]
    for script, expected in (
        ("return ('x'):rep()", "bad argument #2 to 'rep' (number expected, got no value)"),
        ("return table.concat()", "bad argument #1 to 'concat' (table expected, got no value)"),
        ("return table.sort()", "bad argument #1 to 'sort' (table expected, got no value)"),
        ("return ('x'):match()", "bad argument #2 to 'match' (string expected, got no value)"),
        ("return ('x'):match('(')", "unfinished capture"),
        ("table.insert(1, 2)", "bad argument #1 to 'insert' (table expected, got number)"),
        ("('x'):gsub('.', function() error('own') end)", "own"),
    ):
        assert f"user_script:1: {expected} script" in failure(client, script)


@pytest.mark.parametrize("size", [100, 1000, 100_000])
def test_without_free_memory_commands_fail_and_the_server_continues(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a stream, and a script that uses up its memory
    monkeypatch.setattr(interpreter, "MAX_SCRIPT_MEMORY_BYTES", 4 << 20)
    client = LocalStore(config=Config(port=0, lua_time_limit=5000)).client()
    for _ in range(50):
        client("XADD", "s", "*", "f", "v" * 50)
    script = """
    local t = {}
    for _, size in ipairs({tonumber(ARGV[1]), 10}) do
        pcall(function() while true do t[#t+1] = ('x'):rep(size) .. #t end end)
    end
    for i = 1, 50 do
        if i % 10 == 0 then t[#t] = nil end
        pcall(redis.call, 'XRANGE', 's', '-', '+')
        pcall(cjson.decode, '[[1,2],[3]]')
        pcall(cjson.encode, {{1, 2}})
        pcall(redis.sha1hex, 'x')
        pcall(redis.setresp, {})
    end
    return 1
    """
    # When it continues to call the server
    client("EVAL", script, 0, size)
    # Then the server is not affected
    assert client("EVAL", "return #redis.call('XRANGE', 's', '-', '+')", 0) == 50
    assert client("XLEN", "s") == 50


def test_cached_scripts_cannot_fill_the_memory(
    client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a limit of one megabyte for scripts
    monkeypatch.setattr(interpreter, "MAX_SCRIPT_MEMORY_BYTES", 1 << 20)
    # When more of them are loaded
    texts = [f"return '{str(number) * 40_000}'" for number in range(50)]
    reply = [client("SCRIPT", "LOAD", text) for text in texts][-1]
    # Then loading fails until they are flushed
    assert isinstance(reply, Failure)
    assert b"not enough memory" in reply.text
    client("SCRIPT", "FLUSH")
    assert client("EVAL", "return 1", 0) == 1


def test_a_script_cannot_catch_an_exception_in_the_middle_of_a_change(
    store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a command that raises an unexpected exception after it has begun to write
    def broken(call: Call) -> None:
        call.admit(1)
        raise ZeroDivisionError

    strlen = dispatch.find_command(Arguments.of(b"STRLEN", b"key"))
    monkeypatch.setattr(strlen, "function", broken)
    # Then it ends a script that calls the command, even in pcall
    with pytest.raises(ZeroDivisionError):
        client("EVAL", "return pcall(redis.call, 'strlen', 'k')", 0)


def test_endlessly_nested_tables_are_refused(client: LocalClient) -> None:
    assert "lua stack limit" in failure(client, "local t = {} t[1] = t return t")
    assert "excessive nesting" in failure(client, "local t = {} t[1] = t return cjson.encode(t)")
    assert "too many nested" in failure(client, "return cjson.decode(('['):rep(5000))")


def test_scripts_that_differ_by_their_values_do_not_accumulate(
    store: LocalStore, client: LocalClient
) -> None:
    # Given a script loaded by SCRIPT LOAD
    sha = loaded(client, "return 'kept'")
    # When a client puts values into the text of its scripts
    for number in range(cache.MOST_FROM_EVAL + 20):
        assert client("EVAL", f"return {number}", 0) == number
    # Then only the latest are cached, and the loaded one
    assert len(store.node.services.scripts) == cache.MOST_FROM_EVAL + 1
    assert client("EVALSHA", sha, 0) == b"kept"
    first = hashlib.sha1(b"return 0").hexdigest()
    assert client("SCRIPT", "EXISTS", first) == [0]


# --- one command ----------------------------------------------------------------------------------


def test_a_script_is_one_record_group(store: LocalStore, client: LocalClient) -> None:
    before = len(store.facts())
    script = "redis.call('xadd','s','*','a','b') redis.call('xadd','t','*','a','b') return 1"
    assert client("EVAL", script, 0) == 1
    assert len(store.facts()) == before + 1


def test_a_script_sees_a_constant_time(client: LocalClient) -> None:
    script = "local a = redis.call('time') local b = redis.call('time') return a[2] == b[2]"
    assert client("EVAL", script, 0) == 1


def test_a_restart_removes_scripts_but_not_their_writes(store: LocalStore) -> None:
    sha = loaded(store.client(), "return redis.call('set','k','v')")
    store.client()("EVALSHA", sha, 0)
    store.crash()
    assert store.client()("GET", "k") == b"v"
    assert store.client()("EVALSHA", sha, 0) == Failure(
        b"NOSCRIPT No matching script. Please use EVAL."
    )


def test_a_script_has_the_permissions_of_its_user(client: LocalClient) -> None:
    # Given a user who may run scripts and read some keys
    client("ACL", "SETUSER", "ann", "on", "nopass", "+eval", "+get", "~mine:*")
    client("AUTH", "ann", "x")
    # Then the user's scripts have the same permissions
    assert client("EVAL", "return type(redis.call('get', KEYS[1]))", 1, "mine:1") == b"boolean"
    assert "ERR ACL failure in script" in failure(client, "return redis.call('get', 'yours')")
    assert "ERR ACL failure in script" in failure(client, "return redis.call('del', 'mine:1')")
    allowed = "return {redis.acl_check_cmd('get','mine:1'), redis.acl_check_cmd('get','yours')}"
    assert client("EVAL", allowed, 0)[0] == 1  # type: ignore[index]
    assert isinstance(client("EVAL", "return 1", 1, "yours"), Failure)


def test_messages_of_a_script_come_after_its_reply(store: LocalStore) -> None:
    # Given a client that is subscribed
    client = store.client(resp=3)
    assert isinstance(client("SUBSCRIBE", "news"), Push)
    # When it runs a script that publishes
    client.send("EVAL", "redis.call('publish','news','x') return 5", 0)
    # Then the reply comes first
    assert client.reply() == 5
    assert client.reply() == Push((b"message", b"news", b"x"))


def test_a_script_wakes_waiting_clients_when_it_has_ended(
    store: LocalStore, client: LocalClient
) -> None:
    waiting = store.client()
    waiting.send("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    script = "redis.call('xadd','s','1-1','a','b') redis.call('xadd','s','2-1','a','b') return 1"
    assert client("EVAL", script, 0) == 1
    assert waiting.reply() == [[b"s", [[b"1-1", [b"a", b"b"]], [b"2-1", [b"a", b"b"]]]]]


def test_an_error_in_a_tail_call_has_its_line(client: LocalClient) -> None:
    script = "local f = function()\n return redis.call('get')\nend\n\nreturn f()"
    assert failure(client, script).endswith("on @user_script:2.")


def test_a_chunk_without_tail_calls_behaves_the_same() -> None:
    from lupa import lua51

    lua = lua51.LuaRuntime(encoding=None)
    dump = lua.eval(b"function(text) return string.dump(loadstring(text, '@x')) end")
    load = lua.eval(b"loadstring")
    for text in (
        b"local f = function(...) return select('#', ...), ... end return f(1, nil, 3)",
        b"local t = {f = function(self, a) return a, #self end} return t:f('x')",
        b"local function g(n) if n == 0 then return 'end' end return g(n - 1) end return g(100)",
        b"return (function() return 1, 'two', 3.5, true, nil end)()",
    ):
        chunk = dump(text)
        assert load(without_tail_calls(chunk))() == load(chunk)(), text
