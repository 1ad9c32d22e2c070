"""An app for worker processes with handlers of long jobs. ``SHOP_URL`` is the address of its store. A job's ``do``:

hold     keeps the interpreter's lock for ``JOB_SECONDS``, as one long call into C does
compute  the same, and uses the processor meanwhile
late     waits for a third of that without the lock, then holds it
wait     waits for ``JOB_SECONDS`` without the lock; so does every other one
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

import msgspec

from headwater.worker import App, Stream

SECONDS = float(os.environ.get("JOB_SECONDS", "3"))


class Job(msgspec.Struct):
    id: int
    do: str


class Done(msgspec.Struct):
    job: int


app = App(os.environ.get("SHOP_URL", "redis://localhost:1"), name="jobs", grace="20s")
jobs: Stream[Job] = Stream("jobs", Job)
done: Stream[Done] = Stream("done", Done)


def _order(job: Job) -> str:
    return job.do


@app.consumer(
    jobs,
    group="g",
    claim_after=os.environ.get("SHOP_CLAIM_AFTER", "1s"),
    into=done,
    concurrency=2,
    order_by=_order if os.environ.get("JOB_ORDER") else None,
)
def work(job: Job) -> Done:
    os.write(2, f"began {job.id} in {os.getpid()}\n".encode())
    if job.do == "late":
        time.sleep(SECONDS / 3)
    if job.do in ("hold", "late"):
        ctypes.PyDLL(None).usleep(int(SECONDS * 1_000_000))
    elif job.do == "compute":
        end = time.monotonic() + SECONDS
        sys.setswitchinterval(1000)
        while time.monotonic() < end:
            sum(range(100_000))
        sys.setswitchinterval(0.005)
    else:
        time.sleep(SECONDS)
    os.write(2, f"ended {job.id} in {os.getpid()}\n".encode())
    return Done(job.id)
