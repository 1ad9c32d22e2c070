"""A backup of a store in use starts and is whole; a store can be restored as it was at a moment."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import headwater
from headwater.errors import StoreInUse, StoreUnusable
from headwater.journal.disk.files import DiskFiles
from headwater.journal.disk.locks import BACKUP_LOCK_NAME, held_for_backup
from headwater.persistence.backup import back_up, restore_at
from headwater.persistence.checking import check_store
from headwater.testing.server import ServerProcess, server_process
from tests.samples import sampled
from tests.waiting import eventually

pytestmark = pytest.mark.slow

Run = Callable[..., str]

STORED = ("--stream-hot-bytes", "64kb", "--save", "")


@contextlib.contextmanager
def load(server: ServerProcess) -> Iterator[list[int]]:
    """Add entries to stream ``s``, trim it, and write images, until the context ends. The list has the number of the
    last entry that was acknowledged."""
    written, ended = [0], threading.Event()

    def write() -> None:
        with redis.Redis.from_url(server.url) as client:
            while not ended.is_set():
                pipe = client.pipeline(transaction=False)
                for n in range(written[0] + 1, written[0] + 51):
                    pipe.xadd(
                        "s",
                        {"n": n, "text": "x" * 150},
                        id=f"{n}-0",
                        maxlen=5_000,
                        approximate=False,
                    )
                pipe.execute()
                written[0] += 50

    def checkpoint() -> None:
        with redis.Redis.from_url(server.url) as client:
            while not ended.wait(0.05):
                with contextlib.suppress(redis.ResponseError):  # one is being written
                    client.bgrewriteaof()

    threads = [threading.Thread(target=write), threading.Thread(target=checkpoint)]
    for one in threads:
        one.start()
    try:
        yield written
    finally:
        ended.set()
        for one in threads:
            one.join()


@pytest.mark.parametrize("backups", [4, pytest.param(sampled(40), marks=pytest.mark.slice)])
def test_backups_under_load_start_and_are_whole(tmp_path: Path, backups: int) -> None:
    # Given a server with a stream larger than stream-hot-bytes, under load, that writes images all the time
    with (
        server_process(*STORED) as server,
        load(server) as written,
    ):
        while written[0] < 10_000:
            time.sleep(0.01)
        for number in range(backups):
            # When it is backed up
            before = written[0]
            copy = tmp_path / f"copy-{number}"
            back_up(server.data, copy)
            after = written[0] + 50
            # Then the copy is whole, and has everything that was acknowledged before
            assert check_store(DiskFiles(copy)).healthy
            with headwater.connect(f"headwater://{copy}") as client:
                ((last, _fields),) = client.xrevrange("s", count=1)
                assert before <= int(last.split(b"-")[0]) <= after
                assert client.xlen("s") == 5_000


def _persistence(client: redis.Redis) -> dict[str, Any]:
    info: dict[str, Any] = client.info("persistence")
    return info


def test_backups_are_whole_while_segments_are_compacted(tmp_path: Path) -> None:
    # Given a store on disk of which most entries are deleted, so that its segments are compacted
    chance = random.Random(7)
    with server_process(*STORED) as server, redis.Redis.from_url(server.url) as client:
        pipe = client.pipeline(transaction=False)
        for n in range(1, 12_001):
            pipe.xadd("s", {"n": n, "text": chance.randbytes(4_000)}, id=f"{n}-0")
            if n % 500 == 0:
                pipe.execute()
        while _persistence(client)["segment_live_bytes"] < 47_000_000:  # less is not worth it
            time.sleep(0.01)
        server.stop()  # the segment that is being written is never compacted
        server.start()
        kept = [n for n in range(1, 12_001) if n // 100 % 5 == 0]
        gone = sorted(set(range(1, 12_001)) - set(kept))
        for first in range(0, len(gone), 500):
            client.xdel("s", *(f"{n}-0" for n in gone[first : first + 500]))

        # When it is backed up until something was compacted
        copies, compacted = 0, False
        deadline = time.monotonic() + 60
        while copies < 3 or not compacted:
            assert time.monotonic() < deadline
            with contextlib.suppress(redis.ResponseError):  # one is being written
                client.bgrewriteaof()
            copy = tmp_path / f"copy-{copies}"
            back_up(server.data, copy)
            copies += 1
            # Then the copy is whole
            assert check_store(DiskFiles(copy)).healthy
            with headwater.connect(f"headwater://{copy}") as past:
                assert past.xlen("s") == len(kept)
            compacted = _persistence(client)["segment_moved_bytes"] > 0


def test_a_backup_is_opened_by_one_process_at_a_time(tmp_path: Path) -> None:
    with server_process() as server:
        with redis.Redis.from_url(server.url) as client:
            client.xadd("s", {"n": 1})
        copy = tmp_path / "data"
        back_up(server.data, copy)
        # Given a server on the backup, and one on its origin
        with server_process(directory=tmp_path) as other:
            assert other.data == copy
            # When it is opened a second time, then that is refused, and both go on
            with pytest.raises(StoreInUse, match="is in use by process"):
                headwater.connect(f"headwater://{copy}")
            for one in (server, other):
                with redis.Redis.from_url(one.url) as client:
                    client.xadd("s", {"n": 2})
                    assert client.xlen("s") == 2


def test_a_copy_has_a_history_of_its_own(tmp_path: Path) -> None:
    # Given a store, stopped cleanly, and a copy
    with headwater.connect(f"headwater://{tmp_path}/store") as client:
        client.xadd("s", {"n": 1})
        original = client.info("replication")
    back_up(tmp_path / "store", tmp_path / "copy")
    # When both are opened
    with (
        headwater.connect(f"headwater://{tmp_path}/store") as client,
        headwater.connect(f"headwater://{tmp_path}/copy") as copied,
    ):
        again, copy = client.info("replication"), copied.info("replication")
    # Then only the original has the history of before
    assert again["master_replid"] == original["master_replid"] != copy["master_replid"]
    # And each is at the offset of before
    offset = original["master_repl_offset"]
    assert again["master_repl_offset"] == copy["master_repl_offset"] == offset > 0


def test_nothing_is_removed_while_a_backup_is_made(tmp_path: Path) -> None:
    # Given a store whose image is replaced while a backup holds it
    with server_process(*STORED) as server:
        with redis.Redis.from_url(server.url) as client:
            client.xadd("s", {"n": 1})
            client.save()
            (image,) = server.data.glob("image-*")
            with held_for_backup(str(server.data / BACKUP_LOCK_NAME)):
                client.xadd("s", {"n": 2})
                client.save()
                assert image.exists()
            # Then the former image is removed with the next one
            client.xadd("s", {"n": 3})
            client.save()
            eventually(lambda: not image.exists())


def test_a_store_is_restored_as_it_was_at_a_moment(tmp_path: Path, run_headwater: Run) -> None:
    # Given a store with an image, and 200 changes after it, each of its own millisecond
    states: list[tuple[int, list[bytes]]] = []
    with server_process("--appendfsync", "always") as server:
        with redis.Redis.from_url(server.url) as client:
            client.xadd("s", {"n": 0})
            client.save()
            for n in range(200):
                client.xadd("s", {"n": n})
                if n % 3 == 2:
                    client.xtrim("s", maxlen=n // 3, approximate=False)
                now: Any = client.time()
                entries: Any = client.xrange("s")
                states.append((now[0] * 1000 + now[1] // 1000, [one[0] for one in entries]))
                time.sleep(0.003)
            # When it is restored as it was after some of them, while the server runs
            for at_ms, entries in states[5::40]:
                target = tmp_path / f"at-{at_ms}"
                moment = restore_at(server.data, target, at_ms)
                # Then it has the state of that moment, and works
                assert moment.at_ms <= at_ms
                assert check_store(DiskFiles(target)).healthy
                with headwater.connect(f"headwater://{target}") as copy:
                    assert [one[0] for one in copy.xrange("s")] == entries
                    copy.xadd("s", {"more": 1})
                with headwater.connect(f"headwater://{target}") as copy:
                    assert copy.xlen("s") == len(entries) + 1
        # And the command does the same
        output = run_headwater(
            *("restore", str(server.data), "--to", str(tmp_path / "new"), "--at", str(states[9][0]))
        )
        assert "later changes are left out" in output
        with headwater.connect(f"headwater://{tmp_path / 'new'}") as copy:
            assert [one[0] for one in copy.xrange("s")] == states[9][1]


def test_a_moment_before_the_store_began_is_refused(tmp_path: Path, run_headwater: Run) -> None:
    # Given a store that has all its changes
    with server_process() as server:
        with redis.Redis.from_url(server.url) as client:
            client.xadd("s", {"n": 1})
        words = ("restore", str(server.data), "--to", str(tmp_path / "new"), "--at")
        # When it is to be restored to a moment before the first one
        said = run_headwater(*words, "2018-05-17T15:00:00Z", status=1)
        # Then the error says when it began, and nothing is left behind
        assert "the store begins at 20" in said
        assert "at 2018-05-17T15:00:00.000Z it did not exist yet" in said
        assert not (tmp_path / "new").exists()
        assert "0 later changes" in run_headwater(*words, "now")


def test_mistakes_are_errors_that_change_nothing(tmp_path: Path, run_headwater: Run) -> None:
    with server_process() as server:
        with redis.Redis.from_url(server.url) as client:
            client.xadd("s", {"n": 1})
            client.save()
        data, copy = str(server.data), str(tmp_path / "copy")
        assert "files" in run_headwater("backup", data, copy)
        assert "is not an empty directory" in run_headwater("backup", data, copy, status=1)
        assert "there is no directory" in run_headwater("backup", f"{data}x", f"{copy}2", status=1)
        for at, said, status in (
            ("yesterday", "is not a time", 2),
            ("2026-11-23T09:30:00", "has no time zone", 2),
            ("2018-05-17T15:00:00Z", "Use an earlier backup", 1),
        ):
            words = ("restore", data, "--to", str(tmp_path / f"at-{len(at)}"), "--at", at)
            assert said in run_headwater(*words, status=status)
            assert not (tmp_path / f"at-{len(at)}").exists()  # nothing is copied in vain
        with pytest.raises(StoreUnusable, match="no store was ever started"):
            (tmp_path / "empty").mkdir()
            back_up(tmp_path / "empty", tmp_path / "copy3")
