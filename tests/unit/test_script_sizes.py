"""No call of a script works on so many bytes in C that it outlasts lua-time-limit: it works on parts, or is refused at
once with the limit and a way around it."""

from __future__ import annotations

import logging
import re
from resource import RUSAGE_SELF, getrusage

import pytest

from headwater.commands.call import Call
from headwater.commands.dispatch import find_command
from headwater.common.limits import MAX_SCRIPT_CALL_BYTES, MAX_SCRIPT_TEXT_BYTES
from headwater.resp.arguments import Arguments
from headwater.server.services.scripting import interpreter
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure

MB = 1024 * 1024
PROLOGUE = """
local S = ARGV[1]
local n = #S
"""
BOUNDED = {
    "upper": "#S:upper()",
    "lower": "#S:lower()",
    "reverse": "#S:reverse()",
    "format %s": "#string.format('%s.', S)",
    "format %q": "#string.format('%q', S)",
    "rep": "#('x'):rep(n)",
    "rep of more": "#('0123456789'):rep(n / 10)",
    "concat": "#table.concat({S, 'x'})",
    "concat between": "#table.concat({'a', 'b'}, S)",
    "find": "S:find('y') or 0",
    "find from": "S:find('y', -5) or 0",
    "find plain": "S:find('xy', 1, true) or 0",
    "find long pattern": "('x'):find(S, 1, true) or 0",
    "match": "#S:match('x+')",
    "gmatch": "S:gmatch('y')() or 0",
    "gsub": "select(2, S:gsub('y', 'z'))",
    "encode": "#cjson.encode(S)",
    "encode in tables": "#cjson.encode({{a = S}})",
}
FREE = {
    "sub": "#S:sub(2)",
    "byte": "S:byte(-1)",
    "len": "S:len()",
    "tostring": "#tostring(S)",
    "tonumber": "tonumber(S) or 0",
    "equal": "S == 'x' and 1 or 0",
    "less": "S < 'y' and 1 or 0",
    "sha1hex": "#redis.sha1hex(S)",
    "sub in parts": "#S:sub(1, 1000):upper()",
}
"""What only copies, compares or sums memory: it works with any length."""


def answered(body: str, text: bytes) -> object:
    """Return the reply to a script, after which another client is answered."""
    store = LocalStore(journaled=False)
    found = store.client()("EVAL", PROLOGUE + body, 0, text)
    assert store.client()("PING") is not None
    return found


@pytest.mark.parametrize("name", [*BOUNDED, *FREE])
def test_string_functions_work_on_a_megabyte(name: str) -> None:
    body = f"return {(BOUNDED | FREE)[name]}"
    assert isinstance(answered(body, b"x" * MB), int)


@pytest.mark.parametrize("name", list(BOUNDED))
def test_a_call_on_too_many_bytes_is_refused_with_the_limit(name: str) -> None:
    found = answered(f"return {BOUNDED[name]}", b"x" * (MAX_SCRIPT_CALL_BYTES + 20))
    assert isinstance(found, Failure)
    assert b"bytes are too many for one call" in found.text
    assert b"%d" % MAX_SCRIPT_CALL_BYTES in found.text
    assert b"work on parts" in found.text


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BOUNDED))
def test_string_functions_work_just_below_the_limit(name: str) -> None:
    found = answered(f"return {BOUNDED[name]}", b"x" * (MAX_SCRIPT_CALL_BYTES - 100))
    assert isinstance(found, int)


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [20, 120])
def test_of_a_huge_string_each_function_works_or_is_refused(megabytes: int) -> None:
    # Given a huge string, when a script calls every function with it and catches the errors
    calls = "".join(
        f"results[#results + 1] = tostring(select(2, pcall(function() return {call} end)))\n"
        for call in [*BOUNDED.values(), *FREE.values()]
    )
    store = LocalStore(journaled=False)
    found = store.client()(
        "EVAL", f"{PROLOGUE} local results = {{}}\n{calls} return results", 0, b"x" * megabytes * MB
    )
    # Then each was refused at once, or worked, or had no memory for a copy
    assert isinstance(found, list)
    told = [one for one in found if isinstance(one, bytes)]
    refused, others = told[: len(BOUNDED)], told[len(BOUNDED) :]
    assert [b"too many for one call" in one for one in refused] == [True] * len(BOUNDED)
    assert not any(b"too many" in one or b"time-limit" in one for one in others)
    assert store.client()("PING") is not None


def test_concat_counts_items_and_stops_at_what_it_cannot_join() -> None:
    # Given a list with many short items, or with one that is not text
    many = f"local t = {{}} for i = 1, {MAX_SCRIPT_CALL_BYTES // 64} do t[i] = S end "
    found = answered(many + "return #table.concat(t)", b"x" * 64)
    assert isinstance(found, Failure)
    assert b"too many for one call" in found.text
    assert answered(many + "return #table.concat(t, ',', 1, 100)", b"x" * 64) == 6499
    found = answered("return table.concat({1, {}, S}, ',', 1, 1000)", b"x")
    assert isinstance(found, Failure)
    assert b"invalid value (table) at index 2" in found.text
    assert answered("return table.concat({1, 2.5, S})", b"x") == b"12.5x"


def test_long_texts_are_not_compiled_and_not_decoded() -> None:
    text = b"x" * (MAX_SCRIPT_TEXT_BYTES + 1)
    for body in ("return select(2, loadstring(S))", "return cjson.decode(S)"):
        found = answered(body, text)
        assert str(MAX_SCRIPT_TEXT_BYTES) in repr(found)
    client = LocalStore(journaled=False).client()
    for words in (("EVAL", b"--" + text, 0), ("SCRIPT", "LOAD", b"--" + text)):
        found = client(*words)
        assert isinstance(found, Failure)
        assert b"pass data as arguments" in found.text


@pytest.mark.slow
def test_values_of_json_count_as_bytes_do() -> None:
    # Given JSON of many values, and a table of many items
    many = "local t = {} for i = 1, 1200000 do t[i] = 1 end return #cjson.encode(t)"
    found = answered(many, b"")
    assert isinstance(found, Failure)
    assert b"too many for one call" in found.text
    found = answered("return #cjson.decode(S)", b"[" + b"1," * 600_000 + b"1]")
    assert isinstance(found, Failure)
    assert b"600001 values are too many for one call" in found.text
    # But a few hundred thousand of them work
    assert answered(many.replace("1200000", "100000"), b"") == 200_001
    assert answered("return #cjson.decode(S)", b"[" + b"1," * 100_000 + b"1]") == 100_001


def test_long_lists_are_sorted_where_the_clock_is_checked() -> None:
    # Given a time limit and a list with many items
    store = LocalStore(journaled=False)
    client = store.client()
    body = "local t = {} for i = 1, 150000 do t[i] = (i * 7919) % 150001 end table.sort(t) "
    # When it is sorted, then in order
    found = client("EVAL", body + "for i = 2, #t do assert(t[i - 1] <= t[i]) end return #t", 0)
    assert found == 150_000
    found = client("EVAL", "local t = {2, 'x'} table.sort(t)", 0)
    assert isinstance(found, Failure)
    assert b"attempt to compare" in found.text


def test_a_long_log_message_is_cut_before_it_is_decoded(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headwater.scripts"):
        assert answered("redis.log(redis.LOG_WARNING, S) return 1", b"\xff" * 20 * MB) == 1
    assert len(caplog.records) == 1
    assert len(caplog.records[0].getMessage()) < MB


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tens", "answer"), [(20_000, b"20000"), (50_000, b"too many for one call")]
)
def test_one_call_unpacks_at_most_half_a_million_values_of_msgpack(
    tens: int, answer: bytes
) -> None:
    # Given a packed list of lists of ten numbers, when it is unpacked, then the number of values decides
    body = r"""
    local packed = '\220' .. struct.pack('>H', n) .. cmsgpack.pack({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}):rep(n)
    local ok, found = pcall(cmsgpack.unpack, packed)
    return ok and tostring(#found) or found
    """
    found = answered(body, b"x" * tens)
    assert isinstance(found, bytes)
    assert answer in found


@pytest.mark.parametrize("options", ["false, 0", "false, 2147483647", "true, 1, 2147483647"])
def test_a_sparse_array_is_encoded_up_to_the_limit(options: str) -> None:
    # Given options that accept an array of any length
    script = f"cjson.encode_sparse_array({options}) return #cjson.encode({{[tonumber(S)] = 1}})"
    assert answered(script, b"1000") == 4998
    # Then a huge one is refused before the server creates it
    found = answered(script, b"2147483647")
    assert isinstance(found, Failure)
    assert b"too many for one call" in found.text


REPEATED = {
    "call": "redis.call('DEL', unpack(t))",
    "pcall": "redis.pcall('DEL', unpack(t)).err",
    "a few": "redis.call('DEL', S, S, S, S, S, S, S, S, S, S, S, S, S, S, S, S, S)",
    "acl_check_cmd": "redis.acl_check_cmd('DEL', unpack(t))",
    "log": "redis.log(redis.LOG_DEBUG, unpack(t))",
    "array": "t",
    "nested": "{t, {t}}",
    "statuses": "(function() for i = 1, #t do t[i] = {ok = S} end return t end)()",
    "errors": "(function() for i = 1, #t do t[i] = {err = S} end return t end)()",
    "map": "{map = {a = t}}",
    "pack": "struct.pack(('s'):rep(#t), unpack(t))",
}


@pytest.mark.parametrize("name", list(REPEATED))
def test_a_string_that_occurs_often_is_not_copied_out_of_lua_each_time(name: str) -> None:
    # Given a string of 16 MB, which Lua has once, when a script passes or returns it thousands of times
    body = f"local t = {{}} for i = 1, 7990 do t[i] = S end return {REPEATED[name]}"
    client = LocalStore(journaled=False).client()
    before = getrusage(RUSAGE_SELF).ru_maxrss
    found = client("EVAL", PROLOGUE + body, 0, b"x" * 16 * MB)
    # Then that is refused before it is copied
    text = found.text if isinstance(found, Failure) else found
    assert isinstance(text, bytes)
    assert re.match(rb"ERR .*\d+ bytes are too many for one (call|reply), which may handle", text)
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def test_all_that_a_script_can_hold_may_be_passed_and_returned() -> None:
    # Given arguments and replies of as many bytes as Lua has room for
    client = LocalStore(journaled=False).client()
    body = "redis.call('MSET', 'a', ARGV[1], 'b', ARGV[2]) return {ARGV[1], ARGV[2]}"
    values = [b"a" * 30 * MB, b"b" * 30 * MB]
    assert client("EVAL", body, 0, *values) == values
    assert client("MGET", "a", "b") == values
    # And many short ones
    body = "local t = {} for i = 1, 7990 do t[i] = ARGV[1] end return redis.call('DEL', unpack(t))"
    assert client("EVAL", body, 0, "a" * 10_000) == 0


@pytest.mark.parametrize("within", ["(function(f) f() end)", "pcall", "coroutine.wrap"])
def test_the_clock_is_checked_more_often_while_scripts_hold_long_strings(
    within: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a clock that counts how often it is read
    client, readings = LocalStore(journaled=False).client(), list[int]()

    def now() -> int:
        readings.append(1)
        return 0

    monkeypatch.setattr(interpreter, "monotonic_ns", now)
    body = "local s = ARGV[1] for i = 1, 10000 do local same = s < 'y' end"
    body = f"local run = {within}(function() {body} end) if type(run) == 'function' then run() end"
    read = []
    for text in ("x", "x" * 20 * MB):
        # When a script compares a string ten thousand times, where each comparison may take long
        readings.clear()
        client("EVAL", body, 0, text)
        read.append(len(readings))
    # Then a long one is compared a few hundred times at most between two readings
    short, long = read
    assert short < 10
    assert long > 25


@pytest.mark.parametrize("call", ["call", "pcall"])
def test_no_command_begins_after_the_time_of_a_script(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a command that uses up the time of its script
    store, ran = LocalStore(journaled=False), []
    interpreter = store.node.services.scripts.interpreter

    def lasts(_call: Call) -> None:
        ran.append(1)
        if len(ran) == 3:
            interpreter.deadline_ns = 0.0
        _call.reply.integer(1)

    monkeypatch.setattr(find_command(Arguments.of(b"STRLEN", b"k")), "function", lasts)
    # When a script calls it in a loop, then no other call follows
    found = store.client()("EVAL", f"while true do redis.{call}('STRLEN', 'k') end", 0)
    assert isinstance(found, Failure)
    assert b"lua-time-limit" in found.text
    assert len(ran) == 3
    assert store.client()("EVAL", "return redis.call('STRLEN', 'k')", 0) == 1
