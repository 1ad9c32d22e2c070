"""The commands that clients send for setup and monitoring, for clients that the tests cannot run. Each gets
the kind of reply that a real Redis gives, and the same error if that gives one.

Sources: docs/guide/clients.md; recorded with a logging proxy, November 2026.
"""

from __future__ import annotations

import pytest

from tests.clients.servers import SharedServer
from tests.conformance.wire import connected

SEQUENCES = {
    "go-redis": """
        HELLO 3
        CLIENT SETNAME app
        CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type external-ip
        CLIENT SETINFO LIB-NAME go-redis(,go1.24.4)
        CLIENT SETINFO LIB-VER 9.14.0
        SELECT 2
        READONLY
    """,
    "go-redis, falling back": """
        HELLO 4
        CLIENT SETINFO LIB-NAME go-redis(,go1.24.4)
        SELECT 0
        PING
    """,
    "Jedis": """
        HELLO 3
        CLIENT SETNAME app
        CLIENT SETINFO LIB-NAME jedis
        CLIENT SETINFO LIB-VER 8.0.0
        SELECT 1
        PING
    """,
    "Lettuce, Spring Data": """
        HELLO 3 SETNAME app
        CLIENT SETINFO lib-name Lettuce
        CLIENT SETINFO lib-ver 7.0.0
        CLIENT MAINT_NOTIFICATIONS on moving-endpoint-type internal-ip
        SELECT 1
    """,
    "Lettuce, with a password although none is set": """
        HELLO 3 AUTH default secret SETNAME app
        AUTH secret
        AUTH default secret
    """,
    "iovalkey": """
        info
        xlen orders
    """,
    "redis_exporter": """
        CLIENT SETNAME redis_exporter
        CONFIG GET *
        INFO ALL
        INFO everything
        LATENCY LATEST
        LATENCY HISTOGRAM
        SLOWLOG LEN
        SLOWLOG GET 1
        SELECT 0
        DBSIZE
        TYPE orders
        MEMORY USAGE orders
        XLEN orders
        XINFO STREAM orders
        XINFO GROUPS orders
        XINFO CONSUMERS orders g
        CLIENT LIST
        CONFIG GET maxmemory
        CLUSTER INFO
    """,
    "RedisInsight": """
        INFO
        MODULE LIST
        COMMAND INFO XADD FT.SEARCH JSON.GET
        COMMAND DOCS XADD
        HELLO
        HELLO 3
        CLUSTER INFO
        CLUSTER NODES
        SENTINEL MASTERS
        CONFIG GET databases
        CONFIG GET maxmemory*
        ACL WHOAMI
        CLIENT LIST
        DBSIZE
        SCAN 0 MATCH * COUNT 500
        SCAN 0 TYPE stream COUNT 500
        TYPE orders
        TTL orders
        MEMORY USAGE orders SAMPLES 0
        OBJECT ENCODING orders
        XINFO STREAM orders
        XINFO STREAM orders FULL COUNT 10
        XRANGE orders - + COUNT 1
        XREVRANGE orders + - COUNT 1
        XINFO GROUPS orders
        XINFO CONSUMERS orders g
        XPENDING orders g
        XPENDING orders g - + 500 a
        XCLAIM orders g b 0 1-1
        XACK orders g 1-1
        XGROUP CREATE orders h $
        XGROUP SETID orders h 0
        XGROUP DELCONSUMER orders g b
        XGROUP DESTROY orders h
        XADD orders * item pot
        XDEL orders 1-1
        EXPIRE orders 100
        PERSIST orders
        RENAMENX orders bills
        SLOWLOG GET 50
        CONFIG SET slowlog-max-len 128
        MEMORY DOCTOR
        UNLINK bills
    """,
    "redis-cli, interactive": """
        COMMAND DOCS
        COMMAND
        CLIENT NO-EVICT on
    """,
    "iredis, redis-commander": """
        CLIENT SETINFO LIB-NAME redis-py
        CLIENT SETINFO LIB-VER 8.1.0
        INFO
        COMMAND
        info cluster
        module list
        SCAN 0 COUNT 100
        TYPE orders
        XLEN orders
        XRANGE orders - +
        TTL orders
    """,
    "prometheus, datadog and other watchers": """
        INFO commandstats
        INFO keyspace
        ROLE
        COMMAND COUNT
        CONFIG GET slowlog-max-len
        MEMORY STATS
        CLIENT ID
        CLIENT INFO
        CLIENT GETNAME
        CLIENT NO-TOUCH ON
        TIME
    """,
}

BEFORE = (
    ("XADD", "orders", "1-1", "item", "tea"),
    ("XADD", "orders", "1-2", "item", "cup"),
    ("XGROUP", "CREATE", "orders", "g", "0"),
    ("XREADGROUP", "GROUP", "g", "a", "STREAMS", "orders", ">"),
)


def replies(server: SharedServer, sequence: str) -> list[tuple[str, str]]:
    """Return each command with the kind of its reply, or with the whole error."""
    server.empty()
    seen = []
    with connected(server.address.port) as wire:
        for words in BEFORE:
            assert not wire.ask(*words).startswith(b"-")
        for line in filter(None, map(str.strip, sequence.splitlines())):
            reply = wire.ask(*line.split())
            seen.append((line, (reply if reply[:1] == b"-" else reply[:1]).decode().strip()))
    return seen


@pytest.mark.peer
@pytest.mark.parametrize("client", SEQUENCES)
def test_a_client_gets_the_replies_of_redis(
    server: SharedServer, reference: SharedServer, client: str
) -> None:
    assert replies(server, SEQUENCES[client]) == replies(reference, SEQUENCES[client])


def test_the_errors_have_the_words_that_lettuce_looks_for(server: SharedServer) -> None:
    with connected(server.address.port) as wire:
        assert wire.ask("HELLO", "9").startswith(b"-NOPROTO ")
        unknown = wire.ask("NO-SUCH-COMMAND")
        assert unknown.startswith(b"-ERR ")
        assert b"unknown" in unknown


def test_the_reply_to_hello_has_the_protocol_for_jedis(server: SharedServer) -> None:
    with connected(server.address.port) as wire:
        assert b"\r\n$5\r\nproto\r\n:3\r\n" in wire.ask("HELLO", "3")


def test_info_has_the_fields_that_clients_read(server: SharedServer) -> None:
    with server.observer() as observer:
        info = observer.info("everything")
    assert info["role"] == "master"  # valkey-glide
    assert info["loading"] == 0  # ioredis
    assert info["redis_mode"] == "standalone"  # RedisInsight, redis-commander
    assert info["cluster_enabled"] == 0
    assert info["redis_version"] == "8.8.0"
