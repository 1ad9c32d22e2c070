"""The child of a fork in a handler ends where the handler ends, and only the parent's ending counts."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.worker.apps import Store, eventually
from tests.worker.forking_jobs import Done, Job, done, jobs
from tests.worker.processes import one_worker

TARGET = "tests.worker.forking_jobs:app"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("store", ["headwater"], indirect=True),
]


async def send(store: Store, *sent: Job) -> None:
    for one in sent:
        fields: Any = dict(jobs.codec.encode(one))
        await store.look.xadd(jobs.name, fields)


@pytest.mark.parametrize("kind", ["async", "plain", "thread", "process"])
async def test_the_child_of_a_fork_in_a_handler_ends_there_and_only_the_parents_ending_counts(
    store: Store, kind: str
) -> None:
    # Given a worker, and among its jobs three that fork a child, which leaves the handler
    with one_worker(store.url, target=TARGET, FORKING=kind) as worker:
        does = {2: "exit", 4: "raise", 6: "return"}
        await send(store, *(Job(n, does.get(n, "")) for n in range(10)))

        # When all are settled
        await eventually(lambda: store.settled(stream="jobs"), "everything is settled")

        # Then each job has its own result, once, and each child has ended as a program does
        ends = {2: 3, 4: 1, 6: 0}
        assert await store.results(done) == [Done(n, ends.get(n)) for n in range(10)]
        assert "RuntimeError: of the child" in worker.log()
        # And no child has closed what its parent opened for the delivery
        assert worker.log().count("committed") == (0 if kind == "plain" else 10)
        # And a signal stops the worker
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


async def test_a_reply_that_belongs_to_another_message_ends_the_pool_process(store: Store) -> None:
    # Given a pool process that is forked unnoticed, so that two processes share its pipe
    with one_worker(store.url, target=TARGET, FORKING="process") as worker:
        await send(store, Job(0, "hidden"), *(Job(n) for n in range(1, 8)))

        # When all are settled
        await eventually(lambda: store.settled(stream="jobs"), "everything is settled")

        # Then each job has its own result, because a pool process was replaced
        found = await store.results(done)
        assert sorted(one.job for one in found) == [*range(8)]
        assert "sent the reply to request 1 instead of" in worker.log()
