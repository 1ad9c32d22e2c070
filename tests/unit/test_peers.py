"""The peers for comparisons have the versions in their names, and leave no processes or files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
import redis

from tests import peers

VERSIONS = {"redis-7.0": "7.0.15", "redis-8.2": "8.2.3", "valkey-9.1": "9.1.2"}


@pytest.mark.peer
@pytest.mark.parametrize("name", peers.PEERS)
def test_a_peer_has_the_version_in_its_name(
    name: str, shared_peer: Callable[[str], peers.Peer]
) -> None:
    server = shared_peer(name)
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        about = client.info("server")
        assert about.get("valkey_version", about["redis_version"]) == VERSIONS[name]
        assert about["process_id"] == server.pid
    with redis.Redis.from_url(server.unix_url) as client:
        assert client.ping()


@pytest.mark.peer
@pytest.mark.parametrize("name", peers.PEERS)
def test_a_stopped_peer_leaves_neither_process_nor_files(name: str) -> None:
    if peers.path(name) is None:
        pytest.skip(str(peers.PeerMissing(name)))
    with peers.running(name, "--appendonly", "yes") as server:
        with redis.Redis.from_url(server.url) as client:
            client.set("kept", "until the end")
    assert server.process.returncode is not None
    assert not server.directory.exists()


@pytest.mark.peer
def test_the_error_for_a_peer_that_does_not_start_has_its_output() -> None:
    if peers.path("redis-8.2") is None:
        pytest.skip(str(peers.PeerMissing("redis-8.2")))
    with pytest.raises(peers.PeerFailed, match="no-such-setting"):
        with peers.running("redis-8.2", "--no-such-setting", "1"):
            pass


@pytest.mark.peer
def test_redis_cli_works_with_a_peer(
    redis_cli: str, shared_peer: Callable[[str], peers.Peer]
) -> None:
    server = shared_peer("redis-8.2")
    done = subprocess.run(
        [redis_cli, "-p", str(server.port), "XADD", "s", "5-1", "field", "value"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "5-1"
