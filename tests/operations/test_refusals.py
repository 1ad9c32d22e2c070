"""`explain` says why a server refuses what workers send, and which command ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from headwater.groups.protocol.operation import run
from headwater.operations.readiness import Readiness, readiness
from headwater.operations.refusals import ServerRefusal, refusals
from headwater.operations.replication import REQUIRES
from headwater.testing.server import server_process
from tests import peers
from tests.operations.conftest import SERVERS
from tests.waiting import eventually

pytestmark = pytest.mark.slow

StartPeer = Callable[..., peers.Peer]


@pytest.fixture(params=SERVERS)
def client(request: pytest.FixtureRequest, peer: StartPeer) -> Iterator[redis.Redis]:
    """A client of a server of this test's own, of each kind in turn."""
    if request.param == "headwater":
        with (
            server_process("--appendonly", "no") as server,
            redis.Redis.from_url(server.url) as own,
        ):
            yield own
    else:
        with redis.Redis.from_url(peer(request.param).url) as own:
            yield own


def only(client: redis.Redis) -> ServerRefusal:
    (found,) = run(client, refusals("s")).found
    return found


def carry_out(client: redis.Redis, found: ServerRefusal) -> None:
    client.execute_command(*found.fix)
    assert run(client, refusals("s")).found == []


def test_a_server_that_works_has_no_refusal(client: redis.Redis) -> None:
    assert run(client, refusals("s")).found == []


def test_a_server_without_memory(client: redis.Redis) -> None:
    client.xadd("s", {"v": "x" * 10_000})
    client.config_set("maxmemory", 1)
    with pytest.raises(redis.ResponseError):
        client.xadd("s", {"v": 1})
    found = only(client)
    assert found.code == "OOM"
    carry_out(client, found)
    client.xadd("s", {"v": 1})


def test_a_server_with_too_few_replicas(client: redis.Redis) -> None:
    client.config_set("min-replicas-to-write", 2)
    with pytest.raises(redis.ResponseError):
        client.xadd("s", {"v": 1})
    found = only(client)
    assert (found.code, found.statement[:10]) == ("NOREPLICAS", "0 replicas")
    carry_out(client, found)
    client.xadd("s", {"v": 1})


def test_clients_that_are_paused(client: redis.Redis) -> None:
    client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
    info: Any = client.info("clients")
    if "paused_actions" not in info:  # Redis does not tell, so nothing is said
        assert run(client, refusals("s")).found == []
        return
    found = only(client)
    assert found.code == "PAUSED"
    assert "commands that write" in found.statement
    carry_out(client, found)
    client.xadd("s", {"v": 1})


def test_a_user_without_rights(client: redis.Redis) -> None:
    # Given a worker's user without the right to claim and to the stream
    client.acl_setuser(
        "worker", enabled=True, nopass=True, keys=["t"], commands=["+@all", "-xclaim"]
    )
    place: Any = client.connection_pool.connection_kwargs
    with redis.Redis(
        host=place["host"], port=place["port"], username="worker", password="any"
    ) as worker:
        for command in (("XLEN", "s"), ("XCLAIM", "t", "g", "c", 0, "0-1")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                worker.execute_command(*command)
        # Then both are named, and the commands give the rights
        found = run(client, refusals("s")).found
        assert {one.code for one in found} == {"NOPERM"}
        assert {one.fix for one in found} == {
            ("ACL", "SETUSER", "worker", "~s"),
            ("ACL", "SETUSER", "worker", "+xclaim"),
        }
        for one in found:
            client.execute_command(*one.fix)
        assert run(client, refusals("s")).found == []
        assert worker.xlen("s") == 0


def test_a_server_that_does_not_tell_is_not_known_to_take_writes(client: redis.Redis) -> None:
    # Given users without the right to INFO, and without those of an administrator
    place: Any = client.connection_pool.connection_kwargs
    for name, lacks in (("eve", "-info"), ("ann", "-@admin")):
        client.acl_setuser(name, enabled=True, nopass=True, keys=["*"], commands=["+@all", lacks])
    at: Any = {"host": place["host"], "port": place["port"], "password": "any"}
    with redis.Redis(username="eve", **at) as eve, redis.Redis(username="ann", **at) as ann:
        # Then the former is not told that the server is ready, the latter is, and both what they do not know
        assert run(client, readiness()) == Readiness(True, [])
        found = run(eve, readiness())
        assert not found.ready
        assert found.problems[0].endswith("whether the server takes writes (INFO)")
        assert run(ann, readiness()).ready
        unknown = [one for one in run(ann, refusals("s")).unknown if one != REQUIRES]
        assert unknown == ["which rights users lack (ACL LOG)"]


@pytest.mark.parametrize("name", ["redis-8.2", "valkey-9.1"])
def test_a_server_whose_snapshot_failed(peer: StartPeer, tmp_path: Path, name: str) -> None:
    # Given a server that cannot replace its snapshot
    server = peer(name, "--dir", str(tmp_path), "--dbfilename", "dump.rdb", "--save", "3600 1")
    (tmp_path / "dump.rdb" / "in the way").mkdir(parents=True)
    with redis.Redis.from_url(server.url) as client:
        client.bgsave()
        found = eventually(lambda: run(client, refusals("s")).found, "the snapshot fails")
        assert [one.code for one in found] == ["MISCONF"]
        # When the cause is removed, then the command that is shown ends it
        (tmp_path / "dump.rdb" / "in the way").rmdir()
        (tmp_path / "dump.rdb").rmdir()
        client.execute_command(*found[0].fix)
        eventually(lambda: not run(client, refusals("s")).found, "the snapshot succeeds")
        client.config_set("save", "")  # otherwise it would take another one before it ends


@pytest.mark.parametrize("name", ["redis-8.2", "valkey-9.1"])
def test_a_replica(peer: StartPeer, name: str) -> None:
    primary, replica = peer(name), peer(name)
    port = primary.url.rpartition(":")[2]
    with redis.Redis.from_url(replica.url) as client:
        client.replicaof("127.0.0.1", port)
        found = only(client)
    assert found.code == "READONLY"
    assert f"a replica of 127.0.0.1:{port}" in found.statement
