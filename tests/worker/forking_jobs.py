"""An app whose handler forks. ``SHOP_URL`` is the address of its store, and ``FORKING`` the kind of handler:
async, plain (async without dependencies), thread or process. What a job's child ``does``:

exit, raise, return    ends like this, and the handler returns the child's exit status
hidden                 returns while the next message is handled; it was forked in C, without Python's fork handlers
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from headwater.worker import App, Backoff, Stream, Use


class Job(msgspec.Struct):
    id: int
    does: str = ""


class Done(msgspec.Struct):
    job: int
    child: int | None = None
    """The exit status of the job's child."""


app = App(os.environ.get("SHOP_URL", "redis://localhost:1"), name="forking", grace="20s")
jobs: Stream[Job] = Stream("jobs", Job)
done: Stream[Done] = Stream("done", Done)
KIND = os.environ.get("FORKING", "async")
options: Any = {"group": "g", "retry": Backoff("10ms"), "into": done, "concurrency": 1}


def transaction() -> Iterator[str]:
    yield "transaction"
    os.write(2, b"committed\n")


begun: list[int] = []
"""A pipe to the hidden child, which waits for the next message."""


def do(job: Job) -> Done:
    if begun:
        os.write(begun[1], b"!")
        os.read(begun[2], 1)  # until this process is killed
    if job.does == "hidden":
        begun.extend([*os.pipe(), *os.pipe()])
        if ctypes.CDLL(None).fork() == 0:
            os.read(begun[0], 1)
        return Done(job.id)
    if not job.does:
        return Done(job.id)
    child = os.fork()
    if child:
        return Done(job.id, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    if job.does == "exit":
        sys.exit(3)
    if job.does == "raise":
        raise RuntimeError("of the child")
    return Done(-1)


if KIND == "async":

    @app.consumer(jobs, **options)
    async def work(job: Job, opened: Annotated[str, Use(transaction, scope="delivery")]) -> Done:
        return do(job)

elif KIND == "plain":

    @app.consumer(jobs, **options)
    async def work_plain(job: Job) -> Done:
        return do(job)

else:
    if KIND == "process":
        options["executor"] = "process"

    @app.consumer(jobs, **options)
    def work_apart(job: Job, opened: Annotated[str, Use(transaction, scope="delivery")]) -> Done:
        return do(job)
