"""The replies of administrative commands equal those of Redis 8.2.3 byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from headwater.config.config import Config
from headwater.testing.server import ServerThread, server_thread
from tests.conformance.test_protocol_replies import compare
from tests.peers import Peer

WATCHING = r"""
SLOWLOG
SLOWLOG FOO
SLOWLOG GET x
SLOWLOG GET -2
SLOWLOG GET 0
SLOWLOG GET 1 2
SLOWLOG GET 99999999999999999999
SLOWLOG LEN x
SLOWLOG RESET x
SLOWLOG RESET
LATENCY
LATENCY FOO
LATENCY LATEST
LATENCY LATEST x
LATENCY HISTORY
LATENCY HISTORY x
LATENCY HISTORY command
LATENCY GRAPH x
LATENCY RESET
LATENCY RESET x y
LATENCY HISTOGRAM nosuch
CONFIG SET slowlog-log-slower-than -2
CONFIG SET slowlog-log-slower-than x
CONFIG SET slowlog-max-len -1
CONFIG SET latency-monitor-threshold -1
CONFIG SET latency-tracking x
CONFIG SET latency-tracking-info-percentiles "50 101"
CONFIG SET latency-tracking-info-percentiles "50 x"
CONFIG SET latency-tracking-info-percentiles ""
CONFIG GET latency-tracking-info-percentiles
CONFIG SET latency-tracking-info-percentiles "50 99 99.9"
CONFIG GET latency-tracking-info-percentiles
CONFIG SET enable-debug-command no
CONFIG SET slowlog-max-len 7 latency-monitor-threshold -1
CONFIG GET slowlog-max-len
CONFIG SET slowlog-max-len 7 enable-debug-command yes
CONFIG GET slowlog-max-len
CONFIG SET slowlog-max-len 7 nosuch 1
CONFIG GET slowlog-max-len latency-monitor-thres*
CONFIG GET slowlog-max-[kl]en
"""

KEEPING = r"""
WAIT
WAIT 0 0
WAIT 1 10
WAIT x 10
WAIT -1 0
WAIT 0 -1
WAIT 0 x
WAITAOF 1 0 10
WAITAOF 0 0 10
WAITAOF 0 1 10
WAITAOF 2 0 10
WAITAOF -1 0 10
WAITAOF 0 -1 10
WAITAOF 0 0 -1
WAITAOF 0 0 x
WAITAOF 0 x 0
WAITAOF x 0 0
SAVE x
BGSAVE FOO
ROLE x
REPLICAOF NO ONE
SLAVEOF no one
REPLICAOF a
MEMORY
MEMORY FOO
MEMORY USAGE
MEMORY USAGE nokey
MEMORY USAGE nokey SAMPLES
MEMORY USAGE nokey SAMPLES x
MEMORY USAGE nokey SAMPLES -1
MEMORY USAGE nokey SAMPLES 5
MEMORY USAGE nokey FOO 5
MEMORY DOCTOR x
MEMORY PURGE
MEMORY MALLOC-STATS x
"""

ABSENT = r"""
CLUSTER
CLUSTER FOO
CLUSTER INFO
CLUSTER INFO x
CLUSTER HELP
CLUSTER SLOTS
CLUSTER SHARDS
CLUSTER NODES
CLUSTER MYID
CLUSTER KEYSLOT a
CLUSTER COUNTKEYSINSLOT x
READONLY
READWRITE
ASKING
MODULE
MODULE FOO
MODULE LIST x
SCRIPT
SCRIPT FLUSH
SCRIPT FLUSH x
SCRIPT FLUSH ASYNC
SCRIPT FLUSH SYNC x
FUNCTION
FUNCTION FLUSH
FUNCTION FLUSH x
FUNCTION FLUSH ASYNC
FUNCTION FLUSH SYNC x
FUNCTION LIST
FUNCTION LIST WITHCODE
FUNCTION LIST LIBRARYNAME x
FUNCTION LIST LIBRARYNAME
FUNCTION LIST x
SENTINEL MASTERS
CLIENT TRACKINGINFO
CLIENT TRACKINGINFO x
CLIENT CACHING
CLIENT CACHING YES
CLIENT CACHING FOO
CLIENT GETREDIR
"""

DEBUGGING = r"""
DEBUG
DEBUG FOO
DEBUG SLEEP
DEBUG SLEEP x
DEBUG SLEEP 0
DEBUG LOG
DEBUG LOG hello
DEBUG LOG a b
DEBUG OBJECT
DEBUG OBJECT nokey
DEBUG JMAP
DEBUG ERROR abc
DEBUG ERROR "a\nb"
DEBUG SET-ACTIVE-EXPIRE 1
DEBUG SET-ACTIVE-EXPIRE x
DEBUG SET-ACTIVE-EXPIRE
DEBUG SET-ACTIVE-EXPIRE 1
"""

PAUSING = r"""
CLIENT PAUSE
CLIENT PAUSE x
CLIENT PAUSE -1
CLIENT PAUSE 0 FOO
CLIENT PAUSE x FOO
CLIENT PAUSE 0 WRITE
CLIENT PAUSE 0 ALL x
CLIENT PAUSE 99999999999999999999
CLIENT PAUSE 9223372036854775807
CLIENT UNPAUSE
CLIENT UNPAUSE x
CLIENT PAUSE 0
PING
"""

TRANSACTIONS = r"""
MULTI
PING
EXEC x
EXEC
MULTI
NOSUCH
EXEC
MULTI
DISCARD x
EXEC
MULTI
MULTI
EXEC
MULTI
MULTI x
EXEC
MULTI
WATCH a
EXEC
EXEC x
DISCARD x
MULTI
SAVE
EXEC
MULTI
SHUTDOWN NOSAVE
PING
EXEC
MULTI
MONITOR
EXEC
MULTI
WAIT 1 0
EXEC
MULTI
HELLO 9
EXEC
PING
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    config = Config(port=0, appendonly=False, save=(), enable_debug_command="local")
    with server_thread(config) as started:
        yield started


@pytest.mark.peer
@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize(
    "block",
    [WATCHING, KEEPING, ABSENT, PAUSING, TRANSACTIONS],
    ids=["watching", "keeping", "absent", "pausing", "transactions"],
)
def test_replies_of_administrative_commands_are_those_of_redis(
    block: str, resp: int, server: ServerThread, shared_peer: Callable[[str], Peer]
) -> None:
    compare(server.port, shared_peer("redis-8.2").port, block, resp=resp)


@pytest.mark.peer
def test_replies_of_debug_are_those_of_redis_where_it_is_enabled(
    server: ServerThread, peer: Callable[..., Peer]
) -> None:
    theirs = peer("redis-8.2", "--enable-debug-command", "yes")
    compare(server.port, theirs.port, DEBUGGING, resp=2)


@pytest.mark.peer
def test_debug_is_an_error_unless_it_is_enabled(shared_peer: Callable[[str], Peer]) -> None:
    with server_thread() as ours:
        compare(ours.port, shared_peer("redis-8.2").port, "DEBUG SLEEP 0\nDEBUG HELP", resp=2)


@pytest.mark.parametrize(
    "fill",
    ["SET k 12", "SET k word", "HSET k f v", "RPUSH k a", "SADD k 1", "SADD k a", "XADD k 1-1 a b"],
)
def test_debug_object_shows_the_encoding_of_object_encoding(
    fill: str, server: ServerThread
) -> None:
    with redis.Redis(port=server.port) as client:
        client.delete("k")
        client.execute_command(*fill.split())
        shown = client.execute_command("DEBUG", "OBJECT", "k")
        assert b" encoding:" + client.object("ENCODING", "k") + b" " in shown
