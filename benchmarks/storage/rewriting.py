"""Checkpoints and rewrites: asked for with BGREWRITEAOF, awaited through INFO, moved to the other core.

Headwater's helper and the peers' child inherit the server's core. `Rewriter` moves each child of the server to
the client's core, so that writers are not slowed down by sharing theirs.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import redis

from benchmarks.storage.servers import Unmeasured
from benchmarks.stores import Store

WITHIN_SECONDS: Final = 600.0
POLL_SECONDS: Final = 0.02


def ask(store: Store) -> None:
    """Begin a rewrite. Raises `Unmeasured` if the server refuses it."""
    with store.client() as client:
        try:
            client.execute_command("BGREWRITEAOF")
        except redis.ResponseError as error:
            raise Unmeasured(f"{store.name}: BGREWRITEAOF: {error}") from None


def in_progress(client: redis.Redis) -> bool:
    """Return whether a rewrite is running or scheduled."""
    found = client.info("persistence")
    return bool(found["aof_rewrite_in_progress"] or found["aof_rewrite_scheduled"])


def await_end(store: Store) -> None:
    """Wait until no rewrite is running. Raises `Unmeasured` if the last one failed or does not end."""
    deadline = time.monotonic() + WITHIN_SECONDS
    with store.client() as client:
        while in_progress(client):
            if time.monotonic() > deadline:
                raise Unmeasured(f"{store.name}: a rewrite takes over {WITHIN_SECONDS:.0f} seconds")
            time.sleep(POLL_SECONDS)
        status = client.info("persistence")["aof_last_bgrewrite_status"]
    if status != "ok":
        raise Unmeasured(
            f"{store.name}: the rewrite failed (aof_last_bgrewrite_status is {status})"
        )


def rewrite(store: Store) -> None:
    """Rewrite, and wait for the end."""
    ask(store)
    await_end(store)


def rewrite_after(store: Store) -> None:
    """Rewrite as soon as no other rewrite is running, which may begin by itself; wait for the end. Raises
    `Unmeasured` as `rewrite` does, and if the server refuses it all the time."""
    deadline = time.monotonic() + WITHIN_SECONDS
    while True:
        await_end(store)
        try:
            return rewrite(store)
        except Unmeasured as error:
            if "in progress" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(POLL_SECONDS)


def children(pid: int) -> set[int]:
    """Return the processes that were started by a process, by its children and so on."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for task in _tasks(waiting.pop()):
            with suppress(OSError):
                own = {int(word) for word in (task / "children").read_text().split()}
                waiting += own - found
                found |= own
    return found


def _tasks(pid: int) -> list[Path]:
    with suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []


def move(pid: int, core: int) -> None:
    """Move all threads of a process to a core. A process that has ended is left alone."""
    for task in _tasks(pid):
        with suppress(OSError):
            os.sched_setaffinity(int(task.name), {core})


class Rewriter(threading.Thread):
    """Keeps a rewrite running on ``core`` inside a ``with`` block: begins another one when one has ended.

    ``covered`` is the share of the time in which one was running, ``rewrites`` their number. The block begins
    when the first one runs. Raises `Unmeasured` if the server refuses the first one.
    """

    def __init__(self, store: Store, core: int) -> None:
        super().__init__(name="rewriter")
        self.covered = 0.0
        self.rewrites = 0
        self._store = store
        self._core = core
        self._stop_wanted = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        ask(self._store)
        self.rewrites = 1
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_wanted.set()
        self.join()
        if error is None and self._failure is not None:
            raise Unmeasured(f"{self._store.name}: BGREWRITEAOF: {self._failure}")
        if error is None:
            await_end(self._store)

    def run(self) -> None:
        seen = running = 0
        try:
            with self._store.client() as client:
                while not self._stop_wanted.wait(POLL_SECONDS):
                    for pid in children(self._store.pid):
                        move(pid, self._core)
                    seen += 1
                    if in_progress(client):
                        running += 1
                    else:
                        client.execute_command("BGREWRITEAOF")
                        self.rewrites += 1
        except redis.RedisError as error:
            self._failure = error
        self.covered = running / seen if seen else 0.0
