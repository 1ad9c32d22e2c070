"""keyspace_hits and keyspace_misses change as in Redis, command by command."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headwater.testing.node import LocalStore
from tests.conformance.test_info import info_of
from tests.conformance.wire import Wire, connected
from tests.peers import Peer

LINES = """
XADD s 1-1 a b
XADD s 2-1 a b
XADD s NOMKSTREAM 3-1 a b
XADD none NOMKSTREAM 3-1 a b
XGROUP CREATE s g 0
XGROUP CREATE none g 0
XGROUP CREATE s g 0
XGROUP SETID s g 0
XGROUP CREATECONSUMER s g c
XGROUP DELCONSUMER s g c
XGROUP DESTROY s nog
XGROUP DESTROY none nog
XREADGROUP GROUP g c COUNT 1 STREAMS s >
XREADGROUP GROUP g c COUNT 1 STREAMS s 0
XREADGROUP GROUP g c COUNT 10 STREAMS s >
XREADGROUP GROUP g c COUNT 10 STREAMS s >
XREADGROUP GROUP g c COUNT 10 STREAMS none >
XREADGROUP GROUP nog c COUNT 10 STREAMS s >
XREADGROUP GROUP g c COUNT 10 STREAMS s none > >
XREADGROUP GROUP g c COUNT 10 BLOCK 1 STREAMS s >
XREAD STREAMS s 0
XREAD STREAMS s $
XREAD STREAMS s +
XREAD STREAMS none $
XREAD STREAMS none 0
XREAD STREAMS s none 0 0
XREAD BLOCK 1 STREAMS s $
XREAD BLOCK 1 STREAMS none $
XRANGE s - +
XRANGE none - +
XRANGE s - + COUNT 0
XREVRANGE s + -
XREVRANGE none + -
XLEN s
XLEN none
XPENDING s g
XPENDING s g - + 10
XPENDING none g
XPENDING s nog
XINFO STREAM s
XINFO STREAM s FULL
XINFO STREAM none
XINFO GROUPS s
XINFO GROUPS none
XINFO CONSUMERS s g
XINFO CONSUMERS none g
XINFO CONSUMERS s nog
XACK s g 1-1
XACK none g 1-1
XACK s nog 1-1
XCLAIM s g c2 0 2-1
XCLAIM none g c2 0 2-1
XAUTOCLAIM s g c2 0 0
XAUTOCLAIM none g c2 0 0
XDEL s 9-9
XDEL none 9-9
XTRIM s MAXLEN 10
XTRIM none MAXLEN 10
XSETID s 5-1
XSETID none 5-1
XACKDEL s g IDS 1 1-1
XACKDEL none g IDS 1 1-1
XDELEX s IDS 1 9-9
XDELEX none IDS 1 9-9
SET k v
SET k v GET
SET knew v GET
SET k v NX
SET k v XX
SET none v XX
SET k2 v EX 100
SET k2 v KEEPTTL
GET k
GET none
GET s
GETDEL none
GETDEL k2
GETEX k
GETEX none
GETEX k EX 100
GETEX k PERSIST
SETEX k 100 v
PSETEX k 100000 v
SETNX k v
SETNX k3 v
MSET a 1 b 2
MSETNX a 1 b 2
MSETNX a9 1 b9 2
MGET a b none s
APPEND a 1
APPEND newa 1
STRLEN a
STRLEN none
INCR a
INCR anewc
INCRBY a 2
DECR a
DECRBY a 2
DEL a
DEL none
UNLINK b none
EXISTS k none s k
TOUCH k none
TYPE k
TYPE none
RPUSH l 1 2 3 4
LPUSH l 1
LRANGE l 0 -1
LRANGE none 0 -1
LLEN l
LLEN none
LINDEX l 0
LINDEX l 99
LINDEX none 0
LSET l 0 x
LSET none 0 x
LREM l 0 none
LREM none 0 x
LTRIM l 0 -1
LTRIM none 0 -1
LPOP l
LPOP none
RPOP l 1
RPOP none 1
BLPOP l 1
BLPOP none 0.01
BLPOP none l 1
BRPOP l 1
SADD set a b c
SREM set a
SREM none a
SMEMBERS set
SMEMBERS none
SISMEMBER set b
SISMEMBER none b
SMISMEMBER set b c
SMISMEMBER none b
SSCAN set 0
SSCAN none 0
SCARD set
SCARD none
HSET h f v g v
HSETNX h f v
HSETNX hn f v
HGET h f
HGET h nof
HGET none f
HMGET h f g no
HMGET none f
HDEL h no
HDEL none no
HGETALL h
HGETALL none
HLEN h
HLEN none
HEXISTS h f
HEXISTS none f
HMSET hm f v
HINCRBY h n 1
HINCRBY hi n 1
HKEYS h
HKEYS none
HVALS h
HVALS none
HSTRLEN h f
HSTRLEN none f
HSCAN h 0
HSCAN none 0
GETRANGE k 0 1
GETRANGE none 0 1
SETRANGE none 0 ""
SETRANGE sr 0 x
SETRANGE sr 0 y
RENAME none x
RENAME k kk
RENAMENX kk k
RENAMENX k s
RENAMENX none s
COPY k kc
COPY none kc
COPY k s
COPY k s REPLACE
MOVE kc 1
MOVE none 1
DUMP k
DUMP none
EXPIRE k 100
EXPIRE none 100
PEXPIRE k 100000
EXPIREAT k 99999999999
PEXPIREAT k 99999999999000
TTL k
TTL none
PTTL k
EXPIRETIME k
PEXPIRETIME none
PERSIST k
PERSIST none
OBJECT ENCODING k
OBJECT ENCODING none
OBJECT IDLETIME k
OBJECT REFCOUNT k
OBJECT FREQ k
OBJECT REFCOUNT none
KEYS *
SCAN 0
SCAN 0 TYPE string
RANDOMKEY
DBSIZE
MEMORY USAGE k
MEMORY USAGE none
XREAD STREAMS k 0
XRANGE k - +
XLEN k
XREADGROUP GROUP g c STREAMS k >
HGET k f
LLEN k
GETEX s
WATCH k none
UNWATCH
XADD k 1-1 a b
EVAL return(redis.call('get','k')) 0
EVAL return(redis.call('get','none')) 0
"""


def lines() -> list[tuple[str, ...]]:
    return [tuple(line.split()) for line in LINES.strip().splitlines()]


def counted_by_redis(port: int) -> Iterator[tuple[str, int, int]]:
    with connected(port) as client, connected(port) as admin:
        client.ask("FLUSHALL")
        before = hits_and_misses(admin)
        for words in lines():
            client.ask(*words)
            after = hits_and_misses(admin)
            yield " ".join(words), after[0] - before[0], after[1] - before[1]
            before = after


def hits_and_misses(admin: Wire) -> tuple[int, int]:
    text = admin.ask("INFO", "stats").decode()
    found = dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)
    return int(found["keyspace_hits"]), int(found["keyspace_misses"])


def counted_here() -> Iterator[tuple[str, int, int]]:
    store = LocalStore(journaled=False)
    client, keyspace = store.client(kind="tcp"), store.node.keyspace
    for words in lines():
        before = (keyspace.hits, keyspace.misses)
        client.send(*words)
        while client.reply() is None:
            store.advance(store.seconds_ahead())
        yield " ".join(words), keyspace.hits - before[0], keyspace.misses - before[1]


@pytest.mark.peer
def test_each_command_counts_hits_and_misses_as_in_redis(
    shared_peer: Callable[[str], Peer],
) -> None:
    assert list(counted_here()) == list(counted_by_redis(shared_peer("redis-8.2").port))


def test_hits_and_misses_are_shown_and_reset() -> None:
    # Given two hits and a miss
    client = LocalStore().client()
    client("SET", "k", "v")
    for key in ("k", "k", "none"):
        client("GET", key)
    # Then INFO shows them, until they are reset
    stats = info_of(client, "stats")
    assert (stats["keyspace_hits"], stats["keyspace_misses"]) == ("2", "1")
    client("CONFIG", "RESETSTAT")
    stats = info_of(client, "stats")
    assert (stats["keyspace_hits"], stats["keyspace_misses"]) == ("0", "0")


def test_a_reload_keeps_the_counts() -> None:
    store = LocalStore()
    store.config.enable_debug_command = "yes"
    client = store.client()
    client("GET", "none")
    client("DEBUG", "RELOAD")
    assert info_of(client, "stats")["keyspace_misses"] == "1"
