"""A process that lives keeps its entries and is not taken for dead, whatever keeps it silent."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from headwater.messages.keys import poison_key
from tests.worker.apps import Store, eventually
from tests.worker.long_jobs import Done, Job, done, jobs
from tests.worker.processes import WorkerProcess, one_worker, supervised

TARGET = "tests.worker.long_jobs:app"

pytestmark = pytest.mark.slow


async def settled(store: Store) -> bool:
    return await store.settled(stream="jobs")


async def send(store: Store, *sent: Job) -> None:
    for one in sent:
        fields: Any = dict(jobs.codec.encode(one))
        await store.look.xadd("jobs", fields)


async def nothing_is_accused(store: Store, log: str) -> None:
    assert await store.dead("jobs") == [], log
    assert await store.look.hgetall(poison_key("jobs", "g")) == {}, log


def ready(parent: WorkerProcess, workers: int) -> bool:
    return parent.log().count("reads jobs as") == workers


@pytest.mark.parametrize("order", ["", "1"], ids=["plain", "ordered"])
async def test_a_handler_that_holds_the_interpreters_lock_keeps_its_entry(
    any_store: Store, order: str
) -> None:
    # Given two workers, and a job that holds the lock for longer than twice claim_after
    with supervised(
        any_store.url,
        *("--workers", "2"),
        target=TARGET,
        SHOP_CLAIM_AFTER="1500ms",
        JOB_SECONDS="4",
        JOB_ORDER=order,
    ) as parent:
        await eventually(lambda: ready(parent, 2))
        await send(any_store, Job(1, "hold"))

        # When it ends, then it has run once, and no one is accused of a death
        await eventually(lambda: settled(any_store))
        log = parent.log()
        assert log.count("began 1") == 1, log
        assert await any_store.results(done) == [Done(1)]
        await nothing_is_accused(any_store, log)
        # And its supervisor says that it renewed the leases, and no one that they were late
        assert "the supervisor renews them" in log
        assert "longer than claim_after" not in log


async def test_a_busy_process_that_let_another_one_read_keeps_its_entries(any_store: Store) -> None:
    # Given an ordered consumer, both slots of whose reader are busy, and a job that holds the lock there later
    with supervised(
        any_store.url,
        *("--workers", "2"),
        target=TARGET,
        SHOP_CLAIM_AFTER="1500ms",
        JOB_SECONDS="4",
        JOB_ORDER="1",
    ) as parent:
        await eventually(lambda: ready(parent, 2))
        await send(any_store, Job(1, "late"), Job(2, "wait"), Job(3, "another"))
        # When the other process reads, then each job runs once
        await eventually(lambda: settled(any_store))
        log = parent.log()
        began = [line.split() for line in log.splitlines() if line.startswith("began")]
        assert sorted(job for _, job, _, _process in began) == ["1", "2", "3"], log
        assert len({process for _, _job, _, process in began}) == 2, log
        assert sorted(one.job for one in await any_store.results(done)) == [1, 2, 3]
        assert "the supervisor renews them" in log
        await nothing_is_accused(any_store, log)


async def test_processes_that_are_stopped_and_go_on_are_not_taken_for_dead(store: Store) -> None:
    # Given a job of which every process that runs it is stopped for longer than claim_after
    with supervised(
        store.url, "--workers", "2", target=TARGET, SHOP_CLAIM_AFTER="500ms", JOB_SECONDS="5"
    ) as parent:
        await eventually(lambda: ready(parent, 2))
        await send(store, Job(1, "wait"))
        for number in range(4):
            await eventually(lambda: parent.log().count("began 1") > number)  # noqa: B023
            last = int(parent.log().rpartition("began 1 in ")[2].split()[0])
            os.kill(last, signal.SIGSTOP)
            # When another process has claimed it, the stopped one goes on
            await eventually(lambda: parent.log().count("began 1") > number + 1)  # noqa: B023
            os.kill(last, signal.SIGCONT)

        # Then one of them settles the job, with one result
        await eventually(lambda: settled(store))
        assert await store.results(done) == [Done(1)]
        assert await store.dead("jobs") == [], parent.log()


async def test_without_a_supervisor_a_worker_says_that_no_one_renews_for_it(store: Store) -> None:
    with one_worker(store.url, target=TARGET) as worker:
        await eventually(lambda: "reads jobs as" in worker.log())
        assert "no other process renews the leases of this one" in worker.log()


async def test_without_a_supervisor_the_first_finisher_settles(store: Store) -> None:
    # Given two processes without a supervisor, and a job that holds the lock for longer than claim_after
    quick = {"SHOP_CLAIM_AFTER": "500ms", "JOB_SECONDS": "2"}
    with (
        one_worker(store.url, target=TARGET, **quick) as one,
        one_worker(store.url, target=TARGET, **quick) as two,
    ):
        await eventually(lambda: all("reads jobs as" in each.log() for each in (one, two)))
        await send(store, Job(1, "hold"))

        # When it was claimed and both have ended, then there is one result and no dead letter
        await eventually(lambda: "ended 1" in one.log() and "ended 1" in two.log())
        await eventually(lambda: settled(store))
        await asyncio.sleep(0)
        assert await store.results(done) == [Done(1)]
        assert await store.dead("jobs") == []
