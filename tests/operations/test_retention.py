"""What images replace is kept for `journal-retention`: histories and restores reach back that far, and disk space returns."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import headwater
from headwater.common.model import StreamID
from headwater.errors import ConfigError, StoreInUse, StoreUnusable
from headwater.journal.disk.files import DiskFiles
from headwater.persistence.backup import back_up
from headwater.persistence.checking import check_store
from headwater.persistence.history import What, entry_history
from headwater.testing.server import ServerProcess, server_process
from tests.waiting import eventually

pytestmark = pytest.mark.slow

Run = Callable[..., str]

STORED = ("--stream-hot-bytes", "64kb", "--save", "")


def pasts(server: ServerProcess) -> list[str]:
    return sorted(path.name for path in server.data.glob("manifest-*"))


def now_ms(client: redis.Redis) -> int:
    now: Any = client.time()
    return int(now[0] * 1000 + now[1] // 1000)


def write_image(client: redis.Redis) -> None:
    before: Any = client.info("persistence")
    client.bgrewriteaof()
    eventually(lambda: _images(client) > before["rdb_saves"], "an image is written")


def _images(client: redis.Redis) -> int:
    info: Any = client.info("persistence")
    return 0 if info["aof_rewrite_in_progress"] else int(info["rdb_saves"])


def add_many(client: redis.Redis, first: int, last: int) -> None:
    pipe = client.pipeline(transaction=False)
    for n in range(first, last):
        pipe.xadd("s", {"n": n, "text": "x" * 150}, id=f"{n}-1")
    pipe.execute()


@pytest.fixture
def kept() -> Iterator[tuple[ServerProcess, redis.Redis, list[int]]]:
    """A server with a retention, three images, and a stream that was larger than memory and is trimmed; and the times
    before each image."""
    with (
        server_process("--journal-retention", "1h", *STORED) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        times = []
        for number in range(3):
            add_many(client, number * 4_000 + 1, number * 4_000 + 4_001)
            times.append(now_ms(client))
            time.sleep(0.005)
            client.xtrim("s", minid=f"{number * 4_000 + 3_000}-0", approximate=False)
            write_image(client)
        yield server, client, times


Kept = tuple[ServerProcess, redis.Redis, list[int]]


def test_a_restore_reaches_back_beyond_the_last_image(
    kept: Kept, tmp_path: Path, run_headwater: Run
) -> None:
    # Given a store with three images, each of which has replaced the one before
    server, client, times = kept
    assert len(pasts(server)) == 3
    for number, at_ms in enumerate(times):
        # When it is restored as it was before each image, while the server runs
        target = tmp_path / str(number)
        run_headwater("restore", str(server.data), "--to", str(target), "--at", str(at_ms))
        # Then the copy is whole, with the entries of that moment, which were trimmed since
        assert check_store(DiskFiles(target)).healthy
        with headwater.connect(f"headwater://{target}") as copy:
            first, last = number * 4_000 + 1, number * 4_000 + 4_000
            assert copy.xrevrange("s", count=1)[0][0] == f"{last}-1".encode()
            assert len(copy.xrange("s", first, last)) == 4_000
            copy.xadd("s", {"more": 1})
    # And the running store is as it was
    assert client.xlen("s") == 1_001


def test_a_store_is_opened_as_it_was_at_a_moment(kept: Kept) -> None:
    server, _client, times = kept
    # Given a server that uses the directory, then it cannot be opened
    url = f"headwater://{server.data}?at={times[1]}"
    with pytest.raises(StoreInUse):
        headwater.connect(url)
    server.stop()

    # When nobody uses it, then it is read as it was
    names = sorted(path.name for path in server.data.iterdir())
    with headwater.connect(url) as past:
        assert past.xrevrange("s", count=1)[0][0] == b"8000-1"
        assert past.xrange("s", "5000-1", "5000-1")[0][1][b"n"] == b"5000"
        assert past.time()[0] == times[1] // 1000
        # without waiting, or changing anything
        assert past.xread({"s": "$"}, block=60_000) == []
        with pytest.raises(redis.ReadOnlyError, match="this is the store as it was"):
            past.xadd("s", {"n": 1})
        with pytest.raises(redis.ReadOnlyError):
            past.delete("s")
        with pytest.raises(redis.ReadOnlyError):
            past.flushall()
        pipe = past.pipeline(transaction=True)
        pipe.set("k", 1)
        with pytest.raises(redis.ResponseError, match="READONLY"):
            pipe.execute()
    assert sorted(path.name for path in server.data.iterdir()) == names

    # And other moments are errors
    with pytest.raises(StoreUnusable, match="there is no directory"):
        headwater.connect(f"headwater://{server.data}x?at=5")
    for query, said in (
        ("at=soon", "is not a time"),
        ("at=2026-11-23T09:30:00", "no time zone"),
        ("at=999999999999999", "after the year 9999"),
    ):
        with pytest.raises(ConfigError, match=said):
            headwater.connect(f"headwater://{server.data}?{query}")
    server.start()


def test_a_history_reaches_back_beyond_the_last_image(kept: Kept) -> None:
    # Given entries that were added before the first image, delivered before the second, and trimmed
    server, client, _times = kept
    client.xadd("t", {"n": 1}, id="1-1")
    client.xgroup_create("t", "g", "0")
    write_image(client)
    client.xreadgroup("g", "c", {"t": ">"})
    write_image(client)
    client.xack("t", "g", "1-1")
    client.xdel("t", "1-1")
    write_image(client)

    # When their histories are read, then they have all of it
    history = entry_history(DiskFiles(server.data), b"t", StreamID(1, 1))
    whats = [one.what for one in history.events]
    assert whats == [What.ADDED, What.DELIVERED, What.ACKNOWLEDGED, What.DELETED]
    assert history.begins_ms is None
    trimmed = entry_history(DiskFiles(server.data), b"s", StreamID(17, 1))
    assert [one.what for one in trimmed.events] == [What.ADDED, What.TRIMMED]


def test_what_is_too_old_is_removed_with_the_next_image(kept: Kept) -> None:
    # Given kept images, journal files and segments, of which no entry is left
    server, client, _times = kept
    server.stop()
    server.start()
    client.xtrim("s", maxlen=0, approximate=False)
    write_image(client)
    segments = set(server.data.glob("segment-*"))
    images = set(server.data.glob("image-*"))
    assert len(images) >= 4
    assert segments

    # When everything that is kept is older than the retention
    client.config_set("journal-retention", "1s")
    time.sleep(1.1)
    client.xadd("s", {"n": 1})
    write_image(client)

    # Then the last image before that time is kept, and nothing older
    eventually(lambda: len(pasts(server)) == 1)
    assert len(set(server.data.glob("image-*")) & images) == 1
    # And without a retention the next image removes that, too
    client.config_set("journal-retention", 0)
    client.xadd("s", {"n": 1})
    write_image(client)
    eventually(lambda: pasts(server) == [])
    eventually(lambda: len(list(server.data.glob("image-*"))) == 1)
    eventually(lambda: not set(server.data.glob("segment-*")) & segments)
    assert not (server.data / "unneeded").exists()


def test_a_start_with_another_setting_removes_nothing_that_is_kept(
    kept: Kept, tmp_path: Path
) -> None:
    server, _client, times = kept
    server.stop()
    before = {path.name for path in server.data.iterdir() if path.name[-1].isdigit()}
    # When the directory is opened once without a retention
    with headwater.connect(f"headwater://{server.data}?auto-aof-rewrite-percentage=0") as client:
        client.xadd("s", {"n": 1})
    # Then everything is still there, and a moment can be read
    assert before <= {path.name for path in server.data.iterdir()}
    with headwater.connect(f"headwater://{server.data}?at={times[0]}") as past:
        assert past.xlen("s") == 4_000
    server.start()


def test_a_backup_has_no_more_than_the_store(kept: Kept, tmp_path: Path) -> None:
    server, client, _times = kept
    back_up(server.data, tmp_path / "copy")
    assert not list((tmp_path / "copy").glob("manifest-*"))
    assert len(list((tmp_path / "copy").glob("image-*"))) == 1
    with headwater.connect(f"headwater://{tmp_path / 'copy'}") as copy:
        assert copy.xlen("s") == client.xlen("s")


def test_the_disk_use_names_what_is_kept(kept: Kept, run_headwater: Run) -> None:
    server, _client, _times = kept
    used = {
        one["what"]: one
        for one in json.loads(run_headwater("store", str(server.data), "-o", "json"))
    }
    assert used["image"]["files"] == 1
    assert used["kept by journal-retention"]["files"] >= 5
    assert used["journal"]["bytes"] > 0
    text = run_headwater("store", str(server.data))
    assert text.splitlines()[0].split() == ["WHAT", "FILES", "BYTES"]
    assert text.splitlines()[-1].startswith("total")
    (stream,) = json.loads(run_headwater("store", str(server.data), "--streams", "-o", "json"))
    assert stream["stream"] == "s"
    assert stream["entries"] > 0
    assert "there is no directory" in run_headwater("store", f"{server.data}x", status=1)


def test_the_journal_is_listed_and_verified(kept: Kept, tmp_path: Path, run_headwater: Run) -> None:
    server, client, times = kept
    # Given a journal with a change of a known time
    began = now_ms(client)
    client.xadd("t", {"n": 1})
    ended = now_ms(client)
    # When it is listed
    words = ("journal", "dump", str(server.data), "--from", str(began), "--to", str(ended))
    groups = [json.loads(line) for line in run_headwater(*words, "-o", "json").splitlines()]
    # Then the change is there, with its facts
    assert {"stream created": 1, "appended": 1} in [one["facts"] for one in groups]
    assert "stream created, appended" in run_headwater(*words)
    # And what was kept from before the images
    limited = run_headwater("journal", "dump", str(server.data), "--limit", "1", "-o", "json")
    assert json.loads(limited)["at_ms"] <= times[0]
    # And verifying it reads all files
    parts = json.loads(run_headwater("journal", "verify", str(server.data), "-o", "json"))
    assert sum(one["groups"] for one in parts) >= 12_000
    # And finds damage in the image in use, and in the journal from before it
    for path in (max(server.data.glob("image-*")), server.data / parts[0]["file"]):
        copy = tmp_path / path.name
        shutil.copytree(server.data, copy)
        content = bytearray(path.read_bytes())
        content[min(1_000, len(content) // 2)] ^= 1
        (copy / path.name).write_bytes(content)
        output = run_headwater("journal", "verify", str(copy), status=1)
        assert f"{path.name} is damaged at offset" in output


def test_a_mistyped_retention_is_an_error() -> None:
    with server_process() as server, redis.Redis.from_url(server.url) as client:
        with pytest.raises(redis.ResponseError, match="argument must be a duration"):
            client.config_set("journal-retention", "7 weeks")
        client.config_set("journal-retention", "7d")
        assert client.config_get("journal-retention") == {"journal-retention": "604800"}
