"""MONITOR, SLOWLOG and the statistics of INFO show what Redis shows, without passwords."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from headwater.config.config import Config
from headwater.resp.inline import split
from headwater.testing.server import ServerThread, server_thread
from tests.conformance.wire import Wire, connected
from tests.peers import Peer

HISTORY = r"""
AUTH secret
AUTH default secret
HELLO 3 AUTH bob secret
HELLO 3 AUTH default secret SETNAME n
HELLO 2
CONFIG SET maxclients 500 requirepass ""
ACL SETUSER bob on >secret
ACL WHOAMI
ACL DELUSER bob
PING
NOSUCH a
GET
get k
SET k "\x00a\n\"\\\xff"
ECHO hi
MULTI
set k 1
NOSUCH
EXEC
MULTI
set k 1
ECHO hi
XADD k * a b
EXEC
SELECT 3
XADD s 1-1 a b
XADD s 1-1 a b
XADD bad 0-0 a b
XREAD BLOCK 5 STREAMS nosuch 0
XREADGROUP GROUP g c STREAMS nosuch >
INFO server
CLIENT ID
CONFIG GET save
DBSIZE
COMMAND COUNT
WATCH a
UNWATCH
ECHO aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
DEL a b c d e f g h i j k l m n o p q r s t u v w x y z 1 2 3 4 5 6 7 8 9 0
SELECT 0
EVAL "return redis.call('set', KEYS[1], ARGV[1])" 1 k "\x00v"
EVAL "redis.call('select', 3) redis.call('ping') return redis.pcall('incr', 'k')" 0
EVAL "return redis.call('incr', 'k')" 0
EVAL "return redis.call('get')" 0
EVAL "return redis.call('nosuch')" 0
EVAL "return redis.pcall('subscribe', 'c')" 0
EVAL "syntax(" 0
EVAL "return 1" x
EVAL "return 1"
EVAL_RO "return redis.call('get', 'k')" 0
EVAL_RO "return redis.call('set', 'k', '1')" 0
SCRIPT LOAD "return redis.call('get', KEYS[1])"
EVALSHA d3c21d0c2b9ca22f82737626a27bcaf5d288f99f 1 k
EVALSHA_RO d3c21d0c2b9ca22f82737626a27bcaf5d288f99f 1 k
EVALSHA ffffffffffffffffffffffffffffffffffffffff 0
MULTI
EVAL "return redis.call('incr', 'k')" 0
INCR k
EXEC
GET k
SLOWLOG LEN
SELECT 0
"""


@pytest.fixture
def ours() -> Iterator[ServerThread]:
    with server_thread(Config(port=0, appendonly=False, save=())) as started:
        yield started


@pytest.fixture(scope="module")
def shared_ours() -> Iterator[ServerThread]:
    """A server for tests that reset its statistics first."""
    with server_thread(Config(port=0, appendonly=False, save=())) as started:
        yield started


def play(port: int, *before: tuple[str, ...]) -> None:
    with connected(port) as wire:
        for request in before:
            wire.ask(*request)
        for line in HISTORY.strip().splitlines():
            wire.ask(*split(line.encode()))


def monitored(port: int) -> list[bytes]:
    """Return what MONITOR shows of the history, without times and addresses."""
    with connected(port) as monitor:
        assert monitor.ask("MONITOR") == b"+OK\r\n"
        play(port)
        with connected(port) as last:
            last.ask("ECHO", "the end")
        shown: list[bytes] = []
        while not shown or b"the end" not in shown[-1]:
            shown.append(monitor.reply())
    return [
        re.sub(rb"^\+\d+\.\d{6} \[(\d+) (?:127\.0\.0\.1:\d+|(lua))\]", rb"+[\1 \2]", line)
        for line in shown
    ]


@pytest.mark.peer
def test_monitor_shows_what_it_shows_in_redis(
    ours: ServerThread, shared_peer: Callable[[str], Peer]
) -> None:
    found = monitored(ours.port)
    assert found == monitored(shared_peer("redis-8.2").port)
    assert not any(b"secret" in line for line in found)
    assert len(found) > 20


@pytest.mark.peer
def test_a_monitoring_client_may_run_commands_without_keys(
    ours: ServerThread, shared_peer: Callable[[str], Peer]
) -> None:
    answers = []
    for port in (ours.port, shared_peer("redis-8.2").port):
        with connected(port) as wire:
            wire.ask("MONITOR")
            refused = wire.ask("GET", "k")
            error, failed = wire.ask("SELECT", "99"), wire.reply()[-17:]
            pong, itself = wire.ask("PING"), wire.reply()
            flags = re.search(rb" flags=(\S+)", wire.ask("CLIENT", "INFO"))
            wire.reply()
            reset = wire.ask("RESET")
            answers.append((refused, error, failed, pong, itself[-9:], flags and flags[1], reset))
            # After RESET it is shown nothing and may access keys.
            assert wire.ask("ECHO", "a") == b"$1\r\na\r\n"
            assert wire.ask("DEL", "k") == b":0\r\n"
    assert answers[0] == answers[1]


def slow_entries(port: int) -> list[list[bytes]]:
    """Return the arguments of every slow command of the history, newest first."""
    play(port, ("CONFIG", "SET", "slowlog-log-slower-than", "0"), ("SLOWLOG", "RESET"))
    with connected(port) as wire:
        wire.ask("CONFIG", "SET", "slowlog-log-slower-than", "10000")
        raw = wire.ask("SLOWLOG", "GET", "-1")
    return [entry for entry in _entries(raw) if entry[:2] != [b"SLOWLOG", b"RESET"]]


def _entries(raw: bytes) -> list[list[bytes]]:
    from headwater.testing.replies import ReplyReader

    reader = ReplyReader()
    reader.feed(raw)
    entries = reader.next()
    assert isinstance(entries, list)
    found = []
    for entry in entries:
        assert isinstance(entry, list)
        number, time, duration, words, address, name = entry
        assert isinstance(number, int)
        assert isinstance(time, int)
        assert isinstance(duration, int)
        assert isinstance(address, bytes)
        assert address == b"" or address.startswith(b"127.0.0.1:")  # empty: of a script
        assert name in (b"", b"n")
        assert isinstance(words, list)
        found.append([word for word in words if isinstance(word, bytes)])
    return found


@pytest.mark.peer
def test_the_slow_log_records_what_redis_records(
    ours: ServerThread, peer: Callable[..., Peer]
) -> None:
    found = slow_entries(ours.port)
    assert found == slow_entries(peer("redis-8.2").port)
    assert not any(b"secret" in word for words in found for word in words)
    assert len(found) > 20


def test_the_length_of_the_slow_log_is_limited_and_its_numbers_continue(ours: ServerThread) -> None:
    with connected(ours.port) as wire:
        wire.ask("CONFIG", "SET", "slowlog-max-len", "3", "slowlog-log-slower-than", "0")
        for number in range(5):
            wire.ask("ECHO", str(number))
        assert wire.ask("SLOWLOG", "LEN") == b":3\r\n"
        assert wire.ask("CONFIG", "SET", "slowlog-max-len", "1") == b"+OK\r\n"
        wire.ask("CONFIG", "SET", "slowlog-log-slower-than", "-1")
        assert wire.ask("SLOWLOG", "LEN") == b":1\r\n"
        (newest,) = _entries(wire.ask("SLOWLOG", "GET"))
        assert newest == [b"CONFIG", b"SET", b"slowlog-max-len", b"1"]
        assert wire.ask("SLOWLOG", "RESET") == b"+OK\r\n"
        assert wire.ask("SLOWLOG", "GET") == b"*0\r\n"
        wire.ask("CONFIG", "SET", "slowlog-log-slower-than", "0")
        assert wire.ask("ECHO", "a") == b"$1\r\na\r\n"
        assert wire.ask("SLOWLOG", "GET").split(b"\r\n")[2] == b":8"


def counted(port: int) -> list[bytes]:
    """Return the statistics of the history in INFO that do not depend on time."""
    with connected(port) as wire:
        wire.ask("CONFIG", "RESETSTAT")
        play(port)
        return statistics(wire)


def statistics(wire: Wire) -> list[bytes]:
    """Return the statistics in INFO that do not depend on time."""
    kept = re.findall(
        rb"^(?:errorstat_\S+|cmdstat_\S+|total_error_replies\S+|total_commands_processed\S+)",
        wire.ask("INFO", "commandstats", "errorstats", "stats"),
        re.MULTILINE,
    )
    return sorted(re.sub(rb"usec=\d+,usec_per_call=[\d.]+,", b"", line) for line in kept)


@pytest.mark.peer
def test_calls_and_errors_are_counted_as_in_redis(
    ours: ServerThread, peer: Callable[..., Peer]
) -> None:
    assert counted(ours.port) == counted(peer("redis-8.2").port)


ERRORS = r"""
return redis.call('incr', 'k')
return redis.pcall('incr', 'k')
redis.pcall('incr', 'k') return 1
return redis.call('nosuch')
redis.pcall('nosuch') return 1
return redis.call('get')
redis.pcall('get') return 1
redis.pcall() return 1
return redis.pcall({})
redis.pcall('subscribe', 'c') return 1
redis.pcall('config', 'nosuch') return 1
return redis.call('xreadgroup', 'group', 'g', 'c', 'streams', 's', '>')
return redis.error_reply('MY text')
return {err = 'lone'}
return {err = ''}
return {redis.error_reply('A b'), {1, redis.error_reply('C d')}}
error('text')
error({err = 'MY text'})
error({err = 'MY text', ignore_error_stats_update = true})
local e = redis.pcall('incr', 'k') error(e)
local e = redis.pcall('incr', 'k') return {e, 1, e}
local e = redis.pcall('incr', 'k') return {e, redis.error_reply('MY text')}
local e = redis.pcall('incr', 'k') return {err = e.err}
local ok, e = pcall(redis.call, 'incr', 'k') return e
syntax(
#!bad
return redis.error_reply('A:B#C text')
return redis.error_reply('A\r\nB text')
return redis.error_reply('01234567890123456789012345678 text')
return redis.error_reply('012345678901234567890123456789 text')
return redis.error_reply('0123456789012345678901234567890 text')
"""


@pytest.mark.peer
@pytest.mark.parametrize("script", ERRORS.strip().splitlines())
def test_each_error_of_a_script_is_counted_once_as_in_redis(
    script: str, shared_ours: ServerThread, shared_peer: Callable[[str], Peer]
) -> None:
    def counts(port: int) -> list[bytes]:
        with connected(port) as wire:
            wire.ask("SET", "k", "text")
            wire.ask("CONFIG", "RESETSTAT")
            wire.ask("EVAL", script, "0")
            return statistics(wire)

    assert counts(shared_ours.port) == counts(shared_peer("redis-8.2").port)


BLOCKED = {
    "unblocked with an error": "B: BLPOP l 0|A: CLIENT UNBLOCK <B> ERROR",
    "unblocked": "B: BLPOP l 0|A: CLIENT UNBLOCK <B>",
    "timed out": "B: BLPOP l 0.01|B:",
    "served": "B: BLPOP l 0|A: RPUSH l x",
    "group destroyed": "A: XGROUP CREATE s g $ MKSTREAM|B: XREADGROUP GROUP g c BLOCK 0 STREAMS s >|"
    "A: XGROUP DESTROY s g",
    "stream deleted": "A: XGROUP CREATE s g $ MKSTREAM|B: XREADGROUP GROUP g c BLOCK 0 STREAMS s >|"
    "A: DEL s",
    "stream replaced": "A: XGROUP CREATE s g $ MKSTREAM|B: XREADGROUP GROUP g c BLOCK 0 STREAMS s >|"
    "A: SET s x",
    "permission revoked": "A: ACL SETUSER bob on nopass allkeys +@all|B: AUTH bob x|B: BLPOP l 0|"
    "A: ACL SETUSER bob -blpop|A: RPUSH l x",
    "no permission": "A: ACL SETUSER bob on nopass ~a +@all -lpush|B: AUTH bob x|B: LPUSH a 1|B: GET b|"
    "B: EVAL \"return redis.pcall('get','b')\" 0|B: EVAL \"return redis.call('lpush','a','1')\" 0",
    "permission revoked in MULTI": "A: ACL SETUSER bob on nopass allkeys +@all|B: AUTH bob x|B: MULTI|"
    "B: GET k|B: PING|A: ACL SETUSER bob -get|B: EXEC",
    "no subcommand": "A: CLIENT NOSUCH|A: XGROUP NOSUCH a|A: XGROUP|A: NOSUCH",
    "no memory": "A: CONFIG SET maxmemory 1|A: EVAL \"redis.pcall('set','a','1') return redis.call('set','a','1')\" 0|"
    'A: EVAL "#!lua\\nreturn 1" 0|A: SET a 1|A: MULTI|A: SET a 1|A: EXEC|A: CONFIG SET maxmemory 0',
}


@pytest.mark.peer
@pytest.mark.parametrize("scene", BLOCKED.values(), ids=BLOCKED)
def test_refusals_of_blocked_clients_and_of_rights_are_counted_as_in_redis(
    scene: str, shared_ours: ServerThread, shared_peer: Callable[[str], Peer]
) -> None:
    def counts(port: int) -> list[bytes]:
        with connected(port) as one, connected(port) as other:
            number = other.ask("CLIENT", "ID")[1:-2].decode()
            one.ask("CONFIG", "RESETSTAT")
            for line in scene.replace("<B>", number).split("|"):
                client, _, words = line.partition(": ")
                blocks = words.startswith(("BLPOP", "XREADGROUP"))
                if client == "A":
                    one.ask(*split(words.encode()))
                elif words and not blocks:
                    other.ask(*split(words.encode()))
                elif words:
                    other.send(*split(words.encode()))
                    while b"blocked_clients:0" in one.ask("INFO", "clients"):
                        pass
                else:
                    other.reply()
            found = statistics(one)
            one.ask("ACL", "DELUSER", "bob")
            one.ask("FLUSHALL")
            polls = (b"cmdstat_info", b"total_commands")
            return [line for line in found if not line.startswith(polls)]

    assert counts(shared_ours.port) == counts(shared_peer("redis-8.2").port)


@pytest.mark.peer
def test_more_kinds_of_errors_than_redis_counts_end_the_counting_until_resetstat(
    shared_ours: ServerThread, shared_peer: Callable[[str], Peer]
) -> None:
    def counts(port: int) -> list[list[bytes]]:
        found = []
        with connected(port) as wire:
            wire.ask("CONFIG", "RESETSTAT")
            for number in range(128):
                wire.ask("EVAL", f"return redis.error_reply('E{number} text')", "0")
            found.append(statistics(wire))
            wire.ask("EVAL", "return redis.error_reply('ONE more')", "0")
            found.append(statistics(wire))
            wire.ask("GET")
            found.append(statistics(wire))
            wire.ask("CONFIG", "RESETSTAT")
            wire.ask("GET")
            found.append(statistics(wire))
        return found

    assert counts(shared_ours.port) == counts(shared_peer("redis-8.2").port)


def test_monitor_slowlog_and_client_list_show_no_passwords(ours: ServerThread) -> None:
    with connected(ours.port) as wire, connected(ours.port) as monitor:
        wire.ask("CONFIG", "SET", "slowlog-log-slower-than", "0")
        monitor.ask("MONITOR")
        for request in (
            ("AUTH", "hidden"),
            ("hello", "3", "SETNAME", "AUTH", "auth", "x", "hidden"),
            ("hello", "3", "auth", "hidden"),
            ("config", "set", "REQUIREPASS", "hidden"),
            ("CONFIG", "SET", "tls-key-file-pass", "hidden"),
            ("CONFIG", "SET", "maxclients", "100", "masterauth", "hidden"),
            ("CONFIG", "SET", "masteruser", "hidden"),
            ("ACL", "setuser", "bob", ">hidden"),
        ):
            wire.ask(*request)
        wire.ask("ECHO", "the end")
        shown = _until(monitor, b"the end")
        shown += [wire.ask("SLOWLOG", "GET", "-1"), wire.ask("CLIENT", "LIST")]
        wire.ask("CONFIG", "SET", "requirepass", "")
    assert not any(b"hidden" in part for part in shown)
    assert any(b"(redacted)" in part for part in shown)


def _until(monitor: Wire, last: bytes) -> list[bytes]:
    shown: list[bytes] = []
    while not shown or last not in shown[-1]:
        shown.append(monitor.reply())
    return shown
