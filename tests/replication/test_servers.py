"""Servers that follow each other over sockets: copies, continuation, promotion, failover by hand, synchronous replies."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import redis

from headwater.server.services.replication.link import LINK_VERSION
from headwater.testing.server import ServerProcess, server_process
from tests.conformance.wire import connected
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)


class Member:
    """A server of a group, and a client of it."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.client = redis.Redis.from_url(server.url, decode_responses=True)

    @property
    def place(self) -> tuple[str, int]:
        return "127.0.0.1", self.server.port

    def replication(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.info("replication")
        return found

    def follow(self, other: Member) -> None:
        """Become a replica of ``other``, and wait for the link."""
        self.client.execute_command("REPLICAOF", *other.place)
        self.linked()

    def is_primary(self) -> bool:
        return bool(self.replication()["role"] == "master")

    def ids(self) -> list[str]:
        """The ids of the stream ``s``."""
        found: Any = self.client.xrange("s")
        return [entry for entry, _fields in found]

    def linked(self) -> None:
        eventually(lambda: self.replication().get("master_link_status") == "up")

    def has_all_of(self, other: Member) -> None:
        """Wait until this member has the offset of ``other``."""
        offset = other.replication()["master_repl_offset"]
        eventually(lambda: self.replication()["master_repl_offset"] == offset)


class Group:
    """Members that are started when they are needed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def member(self, *flags: str) -> Member:
        return Member(self._stack.enter_context(server_process(*flags)))


@pytest.fixture
def group() -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(stack)


def add(member: Member, count: int, key: str = "s") -> None:
    pipe = member.client.pipeline(transaction=False)
    for number in range(count):
        pipe.xadd(key, {"n": number})
    pipe.execute()


def test_a_replica_takes_a_copy_and_then_each_change(group: Group) -> None:
    # Given a primary with data, and another server with data of its own
    primary, replica = group.member(), group.member()
    add(primary, 500)
    primary.client.xgroup_create("s", "g", "0")
    primary.client.xreadgroup("g", "c", {"s": ">"}, count=20)
    replica.client.set("own", "value")
    # When it follows
    replica.follow(primary)
    # Then it has the primary's data and nothing else
    assert replica.client.xpending("s", "g") == primary.client.xpending("s", "g")
    assert replica.client.get("own") is None
    # And everything that follows
    add(primary, 100)
    replica.has_all_of(primary)
    assert replica.client.xrange("s") == primary.client.xrange("s")
    assert primary.client.execute_command("ROLE")[2][0][1] == str(replica.server.port)
    assert replica.client.execute_command("ROLE")[:4] == ["slave", *primary.place, "connected"]


def test_a_killed_replica_continues_where_it_was(group: Group) -> None:
    # Given a replica that is killed while its primary goes on
    primary, replica = group.member(), group.member()
    replica.follow(primary)
    add(primary, 100)
    replica.has_all_of(primary)
    replica.server.kill()
    add(primary, 5_000)
    # When it is back
    replica.server.start()
    replica.follow(primary)
    replica.has_all_of(primary)
    # Then it has what it missed, without a copy
    assert replica.client.xlen("s") == 5_100
    assert "receiving a copy" not in replica.server.log().rpartition("started as")[2]


def test_a_chain_of_replicas_follows_a_promotion(group: Group) -> None:
    # Given a replica of a replica
    first, second, third = group.member(), group.member(), group.member()
    second.follow(first)
    third.follow(second)
    add(first, 100)
    third.has_all_of(first)
    # When the primary is gone and the one in the middle is promoted
    first.server.kill()
    second.client.execute_command("REPLICAOF", "NO", "ONE")
    add(second, 10)
    # Then the last one goes on, and so does the former primary when it is back
    third.has_all_of(second)
    first.server.start()
    first.follow(second)
    first.has_all_of(second)
    assert first.client.xlen("s") == third.client.xlen("s") == 110
    assert "receiving a copy" not in first.server.log()


def test_a_replica_whose_offset_is_inside_a_record_gets_a_copy(group: Group) -> None:
    # Given a primary, and the name of a state that it never had
    primary = group.member()
    add(primary, 10)
    history, offset = (
        primary.replication()[name] for name in ("master_replid", "master_repl_offset")
    )
    request = ("HWSYNC", str(LINK_VERSION), history, str(offset - 5))
    # When a replica wants to continue there, then the link is closed
    with connected(primary.server.port) as wire:
        assert wire.ask(*request).startswith(b"+CONTINUE")
        while wire.socket.recv(4096):
            pass
    # And when it tries again, then it gets a copy
    with connected(primary.server.port) as wire:
        assert wire.ask(*request).startswith(b"+FULL")


def test_changes_that_the_primary_lacks_are_kept_aside(group: Group) -> None:
    # Given a replica that was promoted and wrote
    primary, replica = group.member(), group.member()
    add(primary, 10)
    replica.follow(primary)
    replica.client.execute_command("REPLICAOF", "NO", "ONE")
    replica.client.set("later", "value")
    # When it follows its former primary again
    replica.follow(primary)
    # Then it gives that change up, says so, and keeps the former store
    assert replica.client.get("later") is None
    assert "changes that the primary does not have are given up" in replica.server.log()
    (kept,) = replica.server.data.glob("diverged-*")
    assert (kept / "MANIFEST").exists()


def test_a_failover_by_hand_loses_nothing_under_load(group: Group) -> None:
    # Given a primary and a replica, and clients that write to whichever is the primary
    members = [group.member(), group.member()]
    members[1].follow(members[0])
    answered: list[str] = []
    done = threading.Event()

    def write() -> None:
        clients = [redis.Redis.from_url(one.server.url, decode_responses=True) for one in members]
        at = 0
        while not done.is_set():
            try:
                answered.append(str(clients[at].xadd("s", {"n": len(answered)})))
            except redis.RedisError:
                at = 1 - at

    def has_answered(least: int) -> bool:
        return len(answered) >= least

    writer = threading.Thread(target=write)
    writer.start()
    try:
        # When each hands over to the other, several times
        for turn in range(6):
            here, there = members[turn % 2], members[1 - turn % 2]
            eventually(partial(has_answered, len(answered) + 50))
            here.client.execute_command("FAILOVER", "TO", *there.place, "TIMEOUT", "10000")
            eventually(there.is_primary)
            here.linked()
    finally:
        done.set()
        writer.join()
    # Then both have every answered write
    primary = next(one for one in members if one.is_primary())
    other = members[1 - members.index(primary)]
    other.has_all_of(primary)
    ids = primary.ids()
    assert set(answered) <= set(ids)
    assert other.ids() == ids


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_synchronous_replies_wait_for_a_replica(group: Group, policy: str) -> None:
    # Given a primary whose replies wait for one replica
    flags = ("--appendfsync", policy)
    primary, replica = group.member("--synchronous-replicas", "1", *flags), group.member(*flags)
    with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
        primary.client.xadd("s", {"n": 0})
    replica.follow(primary)
    eventually(lambda: primary.client.execute_command("ROLE")[2] != [])
    add(primary, 1)
    # When the replica is stopped while a client writes and another reads
    replica.server.pause()
    replies: list[object] = []
    url = primary.server.url
    writing = threading.Thread(
        target=lambda: replies.append(redis.Redis.from_url(url).xadd("s", {"n": 1}))
    )
    writing.start()
    eventually(lambda: primary.replication()["master_repl_offset"] > 0)
    time.sleep(0.3)  # time for a reply that must not come
    # Then neither is answered, though the server lives
    assert replies == []
    assert primary.client.ping()
    # And when the replica goes on, they are
    replica.server.resume()
    writing.join(10)
    assert len(replies) == 1


def test_wait_counts_the_replicas_that_have_the_writes(group: Group) -> None:
    # Given a primary with two replicas, one of which is stopped
    primary, first, second = group.member(), group.member(), group.member()
    first.follow(primary)
    second.follow(primary)
    second.server.pause()
    # When a client has written and waits
    primary.client.set("k", "v")
    assert primary.client.wait(1, 5_000) == 1
    assert primary.client.wait(2, 100) == 1
    assert primary.client.execute_command("WAITAOF", 1, 1, 5_000) == [1, 1]
    # Then the other one counts as soon as it has them
    second.server.resume()
    assert primary.client.wait(2, 5_000) == 2


def test_a_blocked_client_is_told_that_its_server_follows(group: Group) -> None:
    # Given a client that waits for entries
    primary, replica = group.member(), group.member()
    errors: list[str] = []

    def read() -> None:
        client = redis.Redis.from_url(replica.server.url)
        try:
            client.xread({"s": "$"}, block=10_000)
        except redis.RedisError as error:
            errors.append(str(error))

    reading = threading.Thread(target=read)
    reading.start()
    eventually(lambda: replica.client.info("clients")["blocked_clients"] == 1)
    # When its server becomes a replica
    replica.follow(primary)
    # Then it gets Redis's error
    reading.join(10)
    assert errors == [
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
    ]


def test_a_promoted_replica_takes_over_what_another_one_has_more(group: Group) -> None:
    # Given a primary whose answers need one of two replicas, and a replica that lacks the last answered write
    primary, behind, ahead = (group.member("--synchronous-replicas", "1") for _ in range(3))
    behind.follow(primary)
    ahead.follow(primary)
    add(primary, 10)
    behind.has_all_of(primary)
    behind.client.execute_command("REPLICAOF", "127.0.0.1", 1)
    primary.client.xadd("s", {"answered": "yes"})
    primary.server.kill()
    # When that one is promoted
    behind.client.execute_command("REPLICAOF", "NO", "ONE")
    # Then it answers nothing about keys
    for command in (("XLEN", "s"), ("XADD", "s", "*", "f", "v"), ("GET", "k")):
        with pytest.raises(redis.ResponseError, match="waits for its replicas"):
            behind.client.execute_command(*command)
    assert behind.replication()["promotion_waits_for_replicas"] == 1
    # Until the other one follows it: then it has that write too, and neither needed a copy
    ahead.client.execute_command("REPLICAOF", *behind.place)
    eventually(lambda: "promotion_waits_for_replicas" not in behind.replication())
    assert behind.client.xlen("s") == 11
    assert behind.client.xadd("s", {"next": "write"})
    ahead.has_all_of(behind)
    assert ahead.client.xrange("s") == behind.client.xrange("s")
    copies = [one.server.log().count("receiving a copy") for one in (behind, ahead)]
    assert copies == [1, 1], "one each at the beginning"


def test_a_former_primary_that_crashed_does_not_complete_a_promotion(group: Group) -> None:
    # Given a promoted replica, and two members that may follow it
    primary, promoted, other = (group.member("--synchronous-replicas", "1") for _ in range(3))
    promoted.follow(primary)
    other.follow(primary)
    add(primary, 10)
    other.has_all_of(primary)
    promoted.has_all_of(primary)
    primary.server.kill()
    promoted.client.execute_command("REPLICAOF", "NO", "ONE")
    # When the former primary is back, which may have lost the last second
    primary.server.start()
    primary.follow(promoted)
    # Then the promoted one still waits, for the one that has lost nothing
    assert promoted.replication()["connected_slaves"] == 1
    with pytest.raises(redis.ResponseError, match="waits for its replicas"):
        promoted.client.xlen("s")
    other.client.execute_command("REPLICAOF", *promoted.place)
    eventually(lambda: "promotion_waits_for_replicas" not in promoted.replication())
    assert promoted.client.xlen("s") == 10


def test_an_operator_gives_up_what_only_lost_replicas_have(group: Group) -> None:
    # Given a promoted replica that waits for others
    primary, replica = (group.member("--synchronous-replicas", "1") for _ in range(2))
    replica.follow(primary)
    add(primary, 10)
    primary.server.kill()
    replica.client.execute_command("REPLICAOF", "NO", "ONE")
    with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
        replica.client.xlen("s")
    # When it needs no replica any more
    replica.client.config_set("synchronous-replicas", 0)
    # Then it answers
    assert replica.client.xlen("s") == 10
    assert replica.client.xadd("s", {"f": "v"})


def test_a_replica_that_restarts_as_a_primary_waits_for_the_others(group: Group) -> None:
    # Given a replica whose configuration names no primary
    primary, replica = (group.member("--synchronous-replicas", "1") for _ in range(2))
    replica.follow(primary)
    add(primary, 10)
    primary.server.kill()
    # When it starts again
    replica.server.kill()
    replica.server.start()
    # Then it is a primary that waits
    assert replica.is_primary()
    with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
        replica.client.xlen("s")


def test_a_new_server_does_not_complete_a_promotion(group: Group) -> None:
    # Given a promoted replica that waits for another one
    primary, promoted, other = (group.member("--synchronous-replicas", "1") for _ in range(3))
    promoted.follow(primary)
    other.follow(primary)
    add(primary, 10)
    other.has_all_of(primary)
    promoted.has_all_of(primary)
    primary.server.kill()
    promoted.client.execute_command("REPLICAOF", "NO", "ONE")
    # When an empty server follows it, then it gets no copy yet
    new = group.member()
    new.client.execute_command("REPLICAOF", *promoted.place)
    eventually(lambda: "sends no copies" in new.server.log())
    assert "promotion_waits_for_replicas" in promoted.replication()
    # And when the other one is there, it does
    other.client.execute_command("REPLICAOF", *promoted.place)
    eventually(lambda: "promotion_waits_for_replicas" not in promoted.replication())
    new.linked()
    new.has_all_of(promoted)
    assert new.client.xlen("s") == 10
