"""Starts a real server on copies of a data directory in each of which one bit is flipped, and compares its answers.

A server that does not start names the file. One that starts gives each answer as before, or as an error; or its log and
INFO report what was cut off.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

import redis

from headwater.testing.server import ServerFailed, ServerProcess, server_process
from tests.crash.flip_campaign import AFTER, FILES
from tests.waiting import eventually

ENTRIES, PAGE = 6000, 250
"""Entries of each stream, and how many one question is about: less than a block of 64 KiB."""
STREAMS: Final = ("s", "t")
FLAGS: Final = (
    *("--appendfsync", "always"),
    *("--stream-hot-bytes", "0"),
    *("--auto-aof-rewrite-percentage", "0"),
)


class FlippedServers:
    """``trials`` servers, each on the same files but for one bit. Results are counted in ``outcomes``."""

    def __init__(self, seed: int, trials: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []
        self._seed, self._trials = seed, trials
        self._random = Random(seed)

    def run(self) -> FlippedServers:
        """Run all trials. `failures` has what was silent."""
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        root = Path(tempfile.mkdtemp(prefix="hw-", dir=memory))
        try:
            self._fill(root / "whole")
            for trial in range(self._trials):
                directory = root / str(trial)
                shutil.copytree(root / "whole" / "data", directory / "data")
                self._try(directory, trial)
                shutil.rmtree(directory)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        return self

    def _fill(self, directory: Path) -> None:
        """Write a store with all four kinds of file, and note its answers. It is killed, or stops cleanly."""
        directory.mkdir()
        with server_process(*FLAGS, directory=directory) as server:
            client = client_of(server)
            add(client, "s", self._random)
            client.xgroup_create("s", "g", "0")
            client.xreadgroup("g", "c", {"s": ">"}, count=300)
            eventually(lambda: stored_bytes(client) > 0)
            client.save()
            add(client, "t", self._random)
            client.set("key", "value")
            client.xack("s", "g", "7-1", "9-1")
            self._expected = answers(client)
            if self._random.random() < 0.5:
                server.kill()
            else:
                server.stop()

    def _try(self, directory: Path, trial: int) -> None:
        kind = FILES[trial % len(FILES)]
        where = f"seed {self._seed}, trial {trial}, {flip(directory / 'data', kind, self._random)}"
        server = ServerProcess(*FLAGS, directory=directory)
        try:
            server.start()
        except ServerFailed as error:
            self.outcomes[f"{kind}: refused"] += 1
            if f"/{kind}" not in error.said:
                self.failures.append(f"{where}: no file in {error}")
            return
        try:
            result = self._compare(client_of(server))
        finally:
            server.kill()
        self.outcomes[f"{kind}: {result}"] += 1
        if result.startswith("silent"):
            self.failures.append(f"{where}: {result}")

    def _compare(self, client: redis.Redis) -> str:
        found = answers(client)
        wrong = [
            question
            for question, expected in self._expected.items()
            if found[question] != expected
            and "cannot be read from disk" not in str(found[question])
        ]
        info: Any = client.info("persistence")
        if wrong and not (info["journal_recovery_cuts"] or info["journal_recovery_notes"]):
            return f"silent: another answer to {wrong[0]}"
        if wrong:
            return "an earlier state, reported"
        return "whole" if found == self._expected else "entries that cannot be read"


def client_of(server: ServerProcess) -> redis.Redis:
    """Return a client that can wait for a checkpoint."""
    return redis.Redis.from_url(server.url, decode_responses=True, socket_timeout=60)


def add(client: redis.Redis, key: str, random: Random) -> None:
    """Add entries that hardly can be compressed."""
    pipeline = client.pipeline(transaction=False)
    for number in range(1, ENTRIES + 1):
        pipeline.xadd(key, {"text": random.randbytes(random.randrange(40)).hex()}, id=f"{number}-1")
    pipeline.execute()


def stored_bytes(client: redis.Redis) -> int:
    """Return the size of the entries on disk."""
    info: Any = client.info("memory")
    stored: int = info["stream_stored_entries_bytes"]
    return stored


def answers(client: redis.Redis) -> dict[tuple[Any, ...], Any]:
    """Return question → answer. An error is an answer."""
    questions: list[tuple[Any, ...]] = [("GET", "key"), ("DBSIZE",), ("XPENDING", "s", "g")]
    questions.append(("XPENDING", "s", "g", "-", "+", 1000))
    for key in STREAMS:
        questions += [("XLEN", key), ("XINFO", "GROUPS", key)]
        questions += [
            ("XRANGE", key, first, first + PAGE - 1) for first in range(0, ENTRIES + PAGE, PAGE)
        ]
    raw = redis.Redis(connection_pool=client.connection_pool)
    raw.response_callbacks.clear()
    return {question: answer(raw, question) for question in questions}


def answer(client: redis.Redis, question: tuple[Any, ...]) -> Any:
    """Ask once. Return the reply as it is, without idle times, or the error."""
    try:
        found: Any = client.execute_command(*question)
    except redis.ResponseError as error:
        return error
    if question[0] == "XPENDING" and len(question) > 3:
        return [[entry_id, consumer, count] for entry_id, consumer, _idle, count in found]
    return found


def flip(directory: Path, kind: str, random: Random) -> str:
    """Flip a bit of a file of this kind. Return a description."""
    path = random.choice(sorted(directory.glob(f"{kind}*")))
    data = bytearray(path.read_bytes())
    at = random.randrange(min(len(data), len(data.rstrip(b"\0")) + AFTER))
    bit = random.randrange(8)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of {path.name} at {at}"
