"""Checkpoints of a real server: its helper process is killed, orphaned, of another version, or without space."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import redis

from headwater.journal.disk.files import DiskFiles
from headwater.journal.format.manifest import read_manifest
from headwater.journal.format.records import Synced
from headwater.journal.images.rotation import Rotation
from headwater.persistence.digest import source_digest
from headwater.persistence.helper import OTHER_SOURCES
from headwater.persistence.order import CheckpointFailed, CheckpointOrder
from headwater.persistence.process import HelperProcess
from headwater.testing.server import ServerProcess, server_process
from tests.alarms import alarms_in
from tests.waiting import eventually

pytestmark = pytest.mark.slow

ENTRIES = 20_000
STREAMS = 4


def client_of(server: ServerProcess) -> redis.Redis:
    """Return a client whose commands may last as long as a checkpoint."""
    return redis.Redis.from_url(server.url, decode_responses=True, socket_timeout=60)


def fill(client: redis.Redis) -> None:
    """Write entries to some streams, and read some of them in a group."""
    pipeline = client.pipeline(transaction=False)
    for number in range(ENTRIES):
        pipeline.xadd(f"s{number % STREAMS}", {"number": number, "text": "x" * (number % 97)})
    pipeline.xgroup_create("s0", "g", "0")
    pipeline.xreadgroup("g", "c", {"s0": ">"}, count=1000)
    pipeline.execute()


def content_of(client: redis.Redis) -> list[Any]:
    """Return all entries, and the pending ones."""
    streams = [client.xrange(f"s{number}") for number in range(STREAMS)]
    rows: Any = client.xpending_range("s0", "g", "-", "+", ENTRIES)
    return [streams, [(row["message_id"], row["consumer"], row["times_delivered"]) for row in rows]]


def is_idle(client: redis.Redis) -> bool:
    """Whether no checkpoint is requested or running."""
    running = "rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled"
    return not any(info_of(client, name) for name in running)


def info_of(client: redis.Redis, name: str) -> Any:
    """Return a field of INFO PERSISTENCE."""
    info: Any = client.info("persistence")
    return info[name]


def helpers_of(server: ServerProcess) -> list[int]:
    """Return the process ids of the server's helpers."""
    assert server.process is not None
    path = Path(f"/proc/{server.process.pid}/task")
    children = [task / "children" for task in path.iterdir()]
    return [int(one) for each in children for one in each.read_text().split()]


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """A server that must not give an alarm, whatever happens to its helpers and to itself."""
    with server_process("--appendfsync", "always") as server:
        yield server
        assert alarms_in(server.log()) == []


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_a_large_entry_is_there_after_a_checkpoint_and_a_restart(compression: str) -> None:
    # Given a server with an entry that is larger than a segment, and one after it
    value = "v" * 70_000_000
    with server_process("--stream-compression", compression) as server:
        with client_of(server) as client:
            client.xadd("s", {"value": value}, id="1-1")
            client.xadd("s", {"value": "small"}, id="2-1")
            assert eventually(lambda: is_idle(client))
            client.save()
        # When it is stopped after a checkpoint, and started again
        server.stop()
        server.start()
        # Then both are there
        with client_of(server) as client:
            found: Any = client.xrange("s")
            assert [(entry_id, len(fields["value"])) for entry_id, fields in found] == [
                ("1-1", len(value)),
                ("2-1", 5),
            ]


def test_a_start_after_a_checkpoint_has_everything_and_fewer_files(server: ServerProcess) -> None:
    # Given a store whose journal was replaced by an image, and that was written to afterwards
    client = client_of(server)
    fill(client)
    assert client.save()
    client.xadd("s0", {"after": "the image"})
    before = content_of(client)
    server.kill()
    names = sorted(path.name for path in server.data.iterdir())
    assert "journal-000001" not in names
    assert "image-000001" in names
    # When it is started again, then nothing is missing
    server.start()
    assert content_of(client_of(server)) == before


def test_a_killed_helper_costs_only_the_image(server: ServerProcess) -> None:
    # Given a server whose helper runs
    client = client_of(server)
    fill(client)
    before = content_of(client)
    assert client.bgrewriteaof()
    eventually(lambda: helpers_of(server) or is_idle(client))
    # When the helper is killed
    for process in helpers_of(server):
        os.kill(process, signal.SIGKILL)
    eventually(lambda: is_idle(client))
    # Then the server says so, goes on, and the next checkpoint succeeds
    info: Any = client.info("persistence")
    assert info["aof_last_bgrewrite_status"] in {"err", "ok"}
    assert content_of(client) == before
    assert client.save()
    info = client.info("persistence")
    assert info["rdb_last_bgsave_status"] == "ok"


def test_killed_helpers_leave_no_files(server: ServerProcess) -> None:
    # Given a store that is written to, and helpers that are killed one after the other
    client = client_of(server)
    fill(client)
    filled = len(list(server.data.glob("journal-*")))
    for number in range(4):
        client.xadd("s0", {"number": number})
        assert client.bgrewriteaof()
        (helper,) = eventually(lambda: helpers_of(server))
        os.kill(helper, signal.SIGKILL)
        eventually(lambda: is_idle(client))
    # Then no unfinished image is left, and a closed journal file takes the space of its records
    assert not list(server.data.glob("image-*"))
    closed = sorted(server.data.glob("journal-*"))[filled:-2]
    assert closed
    assert all(path.stat().st_size < 10_000 for path in closed)


def test_damage_that_a_checkpoint_finds_costs_nothing() -> None:
    with server_process("--appendfsync", "always") as server:
        damage_and_save(server)
        # And it was said
        assert any("would be refused" in line for line in alarms_in(server.log()))


def damage_and_save(server: ServerProcess) -> None:
    # Given a server, a byte of whose journal changes on the disk
    client = client_of(server)
    fill(client)
    before = content_of(client)
    with (server.data / "journal-000001").open("r+b") as file:
        file.seek(5000)
        found = file.read(1)
        file.seek(5000)
        file.write(bytes([found[0] ^ 4]))
    # When a checkpoint finds the damage
    assert client.bgrewriteaof()
    eventually(lambda: is_idle(client))
    assert info_of(client, "aof_last_bgrewrite_status") == "err"
    # Then the state in memory is complete, and a clean stop saves it
    assert content_of(client) == before
    server.stop()
    server.start()
    assert content_of(client_of(server)) == before


def test_small_limits_begin_no_checkpoint_in_each_turn() -> None:
    # Given triggers without a least size
    flags = ("--auto-aof-rewrite-min-size", "0", "--auto-aof-rewrite-percentage", "1")
    with server_process("--appendfsync", "always", *flags) as server:
        client = client_of(server)
        client.set("key", "value")
        assert client.save()
        # When a client sends a few commands, then no other checkpoint begins
        for _ in range(30):
            client.ping()
            client.set("key", "value")
        assert is_idle(client)
        assert info_of(client, "rdb_saves") == 1


def test_a_scheduled_checkpoint_runs_although_the_one_before_it_failed(
    server: ServerProcess,
) -> None:
    # Given a checkpoint that runs, and a second one that is scheduled
    client = client_of(server)
    fill(client)
    assert client.bgrewriteaof()
    (helper,) = eventually(lambda: helpers_of(server))
    os.kill(helper, signal.SIGSTOP)
    assert client.bgsave(schedule=True)
    # When the first one fails
    os.kill(helper, signal.SIGKILL)
    # Then the second one runs
    eventually(lambda: is_idle(client) and info_of(client, "rdb_saves") == 1)
    assert info_of(client, "aof_last_bgrewrite_status") == "ok"


def test_a_checkpoint_that_failed_is_tried_again_by_an_idle_server() -> None:
    # Given a server whose helper was killed, and that gets no commands any more
    with server_process() as server, client_of(server) as client:
        fill(client)
        client.config_set("auto-aof-rewrite-min-size", "1mb")  # begins a checkpoint, and only now
        eventually(lambda: helpers_of(server))
        for process in helpers_of(server):
            os.kill(process, signal.SIGKILL)
        assert not list(server.data.glob("image-*"))
        # When time passes, then the checkpoint is written
        eventually(lambda: list(server.data.glob("image-*")))


@pytest.mark.parametrize("seed", range(4))
def test_a_server_killed_during_a_checkpoint_loses_nothing(
    seed: int, server: ServerProcess
) -> None:
    # Given a server that is killed at a random moment of a checkpoint; its helper may live on
    random = Random(seed)
    client = client_of(server)
    fill(client)
    assert client.bgrewriteaof()
    for _ in range(
        random.randrange(2000)
    ):  # any moment is a case: of the helper's start, work or end
        client.xadd("s1", {"last": "answered"})
    before = content_of(client)
    server.kill()
    # When it is started again, then it has everything, and no file is left over
    server.start()
    assert content_of(client_of(server)) == before
    manifest = read_manifest(DiskFiles(server.data))
    assert manifest is not None
    named = {f"image-{manifest.image.number:06d}"} if manifest.image else set()
    assert {path.name for path in server.data.glob("image-*")} == named
    assert not list(server.data.glob("*.new"))


def test_flushall_during_a_checkpoint_leaves_nothing_behind(server: ServerProcess) -> None:
    client = client_of(server)
    fill(client)
    # Given a checkpoint that began before FLUSHALL
    assert client.bgrewriteaof()
    client.flushall()
    client.set("after", "flush")
    eventually(lambda: is_idle(client))
    server.kill()
    # When the store is started again, then it is as FLUSHALL left it
    server.start()
    assert client_of(server).keys() == ["after"]


def test_checkpoints_of_an_idle_store_change_nothing(server: ServerProcess) -> None:
    client = client_of(server)
    client.set("a", "b")
    for _ in range(3):
        assert client.save()
    info: Any = client.info("persistence")
    assert info["rdb_saves"] == 3
    assert info["rdb_changes_since_last_save"] == 0
    server.kill()
    server.start()
    assert client_of(server).get("a") == "b"


def order_for(directory: Path, *, digest: str) -> CheckpointOrder:
    """Return an order for an empty store."""
    rotation = Rotation(1, 1, 1, Synced(0, 0), 0, 0, 0)
    return CheckpointOrder(str(directory), digest, 5, None, rotation, 0, "none")


def test_a_helper_of_another_version_refuses(tmp_path: Path) -> None:
    # Given an order of a server that has loaded other sources
    helper = HelperProcess(order_for(tmp_path, digest="0" * 64))
    # When the helper reads it, then it refuses and writes nothing
    with pytest.raises(CheckpointFailed, match="has changed on disk"):
        helper.wait()
    assert OTHER_SOURCES
    assert list(tmp_path.iterdir()) == []


def test_a_helper_without_a_server_ends(tmp_path: Path) -> None:
    # Given a helper that waits for the lock of images, and whose server is gone
    files = DiskFiles(tmp_path)
    files.lock_images()
    helper = HelperProcess(order_for(tmp_path, digest=source_digest()))
    assert helper._process.stdin is not None
    helper._process.stdin.close()
    # Then it ends without having written anything
    assert helper._process.wait(timeout=30) == 1
    helper._close()
    files.unlock()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.lock"]


def test_after_a_checkpoint_that_began_by_itself_reads_begin_none(server: ServerProcess) -> None:
    # Given a server whose journal has grown so much that it wrote an image
    client = client_of(server)
    client.config_set("auto-aof-rewrite-percentage", 0)
    fill(client)
    client.config_set("auto-aof-rewrite-min-size", "64kb")
    client.config_set("auto-aof-rewrite-percentage", 100)
    images = partial(info_of, client, "aof_rewrites")
    eventually(images)
    # When clients only read
    for _ in range(20):
        client.xlen("s0")
        # Then no other image is begun, because the journal has not grown since
        assert is_idle(client)
    assert images() == 1
