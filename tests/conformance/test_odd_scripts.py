"""Odd arguments of the functions of scripts, of COMMAND GETKEYS and of CONFIG SET are answered as Redis answers them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

import pytest
import redis

from headwater.config.config import Config
from headwater.testing.server import server_thread
from tests.conformance.usages import names, usages
from tests.peers import Peer

pytest.importorskip("lupa")

VALUES = (
    *(
        "nil",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "2",
        "1.5",
        "'3'",
        "'x'",
        "''",
        "'1e3'",
        "'0x10'",
        "' 5 '",
    ),
    *(
        "2^31",
        "-2^31",
        "2^32",
        "2^32 + 0.5",
        "2^53",
        "2^53 + 1",
        "2^63",
        "-2^63",
        "2^64",
        "1e300",
        "-1e300",
    ),
    *(
        "1/0",
        "-1/0",
        "0/0",
        "{}",
        "{1}",
        "{a = 1}",
        "print",
        "redis.call",
        "cjson.null",
        "0.5",
        "2.5",
        "-0.5",
    ),
)
"""Arguments in Lua."""

ONE = (
    *(
        "bit.tobit",
        "bit.bnot",
        "bit.bswap",
        "bit.tohex",
        "bit.band",
        "bit.bor",
        "bit.bxor",
        "bit.lshift",
        "bit.rol",
    ),
    *(
        "redis.sha1hex",
        "redis.error_reply",
        "redis.status_reply",
        "redis.setresp",
        "redis.set_repl",
        "redis.log",
    ),
    *(
        "redis.acl_check_cmd",
        "redis.call",
        "redis.pcall",
        "redis.replicate_commands",
        "redis.breakpoint",
    ),
    *("cjson.encode", "cjson.decode", "cjson.encode_max_depth", "cjson.decode_max_depth"),
    *("cjson.encode_number_precision", "cjson.encode_keep_buffer", "cjson.encode_invalid_numbers"),
    *("cjson.decode_invalid_numbers", "cjson.encode_sparse_array", "cjson.new"),
    *("cmsgpack.pack", "cmsgpack.unpack", "cmsgpack.unpack_one", "cmsgpack.unpack_limit"),
    *("struct.pack", "struct.unpack", "struct.size"),
)
"""Functions that are called with nothing, and with each of the values."""

TWO = (
    *(
        f"bit.{name}(1, %s)"
        for name in ("band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror", "tohex")
    ),
    *(
        f"bit.{name}(%s, 3)"
        for name in ("band", "lshift", "rshift", "arshift", "rol", "ror", "tohex")
    ),
    *(f"bit.{name}(-1.5, 33, %s)" for name in ("band", "bor", "bxor", "lshift")),
    *("redis.log(%s, 'x')", "redis.log(0, %s)", "redis.set_repl(1, %s)", "redis.setresp(3, %s)"),
    *("redis.sha1hex('a', %s)", "redis.error_reply('a', %s)", "redis.status_reply('a', %s)"),
    *(
        "redis.acl_check_cmd('get', %s)",
        "redis.acl_check_cmd('nosuch', %s)",
        "redis.call('get', %s)",
    ),
    *(
        "cjson.encode(1, %s)",
        "cjson.decode('1', %s)",
        "cjson.encode({%s})",
        "cjson.encode({a = %s})",
    ),
    *("cjson.encode_max_depth(1, %s)", "cjson.encode_sparse_array(true, %s)"),
    *("cjson.encode_sparse_array(true, 1, %s)", "cjson.encode_sparse_array(true, 1, 1, %s)"),
    *("cmsgpack.pack(1, %s)", "cmsgpack.pack({%s})", "cmsgpack.unpack('\\1\\2\\3', %s)"),
    *("cmsgpack.unpack_one('\\1\\2\\3', %s)", "cmsgpack.unpack_limit('\\1\\2\\3', %s)"),
    *("cmsgpack.unpack_limit('\\1\\2\\3', 1, %s)",),
    *(
        f"struct.pack('{form}', %s)"
        for form in ("b", "B", "h", "H", "i", "I", "l", "L", "f", "d", "s", "c0", "c2")
    ),
    *(
        "struct.unpack('b', 'abc', %s)",
        "struct.unpack('b', %s)",
        "struct.pack('bb', %s)",
        "struct.pack('x', %s)",
    ),
    *("struct.size('b', %s)",),
)
"""Calls with each of the values as a further argument."""

DEPTHS = (
    *(f"#cjson.encode(nest({depth}))" for depth in (15, 16, 17, 127, 999, 1000, 1001, 1002)),
    *(
        f"depth(cjson.decode(('['):rep({depth}) .. (']'):rep({depth})))"
        for depth in (1, 16, 999, 1000, 1001, 1002)
    ),
    *(
        f"#cjson.decode(('{{\"a\":'):rep({depth}) .. '1' .. ('}}'):rep({depth}))"
        for depth in (999, 1000, 1001)
    ),
    *(
        f"depth(cmsgpack.unpack(cmsgpack.pack(nest({depth}))))"
        for depth in (1, 14, 15, 16, 17, 18, 100, 1000)
    ),
    *(
        f"depth(cmsgpack.unpack(('\\145'):rep({depth}) .. '\\144'))"
        for depth in (15, 16, 17, 50, 999)
    ),
    *("(cjson.encode_max_depth(3))", "cjson.encode_max_depth(3) and cjson.encode(nest(4))"),
    "cjson.decode_max_depth(3) and cjson.decode('[[[[]]]]')",
)
"""Nested values. ``nest(n)`` has n levels of tables, ``depth`` counts them."""

FORMATS = (
    *(
        "",
        " ",
        "z",
        "bz",
        "i0",
        "i1",
        "i3",
        "i8",
        "i9",
        "i16",
        "i32",
        "i33",
        "i99999999999",
        "c",
        "c0",
        "c3",
        "s",
    ),
    *(
        "!",
        "!0",
        "!1",
        "!3",
        "!4b",
        "!16i16",
        "!99999999999",
        "<>b",
        ">i4",
        "x",
        "xb",
        "1",
        "b1",
        "%",
        "\\0",
        "D",
        "F",
    ),
    *(
        "X",
        "t",
        "T",
        "L",
        "H",
        "B",
        "I",
        "I3",
        "i3i3",
        "bi4",
        "!4bi4",
        "!8bd",
        "s0",
        "f",
        "d",
        "hhh",
        "sb",
        "c4c4",
    ),
)

HELPERS = """
cjson.encode_number_precision(14) cjson.encode_max_depth(1000) cjson.decode_max_depth(1000)
cjson.encode_sparse_array(false, 2, 10) cjson.encode_invalid_numbers(false) cjson.decode_invalid_numbers(true)
cjson.encode_keep_buffer(true)
local function nest(n) local t = {} for i = 2, n do t = {t} end return t end
local function depth(t) local n = 0 while type(t) == 'table' do n, t = n + 1, t[1] end return n end
local function shown(v)
  if type(v) == 'number' then return ('%.17g'):format(v):gsub('-nan', 'nan') .. '' end
  if type(v) == 'table' then
    local names = {}
    for name, value in pairs(v) do names[#names + 1] = tostring(name) .. '=' .. shown(value) end
    table.sort(names)
    return '{' .. table.concat(names, ',') .. '}'
  end
  return type(v) == 'function' and 'function' or type(v) == 'userdata' and 'userdata' or type(v) .. ':' .. tostring(v)
end
local function all(...)
  local made = {}
  for i = 1, select('#', ...) do made[i] = shown((select(i, ...))) end
  return table.concat(made, ' ')
end
"""
"""Shows values, and resets the options of cjson: those of Redis last for all scripts (docs/adr/0013-scripts.md)."""


def calls() -> Iterator[str]:
    """Yield calls of Lua."""
    for name in ONE:
        yield f"{name}()"
        yield from (f"{name}({value})" for value in VALUES)
    for call in TWO:
        yield from (call % value for value in VALUES)
    yield from DEPTHS
    for form in FORMATS:
        yield f"struct.pack('{form}', 1, 2, 3)"
        yield f"struct.pack('{form}', 'abcdef', 'gh')"
        yield f"struct.size('{form}')"
        if not {"9", "6", "2"} & set(
            form
        ):  # integers of more than 8 bytes, whose value C does not define
            yield f"struct.unpack('{form}', ('\\1\\2\\3\\0'):rep(16))"
        yield f"struct.unpack('{form}', 'ab')"


def answer(client: redis.Redis, *words: str | bytes) -> object:
    """Return the reply to a command, or its error."""
    try:
        return client.execute_command(*words)
    except redis.ResponseError as error:
        return f"error: {error}"


@pytest.fixture
def both(shared_peer: Callable[[str], Peer]) -> Iterator[tuple[redis.Redis, redis.Redis]]:
    """Clients of Headwater and of Redis."""
    peer = shared_peer("redis-8.2")
    with (
        server_thread(Config(port=0, appendonly=False, save=())) as server,
        redis.Redis(port=server.port) as ours,
        redis.Redis(port=peer.port) as theirs,
    ):
        for client in (ours, theirs):
            client.response_callbacks.clear()
        yield ours, theirs


def differences(
    both: tuple[redis.Redis, redis.Redis], commands: Iterator[tuple[str | bytes, ...]]
) -> list[str]:
    """Send commands to both. Return those whose replies differ."""
    found = []
    for words in commands:
        ours, theirs = (answer(client, *words) for client in both)
        if ours != theirs:
            shown = " ".join(repr(word) for word in words).replace(repr(HELPERS)[1:-1], "")
            found.append(f"{shown[:200]}\n  ours   {str(ours)[:200]}\n  theirs {str(theirs)[:200]}")
    return found


@pytest.mark.slow
@pytest.mark.peer
def test_functions_of_scripts_answer_odd_arguments_as_redis(
    both: tuple[redis.Redis, redis.Redis],
) -> None:
    scripts = (f"{HELPERS}return all(pcall(function() return {call} end))" for call in calls())
    assert differences(both, (("EVAL", script, "0") for script in scripts)) == []
    # And errors that a script does not catch
    bare = (
        "redis.sha1hex()",
        "bit.band()",
        "cjson.encode()",
        "struct.pack()",
        "redis.setresp(4)",
        "redis.log(9, 'x')",
    )
    assert differences(both, (("EVAL", f"return {call}", "0") for call in bare)) == []


NEWER = {b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"}
"""Options that the peer does not know."""
NUMBERS = (
    "0",
    "1",
    "2",
    "-1",
    "1.5",
    "a",
    "",
    "99",
    "9223372036854775807",
    "9223372036854775808",
    " 1",
    "01",
    "+1",
)


def requests() -> Iterator[tuple[bytes, ...]]:
    """Yield requests of every command, complete and with an argument replaced or left out."""
    for name in names():
        for usage in usages(name):
            yield usage
            for at in range(1, len(usage)):
                yield usage[:at]
                yield usage[:at] + usage[at + 1 :]
                for value in (*NUMBERS, "STREAMS", "GET", "IDS"):
                    yield (*usage[:at], value.encode(), *usage[at + 1 :])


@pytest.mark.slow
@pytest.mark.peer
def test_keys_of_odd_requests_are_those_that_redis_finds(
    both: tuple[redis.Redis, redis.Redis],
) -> None:
    known = {name.lower() for name in both[1].execute_command("COMMAND", "LIST")}
    shared = [words for words in requests() if words[0].lower() in known and not NEWER & set(words)]
    assert differences(both, ((b"COMMAND", b"GETKEYS", *words) for words in shared)) == []
    # And so are their flags, except that Redis has none for keys whose number it could not parse
    exact = [words for words in shared if not {b"1.5", b" 1", b"01", b"+1"} & set(words)]
    assert differences(both, ((b"COMMAND", b"GETKEYSANDFLAGS", *words) for words in exact)) == []


SETTINGS = (
    *(
        "nosuch 1",
        "NoSuch 1",
        "'' 1",
        "maxmemory x",
        "MaxMemory x",
        "maxmemory -1",
        "maxmemory 1gbx",
    ),
    *("appendfsync x", "AppendFsync sometimes", "timeout x", "timeout -1", "Timeout 1.5"),
    *("save x", "save 1", "save 'a b'", "loglevel x", "LogLevel loud", "hz x"),
    *(
        "slowlog-max-len x",
        "slowlog-log-slower-than x",
        "slowlog-log-slower-than -2",
        "lua-time-limit x",
    ),
    *(
        "notify-keyspace-events q",
        "latency-tracking x",
        "maxclients 0",
        "maxclients x",
        "databases 4",
    ),
    *(
        "client-output-buffer-limit x",
        "client-output-buffer-limit 'nosuch 1 1 1'",
        "tcp-keepalive x",
    ),
    *(
        "stream-node-max-bytes x",
        "stream-node-max-entries -1",
        "latency-tracking-info-percentiles x",
    ),
    *("latency-tracking-info-percentiles 101", "dir /nosuch", "Dir /nosuch", "daemonize yes"),
    *(
        "timeout 5 nosuch 1",
        "timeout 5 timeout 6",
        "timeout 5 TimeOut 6",
        "Databases 4",
        "DaemonIze yes",
        "IO-Threads 2",
        "Timeout 5 timeout 6",
        "timeout 5 maxmemory x",
        "timeout",
    ),
    *("timeout 5 port", "", "timeout '' ", "acllog-max-len x", "proto-max-bulk-len 1"),
    *(
        "auto-aof-rewrite-percentage x",
        "auto-aof-rewrite-min-size x",
        "busy-reply-threshold x",
        "requirepass",
    ),
)


@pytest.mark.peer
def test_config_set_refuses_odd_names_and_values_as_redis(
    both: tuple[redis.Redis, redis.Redis],
) -> None:
    def given() -> Iterator[tuple[str, ...]]:
        for line in SETTINGS:
            yield ("CONFIG", "SET", *shlex.split(line))

    try:
        assert differences(both, given()) == []
    finally:
        both[1].config_set("timeout", 0)
