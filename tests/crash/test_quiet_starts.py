"""A healthy store says nothing alarming at any start, and no tool finds anything wrong with it, whatever was done to its
keys and whenever it was killed (`tests.alarms`)."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
import redis

import headwater
from headwater.common import limits
from headwater.config.config import Config
from headwater.errors import HeadwaterError
from headwater.journal.images.retention import oldest_past
from headwater.persistence.checking import check_store
from headwater.persistence.reading import StoreReader
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from headwater.testing.node import LocalClient, LocalStore, Word
from headwater.testing.server import ServerProcess, server_process
from tests.alarms import alarms_in, listening
from tests.crash.node_campaign import recovered
from tests.crash.node_store import (
    HelpedCheckpoint,
    SmallFiles,
    checkpoint_now,
    compact,
    tiny_segments,
)
from tests.waiting import eventually

KEYS = ("a", "b", "c", "d")
COMMANDS: tuple[tuple[Word, ...], ...] = (
    ("COPY", "a", "b", "REPLACE"),
    ("COPY", "b", "c", "REPLACE"),
    ("COPY", "a", "d", "DB", "1", "REPLACE"),
    ("DEL", "a"),
    ("DEL", "b", "c"),
    ("RENAME", "a", "b"),
    ("RENAME", "c", "a"),
    ("SWAPDB", "0", "1"),
    ("MOVE", "a", "1"),
    ("FLUSHDB",),
    ("FLUSHALL",),
    ("XTRIM", "a", "MAXLEN", "5"),
    ("XTRIM", "b", "MAXLEN", "0"),
    ("SET", "c", "not a stream"),
    ("PEXPIRE", "a", "1"),
    ("XSETID", "b", "999999-0"),
)
BLOCKS = (90, 160, 400)
"""Sizes of blocks. A start with another size cuts them at other entries than the store before."""


def act(random: Random, client: LocalClient, number: int) -> int:
    """Send a random command, or some XADD. Return the number of the last entry."""
    key, draw = random.choice(KEYS), random.random()
    if draw < 0.6:
        for _ in range(random.choice((1, 5, 20))):
            number += 1
            client("XADD", key, f"{number}-1", "field", "x" * random.randrange(60))
    elif draw < 0.7:
        ids = [f"{random.randrange(1, number + 2)}-1" for _ in range(random.choice((1, 10)))]
        client("XDEL", key, *ids)
    elif draw < 0.75:
        dumped = client("DUMP", key)
        if isinstance(dumped, bytes):
            client("RESTORE", random.choice(KEYS), "0", dumped, "REPLACE")
    else:
        client(*random.choice(COMMANDS))
    return number


def quiet_history(seed: int, *, steps: int = 60) -> list[str]:
    """Run a random history of a store whose entries go to disk, with checkpoints, compactions and crashes. Return every
    alarm, and what a check of the files finds after each crash."""
    random, number, running = Random(seed), 0, None
    found: list[str] = []
    config = Config(port=0, journal_retention=random.choice((0, 60)))
    store = SmallFiles(clock=ManualClock(), cold=True, config=config)
    client = store.client()
    for step in range(steps):
        number = act(random, client, number)
        store.use_disk()
        store.clock.advance(random.choice((0.001, 30.0)))
        draw = random.random()
        if draw < 0.1 and running is None:
            running = HelpedCheckpoint(store)
        elif draw < 0.2 and running is not None:
            running.build()
            running.end()
            running = None
            compact(store)
        elif draw < 0.25 and running is None:
            checkpoint_now(store)
        elif draw < 0.45 or step == steps - 1:
            running = None
            limits.BLOCK_MAX_BYTES = random.choice(BLOCKS)
            found += [f"step {step}: {what}" for what in checked(stopped(store, random))]
            store.node = store._open()
            client = store.client()
    return found


def stopped(store: SmallFiles, random: Random) -> CrashableFiles:
    """End the store, by a crash or a clean stop. Return its files, from which it is opened again."""
    assert store.files is not None
    if random.random() < 0.3:
        assert store.node.journal is not None
        store.node.journal.close()
    else:
        (store.files,) = store.files.crash_images(seed=random.randrange(2**32), count=1)
    return store.files


def checked(files: CrashableFiles) -> list[str]:
    """Return what a check and a read of each past find."""
    check = check_store(files)
    found = [] if check.healthy else [str(check)]
    try:
        (image,) = files.crash_images(seed=0, count=1)
        recovered(image, all_pasts=True)
    except (HeadwaterError, AssertionError) as error:
        found.append(str(error))
    return found + alarms_in("\n".join(check.notes))


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 30))]
)
def test_a_healthy_store_gives_no_alarm_whatever_was_done_to_its_keys(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a store with tiny blocks on disk, whose keys are copied, replaced, moved and deleted
    tiny_segments(monkeypatch)
    # When it crashes again and again
    with listening() as heard:
        found = quiet_history(seed)
    # Then no start says that anything is damaged, and no check finds anything
    assert found == []
    assert heard == []


@pytest.mark.parametrize("clean", [True, False])
def test_starts_without_a_write_leave_every_past_readable(*, clean: bool) -> None:
    # Given a store that keeps what its image replaced
    store = LocalStore(config=Config(port=0, journal_retention=60))
    client = store.client()
    client("XADD", "s", "1-1", "field", "x")
    checkpoint_now(store)
    # When it is started and stopped without a write in between
    assert store.files is not None
    for _ in range(3):
        if clean:
            assert store.node.journal is not None
            store.node.journal.close()
        store.crash()
    store.client()("XADD", "s", "2-1", "field", "x")
    # Then no past is damaged
    with listening() as heard:
        (image,) = store.files.crash_images(seed=0, count=1)
        past = oldest_past(image)
        assert past is not None
        assert past.image is None
        reader = StoreReader(image, past=past)
        reader.apply_image()
        for batch in reader.of_journal():
            reader.applying.apply(batch)
    assert [stream.length for stream in reader.applying.finish().streams.values()] == [2]
    assert heard == []


def check(server: ServerProcess, *command: str) -> str:
    """Return what a command of ``headwater`` prints about the server's directory."""
    words = [sys.executable, "-m", "headwater", *command, str(server.data)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("removal", ["DEL", "FLUSHALL", "SET"])
def test_a_store_that_is_killed_after_its_entries_on_disk_were_deleted_starts_quietly(
    removal: str,
) -> None:
    # Given a server with entries on disk, of streams that are copied, and then removed
    flags = ("--stream-hot-bytes", "64kb", "--auto-aof-rewrite-percentage", "0")
    with server_process("--appendfsync", "always", *flags) as server:
        client = redis.Redis.from_url(server.url, decode_responses=True)
        for part in range(3):
            for key in ("a", "b"):
                pipeline = client.pipeline(transaction=False)
                for number in range(2500):
                    pipeline.xadd(key, {"number": number, "text": f"{part}{number * 7919}" * 20})
                pipeline.execute()
            client.copy("a", "copy", replace=True)
        eventually(lambda: stored_bytes(client) > 1_000_000)
        client.copy("b", "other")
        length, at = client.xlen("a"), datetime.now(UTC)
        time.sleep(0.01)  # the next change has a later time
        if removal == "FLUSHALL":
            client.flushall()
        for key in ("a", "b", "copy", "other"):
            client.set(key, "x") if removal == "SET" else client.delete(key)
        # When it is killed and started again and again
        for _ in range(3):
            server.kill()
            # Then no tool finds anything
            assert alarms_in(check(server, "check")) == []
            assert check(server, "check").count("\n") == 2
            assert alarms_in(check(server, "journal", "verify")) == []
            # And the time before the removal can be read
            moment = at.isoformat().replace("+00:00", "Z")
            with headwater.connect(f"headwater://{server.data}?at={moment}") as past:
                assert len(past.xrange("a")) == length
            server.start()
        # And no start has said anything
        assert alarms_in(server.log()) == []
        assert "WARNING" not in server.log()


def stored_bytes(client: redis.Redis) -> int:
    """Return the size of the entries on disk."""
    info: Any = client.info("memory")
    size: int = info["stream_stored_entries_bytes"]
    return size


@pytest.mark.parametrize(
    ("line", "alarm"),
    [
        ("2026-11-29 10:00:00,000 WARNING journal: journal-000001 is damaged", True),
        ("2026-11-29 10:00:00,000 WARNING Restore the file from a backup.", True),
        ("2026-11-29 10:00:00,000 ERROR segment-000001 is missing: its entries", True),
        ("2026-11-29 10:00:00,000 WARNING what may have followed is unknown", True),
        ("entries on disk cannot be read: segment-000001", True),
        ("Traceback (most recent call last):", True),
        ("2026-11-29 10:00:00,000 INFO a backup was restored, nothing is lost", False),
        ("2026-11-29 10:00:00,000 WARNING the journal's tail was torn by a crash", False),
        ("2026-11-29 10:00:00,000 WARNING no file is created until a restart", False),
    ],
)
def test_an_alarm_is_a_line_that_says_that_something_is_lost(line: str, *, alarm: bool) -> None:
    assert alarms_in(line) == [line] * alarm
