"""An app whose handlers run in pool processes. ``SHOP_URL`` is the address of its store. What a job ``does``:

segfault, exit, kill   ends its pool process
sleep                  sleeps for a minute
spin                   computes for a minute in one call into C, and holds the interpreter's lock
big                    returns a result of 10 MB
odd                    raises an exception that cannot be pickled
result                 returns a result that cannot be pickled
once                   sleeps for a minute at the first delivery
wait                   waits until the file ``POOL_GO`` exists
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from headwater.worker import Again, App, Backoff, Batch, Dead, Delivery, Stream, Use


class Job(msgspec.Struct):
    id: int
    does: str = ""


class Done(msgspec.Struct):
    job: int
    by: int
    text: str = ""


class Odd(Exception):
    """Cannot be read back from a pickle, because it takes two arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")
        self.lock = threading.Lock()


app = App(os.environ.get("SHOP_URL", "redis://localhost:1"), name="jobs", grace="20s")
jobs: Stream[Job] = Stream("jobs", Job)
done: Stream[Done] = Stream("done", Done)
batches: Stream[Job] = Stream("batches", Job)
ordered: Stream[Job] = Stream("ordered", Job)
options: Any = {
    "executor": os.environ.get("POOL_EXECUTOR", "process"),
    "group": "g",
    "claim_after": os.environ.get("SHOP_CLAIM_AFTER", "2s"),
    "retry": Backoff("10ms", ceiling="100ms"),
    "into": done,
    "timeout": os.environ.get("POOL_TIMEOUT", "1m"),
    "max_deliveries": int(os.environ.get("MAX_DELIVERIES", "5")),
}


H = TypeVar("H", bound=Callable[..., Any])


def declared(decorator: Any, stream: Stream[Job], **more: Any) -> Callable[[H], H]:
    """Declare a consumer, if ``POOL_STREAMS`` names its stream. Each starts a process."""
    if stream.name in os.environ.get("POOL_STREAMS", "jobs").split():
        found: Callable[[H], H] = decorator(stream, **options, **more)
        return found
    return lambda handler: handler


def say(words: str) -> None:
    os.write(2, f"{words} in {os.getpid()}\n".encode())


def open_db() -> Iterator[str]:
    say("the database is open")
    yield "db"
    say("the database is closed")


def begin(db: Annotated[str, Use(open_db)], delivery: Delivery) -> Iterator[str]:
    yield f"{db} {delivery.id}"


def do(job: Job) -> None:
    if job.does == "segfault":
        ctypes.string_at(0)
    elif job.does == "exit":
        if os.fork() == 0:
            time.sleep(60)  # with copies of the pool process's descriptors
        os._exit(7)
    elif job.does == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif job.does == "sleep":
        say(f"sleeps {job.id}")
        try:
            time.sleep(60)
        finally:
            say(f"is ended {job.id}")
    elif job.does == "spin":
        say(f"spins {job.id}")
        sum(range(10**12))  # not a sleep in C, which any signal would end
    elif job.does == "odd":
        raise Odd(1, 2)
    elif job.does == "wait":
        say(f"waits {job.id}")
        while not Path(os.environ["POOL_GO"]).exists():
            time.sleep(0.01)
    elif job.does == "dead":
        raise Dead("unknown")
    elif job.does == "again":
        raise Again(after="10ms")


@declared(app.consumer, jobs, concurrency=2)
def work(job: Job, delivery: Delivery, row: Annotated[str, Use(begin, scope="delivery")]) -> Any:
    logging.getLogger("jobs").warning("handles %d", job.id)
    assert row == f"db {delivery.id}"
    if job.does == "again" and delivery.count > 1:
        return Done(job.id, os.getpid())
    if job.does == "once" and delivery.count == 1:
        time.sleep(60)
    do(job)
    if job.does == "result":
        return lambda: None
    return Done(job.id, os.getpid(), "x" * 10_000_000 if job.does == "big" else "")


@declared(app.batch, batches, size=10, linger="20ms")
def load(rows: Batch[Job]) -> list[Done]:
    say(f"a batch of {len(rows)}")
    for row in rows:
        if row.does == "fail":
            rows.fail(row, "constraint")
        else:
            do(row)
    return [Done(row.id, os.getpid()) for row in rows if row.does != "fail"]


@declared(app.consumer, ordered, order_by=lambda job: job.id % 2)
def enter(job: Job) -> Any:
    do(job)
    if job.does == "result":
        return lambda: None
    return Done(job.id, os.getpid())


def open_broken() -> int:
    raise OSError("no database")


def open_undecoded() -> int:
    raise OSError("no file caf\udce9")


def open_slowly() -> int:
    """Return at once in the first process; in others only when the file ``POOL_GO`` exists."""
    go = Path(os.environ["POOL_GO"])
    first = go.with_suffix(".first")
    if first.exists():
        while not go.exists():
            time.sleep(0.01)
    first.touch()
    return 1


def opens_slowly(job: Job, db: Annotated[int, Use(open_slowly)]) -> Any:
    return enter(job)


if "slow" in os.environ.get("POOL_STREAMS", ""):
    app.consumer(Stream("slow", Job), concurrency=2, **options)(opens_slowly)


def needs_broken(job: Job, db: Annotated[int, Use(open_broken)]) -> None: ...


def needs_undecoded(job: Job, db: Annotated[int, Use(open_undecoded)]) -> None: ...
