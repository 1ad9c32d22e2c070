"""Kills a real server, or its helper process, before a random system call, again and again on the same data.

Each trial starts the server on what the last one left, checks that everything answered is there, and runs commands
until the server is killed: while it starts, while it writes, during a checkpoint of its own, or in the helper.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.alarms import alarms_in
from tests.crash.test_server_kill import Writer
from tests.crash.zygote import Order

SOURCE = Path(__file__).with_name("kill_at.c")
STEPS, CALLS = 120, 400
"""Maximum number of commands in a trial, and of the system call before which the server is killed."""
CHECKPOINT_STEPS, CHECKPOINT_CALLS = 3000, 8000
"""The same in a trial with checkpoints: a helper takes as long as some thousand commands."""
HELPER_CALLS = 10
"""A helper is killed before an earlier system call than this one. It makes about eight that count."""


class Killed(NamedTuple):
    """The result of a campaign: how many servers were killed, and how many helpers that their servers outlived; how often
    a server was seen to have made an image; and what was wrong."""

    servers: int
    helpers: int
    checkpoints: int
    wrong: list[str]


def compiled(directory: Path) -> Path:
    """Compile the library that counts system calls."""
    library = directory / "kill_at.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library


class CallCampaign:
    """``trials`` kills with the same data, chosen by ``seed``."""

    def __init__(self, seed: int, trials: int) -> None:
        self._seed = seed
        self._trials = trials
        self._random = Random(seed)
        self._writers = [Writer(number) for number in range(2)]
        self._directory = Path(tempfile.mkdtemp(prefix="hw-", dir=_memory()))
        self._servers = self._helpers = self._checkpoints = 0
        self._wrong: list[str] = []

    def run(self) -> Killed:
        """Run all trials."""
        environment = {**os.environ, "LD_PRELOAD": str(compiled(self._directory))}
        log = self._directory / "log"
        with log.open("wb") as stderr:
            zygote = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.zygote"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
            )
        assert zygote.stdin is not None
        try:
            for trial in range(self._trials):
                self._trial(zygote, trial)
                if self._wrong:
                    break
        finally:
            zygote.stdin.close()
            zygote.wait()
            if zygote.stdout is not None:
                zygote.stdout.close()
            self._wrong += [
                f"seed {self._seed}: a false alarm: {line}"
                for line in alarms_in(log.read_text(errors="replace"))
            ]
            shutil.rmtree(self._directory, ignore_errors=True)
        return Killed(self._servers, self._helpers, self._checkpoints, self._wrong)

    def _order(self, trial: int) -> Order:
        random = self._random
        at_start = trial > 0 and random.random() < 0.3
        checkpoints = random.random() < 0.2
        most = CHECKPOINT_CALLS if checkpoints else CALLS
        calls = random.randrange(1, 60 if at_start else most)
        helper_calls = 0
        if checkpoints and random.random() < 0.5:
            helper_calls = random.randrange(1, HELPER_CALLS)
            at_start, calls = False, random.choice((0, calls))
        return Order(
            str(self._directory / "data"),
            str(self._directory / "socket"),
            calls if trial else 0,
            at_start,
            helper_calls,
            4096 if checkpoints else 0,
        )

    def _trial(self, zygote: subprocess.Popen[bytes], trial: int) -> None:
        assert zygote.stdin is not None
        assert zygote.stdout is not None
        order = self._order(trial)
        zygote.stdin.write(json.dumps(order).encode() + b"\n")
        zygote.stdin.flush()
        line = zygote.stdout.readline()
        if line == b"ready\n":
            self._use(order, first=trial == 0)
            line = zygote.stdout.readline()
        if line == b"ready\n":  # it was killed while it said so
            line = zygote.stdout.readline()
        status = int(line.split()[1]) if line.startswith(b"ended") else -1
        if status == 9:
            self._servers += 1
        elif status != 0:
            self._wrong.append(f"seed {self._seed}, trial {trial}, {order}: {line!r}")

    def _use(self, order: Order, *, first: bool) -> None:
        """Check what is there, then write until the server is gone. End it if it lives on."""
        url = f"unix://{order.socket}"
        with redis.Redis.from_url(
            url, decode_responses=True, retry=Retry(NoBackoff(), 0)
        ) as client:
            try:
                if first:
                    for writer in self._writers:
                        client.xgroup_create(writer.stream, "g", id="0", mkstream=True)
                for writer in self._writers:
                    self._wrong += [
                        f"seed {self._seed}, {order}: {what}" for what in writer.settle(client)
                    ]
                for step in range(CHECKPOINT_STEPS if order.rewrite_bytes else STEPS):
                    self._random.choice(self._writers).step(client, self._random)
                    if order.rewrite_bytes and step % 100 == 99:
                        info: Any = client.info("persistence")
                        self._checkpoints += info["aof_rewrites"] > 0
                        if order.helper_calls and info["aof_last_bgrewrite_status"] == "err":
                            self._helpers += 1
                            break
                client.shutdown(nosave=True)
            except redis.ConnectionError:
                return


def _memory() -> str | None:
    """A directory in memory, if there is one: SIGKILL loses nothing that was written, wherever it is."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
