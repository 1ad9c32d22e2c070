"""What clients of a primary and of its replica are answered, compared with Redis 8.2 in the same place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import redis

from headwater.testing.server import server_process
from tests.conformance.wire import Wire, connected
from tests.peers import Peer
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(120), pytest.mark.peer]

SETTINGS = ("--appendonly", "yes", "--appendfsync", "everysec")


class Side:
    """A primary and its replica of one kind, and a connection to each."""

    def __init__(self, stack: ExitStack, primary: int, replica: int) -> None:
        self.ports = {"primary": primary, "replica": replica}
        self._stack = stack
        self.links = {name: self.link(name) for name in self.ports}
        self.ask("replica", "REPLICAOF", "127.0.0.1", str(primary))
        eventually(self.is_linked)

    def link(self, name: str) -> Wire:
        """Another connection."""
        return self._stack.enter_context(connected(self.ports[name]))

    def info(self, name: str) -> dict[str, Any]:
        with redis.Redis(port=self.ports[name]) as client:
            found: dict[str, Any] = client.info("replication")
            return found

    def is_linked(self) -> bool:
        return self.info("replica").get("master_link_status") == "up"

    def is_cut_off(self) -> bool:
        return self.info("replica").get("master_link_status") == "down"

    def accepts(self, *words: str) -> bool:
        return self.ask("primary", *words) == "+OK\r\n"

    def has_a_blocked_client(self) -> bool:
        return b"blocked_clients:1" in self.links["primary"].ask("INFO", "clients")

    def ask(self, name: str, *words: str) -> str:
        """The reply, with the ports of both servers and what differs from run to run replaced by words."""
        text = self.links[name].ask(*words).decode("utf-8", "replace")
        for role, port in self.ports.items():
            text = re.sub(rf"(\$\d+\r\n|:){port}\b", f"<port of the {role}>", text)
        return text

    def catch_up(self) -> None:
        """Wait until the replica has everything."""
        with redis.Redis(port=self.ports["primary"]) as client:
            offset = client.info("replication")["master_repl_offset"]
        eventually(lambda: self.info("replica")["slave_repl_offset"] >= offset)


class Both:
    """Headwater and Redis 8.2, each a primary with a replica."""

    def __init__(self, ours: Side, theirs: Side) -> None:
        self.ours = ours
        self.theirs = theirs

    def check(self, name: str, *words: str) -> str:
        """Ask both, check that the replies are equal, and return them."""
        ours, theirs = self.ours.ask(name, *words), self.theirs.ask(name, *words)
        assert ours == theirs, (name, words)
        return ours

    def catch_up(self) -> None:
        for side in (self.ours, self.theirs):
            side.catch_up()


@pytest.fixture
def both(peer: Callable[..., Peer]) -> Iterator[Both]:
    with ExitStack() as stack:
        members = [stack.enter_context(server_process(*SETTINGS)).port for _ in range(2)]
        ours = Side(stack, *members)
        settings = (*SETTINGS, "--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes")
        theirs = Side(stack, *(peer("redis-8.2", *settings).port for _ in range(2)))
        yield Both(ours, theirs)


REFUSED_ON_A_REPLICA = [
    "XADD s * a b", "XDEL s 1-1", "XTRIM s MAXLEN 1", "XSETID s 5-5", "XGROUP CREATE s h 0",
    "XGROUP DESTROY s g", "XREADGROUP GROUP g c STREAMS s >", "XACK s g 1-1", "XCLAIM s g c 0 1-1",
    "XAUTOCLAIM s g c 0 0", "SET k v", "GETEX k", "APPEND k v", "INCR n", "DEL k", "UNLINK k", "EXPIRE k 5", "PERSIST k",
    "RENAME k l", "COPY k l", "MOVE k 1", "LPUSH l 1", "BLPOP l 1", "SADD t 1",
    "HSET h f v", "FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "RESTORE k 0 x", "XREADGROUP GROUP g c BLOCK 1 STREAMS s >",
]  # fmt: skip


@pytest.mark.parametrize("command", REFUSED_ON_A_REPLICA)
def test_a_replica_refuses_what_writes(shared: Both, command: str) -> None:
    assert shared.check("replica", *command.split()).startswith("-READONLY")


READS_ON_A_REPLICA = [
    "XRANGE s - +", "XLEN s", "XPENDING s g", "XPENDING s g - + 10", "XREAD STREAMS s 0", "XREAD BLOCK 1 STREAMS s $",
    "XINFO GROUPS s", "GET k", "TTL k", "TYPE s", "EXISTS s k", "DBSIZE", "SCAN 9","OBJECT ENCODING k",
    "PING", "ECHO a", "PUBLISH c m", "SCRIPT EXISTS a", "READONLY", "WAIT 0 1", "WAIT 1 0", "WAIT", "WAITAOF 0 0 1",
    "FAILOVER", "FAILOVER ABORT", "FAILOVER TO 127.0.0.1 1", "REPLCONF", "REPLCONF unknown x", "REPLCONF capa eof",
    "REPLICAOF NO", "REPLICAOF a b", "REPLICAOF 127.0.0.1 65536", "REPLICAOF 127.0.0.1 -1", "SLAVEOF", "ROLE x",
]  # fmt: skip


@pytest.mark.parametrize("command", READS_ON_A_REPLICA)
def test_a_replica_answers_what_reads(shared: Both, command: str) -> None:
    shared.check("replica", *command.split())


ON_A_PRIMARY = [
    "WAIT 0 0", "WAIT 0 1", "WAIT 1 0", "WAIT 2 1", "WAIT -1 1", "WAIT a 1", "WAIT 1 a", "WAIT 1 -1", "WAIT 1 9223372036854775807",
    "WAIT 9223372036854775807 1", "WAIT 9223372036854775808 1", "WAITAOF 0 0 0", "WAITAOF 1 0 0", "WAITAOF 1 1 0", "WAITAOF 2 0 0",
    "WAITAOF -1 0 0", "WAITAOF 0 -1 0", "WAITAOF 0 a 0", "WAITAOF 0 0 -1", "WAITAOF 0 2 1", "FAILOVER ABORT", "FAILOVER x",
    "FAILOVER TO", "FAILOVER TO a", "FAILOVER TO 127.0.0.1 1", "FAILOVER TO 127.0.0.1 x", "FAILOVER TIMEOUT 0", "FAILOVER TIMEOUT -1",
    "FAILOVER TIMEOUT x", "FAILOVER FORCE", "FAILOVER TO 127.0.0.1 1 FORCE", "FAILOVER TO 127.0.0.1 1 TIMEOUT 1 FORCE FORCE",
    "REPLICAOF NO ONE", "REPLICAOF no one", "SLAVEOF NO ONE", "REPLICAOF NO", "REPLICAOF a b", "REPLICAOF NO TWO", "REPLCONF",
    "REPLCONF listening-port x", "REPLCONF unknown x", "CLIENT KILL TYPE master", "CLIENT KILL TYPE primary", "CLIENT KILL TYPE other",
    "CLIENT LIST TYPE master", "CLIENT LIST TYPE other", "ROLE x",
]  # fmt: skip


@pytest.mark.parametrize("command", ON_A_PRIMARY)
def test_a_primary_with_a_replica_answers_as_redis(shared: Both, command: str) -> None:
    shared.check("primary", "INCR", "counter")
    shared.check("primary", "WAITAOF", "1", "1", "0")
    shared.check("primary", *command.split())


@pytest.fixture(scope="module")
def shared() -> Iterator[Both]:
    """Pairs for tests that change nothing."""
    from tests import peers

    settings = (*SETTINGS, "--repl-diskless-sync-delay", "0")
    with ExitStack() as stack:
        members = [stack.enter_context(server_process(*SETTINGS)).port for _ in range(2)]
        try:
            found = [
                stack.enter_context(peers.running("redis-8.2", *settings)).port for _ in range(2)
            ]
        except peers.PeerMissing as missing:
            pytest.skip(str(missing))
        both = Both(Side(stack, *members), Side(stack, *found))
        for words in (
            "XADD s 1-1 a b",
            "XADD s 2-1 a b",
            "XGROUP CREATE s g 0",
            "SET k v EX 1000",
            "RPUSH l a",
        ):
            both.check("primary", *words.split())
        both.catch_up()
        yield both


def test_role_and_info_name_the_members_as_redis_does(both: Both) -> None:
    # Given a write that the replica has
    both.check("primary", "XADD", "s", "1-1", "a", "b")
    both.catch_up()

    # Then ROLE has the same form
    def shape(text: str) -> str:
        return re.sub(r"(:|\$\d+\r\n)\d+\r\n", "<offset>", text)

    for name in ("primary", "replica"):
        assert shape(both.ours.ask(name, "ROLE")) == shape(both.theirs.ask(name, "ROLE"))
        # And INFO has every field of Redis, with values of the same kind, and the same words
        ours, theirs = both.ours.info(name), both.theirs.info(name)
        assert theirs.keys() - ours.keys() == set()
        words = {key: value for key, value in theirs.items() if isinstance(value, str)}
        same = [key for key in words if not key.startswith(("master_replid", "master_repl"))]
        assert {key: ours[key] for key in same} == {key: words[key] for key in same}
        assert {key: type(ours[key]) for key in theirs} == {
            key: type(theirs[key]) for key in theirs
        }


def test_transactions_and_scripts_that_write_are_refused_on_a_replica(both: Both) -> None:
    # Given a replica
    both.check("primary", "SET", "k", "v")
    both.catch_up()
    # Then a write in MULTI is refused when it is queued, and EXEC fails
    for words in ("MULTI", "GET k", "SET k w", "EXEC"):
        both.check("replica", *words.split())
    # And a script may read, and fails at its first write
    both.check("replica", "EVAL", "return redis.call('get', KEYS[1])", "1", "k")
    refused = [
        side.ask("replica", "EVAL", "return redis.call('set', KEYS[1], 'w')", "1", "k")
        for side in (both.ours, both.theirs)
    ]
    assert [text.split()[0] for text in refused] == ["-READONLY", "-READONLY"]
    both.check("replica", "EVAL_RO", "return redis.call('get', KEYS[1])", "1", "k")
    assert both.check("replica", "GET", "k") == "$1\r\nv\r\n"


def test_without_its_primary_a_replica_serves_old_data_or_says_so(both: Both) -> None:
    # Given a replica whose primary refuses it
    both.check("primary", "SET", "k", "v")
    both.catch_up()
    for side in (both.ours, both.theirs):
        assert side.ask("replica", "CONFIG", "SET", "replica-serve-stale-data", "no") == "+OK\r\n"
        side.ask("replica", "REPLICAOF", "127.0.0.1", "1")
        eventually(side.is_cut_off)
    # Then reads are refused, and what needs no data is answered
    assert both.check("replica", "GET", "k").startswith("-MASTERDOWN")
    for words in (
        "PING",
        "XREAD STREAMS s 0",
        "SET k w",
        "CONFIG GET appendonly",
        "PUBLISH c m",
        "MULTI",
        "GET k",
        "EXEC",
    ):
        both.check("replica", *words.split())
    # And with the default setting, they are answered from what the replica has
    for side in (both.ours, both.theirs):
        side.ask("replica", "CONFIG", "SET", "replica-serve-stale-data", "yes")
    assert both.check("replica", "GET", "k") == "$1\r\nv\r\n"


def test_a_primary_that_lacks_replicas_refuses_writes_as_redis(both: Both) -> None:
    # Given primaries that require two replicas, and have one
    both.check("primary", "RPUSH", "l", "a")
    both.check("primary", "CONFIG", "SET", "min-replicas-to-write", "2")
    # Then they refuse writes in Redis's words, and answer reads
    assert both.check("primary", "SET", "k", "v").startswith("-NOREPLICAS")
    for words in (
        "LLEN l",
        "MULTI",
        "LLEN l",
        "SET k v",
        "EXEC",
        "PUBLISH c m",
        "BLPOP l 1",
        "DEL l",
    ):
        both.check("primary", *words.split())
    # And when one is enough, they accept them
    both.check("primary", "CONFIG", "SET", "min-slaves-to-write", "1")
    for side in (both.ours, both.theirs):
        eventually(partial(side.accepts, "SET", "k", "v"))
    both.check("primary", "GET", "k")


def test_a_client_that_is_blocked_when_its_server_becomes_a_replica_is_told_so(both: Both) -> None:
    # Given clients that are blocked on primaries
    blocked = []
    for side in (both.ours, both.theirs):
        link = side.link("primary")
        link.send("BLPOP", "none", "0")
        blocked.append(link)
        eventually(side.has_a_blocked_client)
    # When these follow another server
    for side in (both.ours, both.theirs):
        side.ask("primary", "REPLICAOF", "127.0.0.1", "1")
    # Then the clients get the same error
    ours, theirs = (link.reply() for link in blocked)
    assert ours == theirs
    assert ours.startswith(b"-UNBLOCKED")


def test_expired_keys_are_not_seen_on_a_replica_before_the_primary_removes_them(both: Both) -> None:
    # Given a key that expires, on both members
    both.check("primary", "SET", "k", "v", "PX", "300")
    both.catch_up()
    # Then reads of the replica do not see it from that time on
    eventually(lambda: both.ours.ask("replica", "GET", "k") == "$-1\r\n")
    eventually(lambda: both.theirs.ask("replica", "GET", "k") == "$-1\r\n")
    both.check("replica", "EXISTS", "k")
    both.check("replica", "TTL", "k")
