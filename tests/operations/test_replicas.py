"""`headwater replicas`, `explain`, `doctor` and the metrics say who replicates whom, and what is wrong with it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from prometheus_client import CollectorRegistry, generate_latest

from headwater.cli.exporter import StoreCollector
from headwater.cli.query import query
from headwater.groups.protocol.operation import run
from headwater.operations.replication import (
    LAGGING_BYTES,
    LinkState,
    ReplicationMember,
    ReplicationProblemName,
    ServerRole,
    comparison,
    replication,
)
from headwater.testing.server import ServerProcess, server_process
from tests import peers
from tests.operations.conftest import SERVERS
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

Run = Callable[..., str]

_FAST = ("--repl-diskless-sync-delay", "0", "--repl-timeout", "60")


class Server:
    """One server of a group, and a client of it."""

    def __init__(self, server: ServerProcess | peers.Peer) -> None:
        self.server = server
        self.url = server.url
        self.address = f"127.0.0.1:{server.port}"
        self.client: Any = redis.Redis.from_url(server.url, decode_responses=True)

    def seen(self) -> ReplicationMember:
        with redis.Redis.from_url(self.url) as client:
            return run(client, replication())

    def problems(self) -> list[ReplicationProblemName]:
        return [one.name for one in self.seen().problems]

    def follow(self, other: Server) -> None:
        """Become a replica of ``other``, and wait until both say so."""
        self.client.execute_command("REPLICAOF", "127.0.0.1", other.server.port)

        def linked() -> bool:
            link = self.seen().link
            there = [one for one in other.seen().replicas if one.address == self.address]
            return link is not None and link.up and [one.state for one in there] == ["online"]

        eventually(linked, "the replica follows")

    def suspend(self) -> None:
        if isinstance(self.server, ServerProcess):
            self.server.pause()
        else:
            self.server.process.send_signal(19)

    def resume(self) -> None:
        if isinstance(self.server, ServerProcess):
            self.server.resume()
        else:
            self.server.process.send_signal(18)


Start = Callable[..., Server]


@pytest.fixture(params=SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def start(kind: str) -> Iterator[Start]:
    """Starts a server of each kind in turn, with the arguments that it is given."""
    with ExitStack() as stack:

        def one(*arguments: str) -> Server:
            if kind == "headwater":
                return Server(stack.enter_context(server_process(*arguments)))
            try:
                return Server(stack.enter_context(peers.running(kind, *_FAST, *arguments)))
            except peers.PeerMissing as missing:
                if peers.required():
                    raise
                pytest.skip(str(missing))

        yield one


@pytest.fixture
def pair(start: Start) -> tuple[Server, Server]:
    """A primary and its replica."""
    primary, replica = start(), start()
    primary.client.xadd("s", {"n": 1})
    replica.follow(primary)
    return primary, replica


Pair = tuple[Server, Server]


def test_a_primary_and_its_replica_are_shown_with_their_offsets(
    pair: Pair, run_headwater: Run
) -> None:
    primary, replica = pair
    offset = primary.client.info("replication")["master_repl_offset"]
    eventually(lambda: (primary.seen().replicas[0].offset or 0) >= offset, "it acknowledges")
    # When both are asked
    printed = run_headwater("replicas", "--url", primary.url)
    assert "a primary at offset" in printed
    assert "1 replica; synchronous-replicas 0, min-replicas-to-write 0" in printed
    assert f"{replica.address}  online" in printed
    printed = run_headwater("replicas", "--url", replica.url)
    assert f"a replica of {primary.address} at offset" in printed
    assert "link up" in printed
    # Then programs get the same
    (document,) = json.loads(run_headwater("replicas", "--url", primary.url, "-o", "json"))
    (row,) = document["replicas"]
    assert (document["role"], row["address"], row["state"]) == (
        "primary",
        replica.address,
        "online",
    )
    assert row["durable_offset"] is None or row["durable_offset"] <= row["offset"]
    table = csv.DictReader(
        io.StringIO(run_headwater("replicas", "--url", replica.url, "-o", "csv"))
    )
    (line,) = table
    assert json.loads(line["link"])["primary"] == primary.address


def test_a_chain_is_shown_from_the_middle(pair: Pair, start: Start, run_headwater: Run) -> None:
    primary, middle = pair
    last = start()
    last.follow(middle)
    printed = run_headwater("replicas", "--url", middle.url)
    assert f"a replica of {primary.address}" in printed
    assert f"{last.address}  online" in printed


def test_a_primary_without_a_replica_that_it_requires_is_not_healthy(
    start: Start, kind: str, run_headwater: Run
) -> None:
    # Given a primary that requires a replica, in each way that it has
    primary, replica = start(), start()
    primary.client.xgroup_create("s", "g", mkstream=True)
    ways = [*(["synchronous-replicas"] if kind == "headwater" else []), "min-replicas-to-write"]
    for setting in ways:
        primary.client.config_set(setting, 1)
        with pytest.raises(redis.RedisError, match=r"NOREPLICAS|Not enough good replicas"):
            primary.client.xadd("s", {"n": 1})
        # Then all commands say so
        printed = run_headwater("replicas", "--url", primary.url, status=3)
        assert f"too few replicas: {setting} is 1" in printed
        assert "no replicas" in printed
        if setting == "min-replicas-to-write":
            explained = run_headwater("explain", "s", "g", "--url", primary.url, status=3)
            assert f"CONFIG SET {setting} 0" in explained
        else:  # what no replica has is not shown
            explained = run_headwater("explain", "s", "g", "--url", primary.url, status=1)
            assert "timed out. The server holds back replies" in explained
        assert f"NOREPLICAS: 0 replicas are in sync, and {setting} is 1" in explained
        found = json.loads(
            run_headwater("doctor", "s", "--url", primary.url, "-o", "json", status=3)
        )
        states = {one["name"]: one["good"] for one in found}
        assert (states["replication"], states["writes"]) == (False, False)
        # Until a replica is there
        replica.follow(primary)
        eventually(lambda: primary.problems() == [], "the primary has its replica")
        primary.client.xadd("s", {"n": 1})
        assert "NOREPLICAS" not in run_headwater(
            "explain", "s", "g", "--url", primary.url, "--window", "0s"
        )
        replica.client.execute_command("REPLICAOF", "NO", "ONE")
        primary.client.config_set(setting, 0)
        eventually(lambda: primary.seen().replicas == [], "the replica is gone")


def test_a_replica_that_hangs_is_silent_and_then_lags(pair: Pair, run_headwater: Run) -> None:
    # Given a replica that is suspended
    primary, replica = pair
    primary.client.xgroup_create("s", "g", "$")
    primary.client.config_set("min-replicas-max-lag", 1)
    replica.suspend()
    try:
        # When more is written than it can have
        for _ in range(LAGGING_BYTES // 2**20 + 1):
            primary.client.xadd("s", {"n": "x" * 2**20}, maxlen=1)
        eventually(lambda: primary.problems() == [ReplicationProblemName.SILENT], "it is silent")
        printed = run_headwater("replicas", "--url", primary.url, status=3)
        assert f"replica {replica.address} has acknowledged nothing for" in printed
        # Then a group is not stuck by it, unless its server requires the replica
        primary.client.xgroup_setid("s", "g", "$")
        explained = run_headwater("explain", "s", "g", "--url", primary.url, "--window", "0s")
        assert "healthy" in explained
        assert "replication: silent replica" in explained
        primary.client.config_set("min-replicas-max-lag", 60)
        (row,) = primary.seen().replicas
        assert (row.behind_bytes or 0) >= LAGGING_BYTES
        assert primary.problems() == [ReplicationProblemName.LAGS]
        primary.client.config_set("min-replicas-to-write", 1)
        explained = run_headwater(
            "explain", "s", "g", "--url", primary.url, "--window", "0s", status=3
        )
        assert "replication: replica lags" in explained
    finally:
        replica.resume()
    # And all is well when it goes on
    eventually(lambda: primary.problems() == [], "it has everything")


def test_a_replica_without_its_primary_says_for_how_long(pair: Pair, run_headwater: Run) -> None:
    # Given a replica whose primary is killed
    primary, replica = pair
    primary.server.kill()
    eventually(lambda: replica.problems() == [ReplicationProblemName.LINK_DOWN], "the link is down")
    eventually(lambda: (replica.seen().link or 0).down_s, "a second passes")  # type: ignore[union-attr]
    # Then it says so, and for how long
    printed = run_headwater("replicas", "--url", replica.url, status=3)
    assert f"primary gone: the link to the primary {primary.address} is down for" in printed
    examined = json.loads(
        run_headwater("doctor", "s", "--url", replica.url, "-o", "json", status=3)
    )
    (text,) = [one["text"] for one in examined if one["name"] == "replication"]
    assert text.startswith("primary gone")


def test_a_copy_under_way_is_shown_on_both_sides(start: Start, kind: str) -> None:
    # Given a primary with data that a replica lacks, which sends it slowly
    primary, replica = start(), start()
    for n in range(64):
        primary.client.set(f"k{n}", "x" * 2**20)
    if kind == "headwater":
        primary.client.bgsave()
    else:
        primary.client.config_set("repl-diskless-sync-delay", 3)
    # When it follows
    replica.client.execute_command("REPLICAOF", "127.0.0.1", primary.server.port)
    seen = eventually(lambda: _copying(primary), "the replica waits for a copy")
    # Then the primary says which replica gets one, and that its offset is unknown
    (row,) = seen.replicas
    assert row.address == replica.address or row.state == "wait_bgsave"
    assert (row.offset, row.behind_bytes) == (None, None)
    assert [one.name for one in seen.problems] == [ReplicationProblemName.FULL_COPY]
    # And both say that all is well when it is complete
    eventually(lambda: primary.problems() == replica.problems() == [], "the copy is complete")


def _copying(primary: Server) -> ReplicationMember | None:
    seen = primary.seen()
    return seen if any(not one.online for one in seen.replicas) else None


def test_a_member_with_changes_that_the_others_lack_has_diverged(
    pair: Pair, run_headwater: Run
) -> None:
    # Given a replica that is promoted while the former primary goes on
    former, promoted = pair
    eventually(lambda: former.seen().offset == promoted.seen().offset, "both have everything")
    promoted.client.execute_command("REPLICAOF", "NO", "ONE")
    former.client.xadd("s", {"n": 2})
    promoted.client.xadd("s", {"n": 3})
    # When both are asked
    words = ["replicas", promoted.url, "--url", former.url]
    found = json.loads(run_headwater(*words, "-o", "json", status=3))
    # Then it is the former primary that has diverged
    names = [[one["name"] for one in document["problems"]] for document in found]
    assert names == [[ReplicationProblemName.DIVERGED], []]
    assert "gives them up and takes a full copy" in run_headwater(*words, status=3)
    # And it has not after it has followed
    former.follow(promoted)
    eventually(lambda: former.seen().history == promoted.seen().history, "it follows")
    assert comparison(former.seen(), promoted.seen()) is None
    run_headwater(*words)


def test_two_primaries_of_one_history_are_found() -> None:
    one = ReplicationMember(ServerRole.PRIMARY, "a" * 40, "", None, 5, None, [], None)  # type: ignore[arg-type]
    found = comparison(one, one._replace(offset=7))
    assert found is not None
    assert found.name is ReplicationProblemName.TWO_PRIMARIES


def test_what_a_user_may_not_ask_is_unknown_and_not_healthy(
    pair: Pair, kind: str, run_headwater: Run
) -> None:
    primary, _replica = pair
    for name, rights in (("eve", ["+ping"]), ("ann", ["+info", "+acl|whoami"])):
        primary.client.acl_setuser(name, enabled=True, nopass=True, commands=["-@all", *rights])
    eve, ann = (primary.url.replace("redis://", f"redis://{one}:x@") for one in ("eve", "ann"))
    # Then a user without INFO is told nothing
    printed = run_headwater("replicas", "--url", eve, status=3)
    assert "the server does not tell this user: its role and its replicas (INFO)" in printed
    # And one without CONFIG is told what Redis says in INFO, and that Headwater's requirements are unknown
    status = 3 if kind == "headwater" else 0
    printed = run_headwater("replicas", "--url", ann, status=status)
    assert "1 replica" in printed
    assert ("how many replicas it requires" in printed) == (kind == "headwater")


def test_an_embedded_store_says_that_it_has_no_replicas(tmp_path: Path, run_headwater: Run) -> None:
    url = f"headwater://{tmp_path / 'data'}"
    run_headwater("add", "s", "a=b", "--url", url)
    assert "an embedded store has no replicas" in run_headwater("replicas", "--url", url)
    (document,) = json.loads(run_headwater("replicas", "--url", url, "-o", "json"))
    assert document["role"] == "embedded"


def scraped(url: str) -> dict[str, float]:
    """The samples of a scrape: name with its labels → value."""
    registry = CollectorRegistry()
    registry.register(StoreCollector(lambda asked: query(url, asked)))
    lines = generate_latest(registry).decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if not line.startswith("#")
    }


def test_replicas_and_links_have_their_metrics(pair: Pair) -> None:
    # Given a primary and a replica
    primary, replica = pair
    eventually(lambda: primary.seen().replicas[0].behind_bytes == 0, "it acknowledges")
    host, port = replica.address.split(":")
    labels = f'{{slave_ip="{host}",slave_port="{port}",slave_state="online"}}'
    found = scraped(primary.url)
    assert found["redis_connected_slaves"] == 1
    assert found[f"headwater_replica_behind_bytes{labels}"] >= 0
    assert found[f"redis_connected_slave_lag_seconds{labels}"] <= 10
    offset = found[f"redis_connected_slave_offset_bytes{labels}"]
    assert offset <= found["redis_master_repl_offset"]
    assert not [name for name in found if name.startswith("redis_master_link")]
    # Then the replica has those of its link
    host, port = primary.address.split(":")
    labels = f'{{master_host="{host}",master_port="{port}"}}'
    found = scraped(replica.url)
    assert found[f"redis_master_link_up{labels}"] == 1
    assert found[f"redis_master_sync_in_progress{labels}"] == 0
    assert found[f"headwater_primary_link_down_seconds{labels}"] == 0
    # And when the primary is gone, they say so
    primary.server.kill()
    eventually(lambda: (replica.seen().link or 0).down_s, "a second passes")  # type: ignore[union-attr]
    found = scraped(replica.url)
    assert found[f"redis_master_link_up{labels}"] == 0
    assert found[f"headwater_primary_link_down_seconds{labels}"] >= 1
    assert f"redis_master_last_io_seconds_ago{labels}" not in found


@pytest.mark.parametrize("kind", ["headwater", "redis-8.2", "valkey-9.1"], indirect=True)
def test_a_replica_with_the_rights_of_one_follows(
    start: Start, kind: str, run_headwater: Run
) -> None:
    # Given a primary without a default user, and a user with the rights of a replica
    words = ["acl", "replica", *([] if kind == "headwater" else ["--redis"])]
    primary, replica = start(), start()
    primary.client.xadd("s", {"n": 1})
    primary.client.execute_command(*run_headwater(*words).replace("PASSWORD", "pw").split())
    primary.client.acl_setuser("admin", enabled=True, nopass=True, keys="*", commands=["+@all"])
    url = primary.url.replace("redis://", "redis://admin:x@")
    with redis.Redis.from_url(url) as admin:
        admin.acl_setuser("default", enabled=False)
        # When another server logs in as that user
        replica.client.config_set("masteruser", "replica")
        replica.client.config_set("masterauth", "pw")
        replica.client.execute_command("REPLICAOF", "127.0.0.1", primary.server.port)
        eventually(lambda: _up(replica), "it follows")
        # Then it has everything, and nothing was denied
        eventually(lambda: replica.client.xlen("s") == 1, "it has the entry")
        assert admin.acl_log() == []
        # And with another password it says why the link is down
        replica.client.config_set("masterauth", "wrong")
        admin.client_kill_filter(_type="replica")
        eventually(lambda: not _up(replica), "the link is down")
    assert "primary gone" in run_headwater("replicas", "--url", replica.url, status=3)


def _up(replica: Server) -> bool:
    link = replica.seen().link
    return link is not None and link.state is LinkState.UP
