"""Handlers in pool processes (``executor="process"``): what ends a process ends the delivery of one message."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.messages.dead import DeadLetter
from headwater.messages.keys import poison_key
from headwater.worker import App, Delivery, Middleware, Stream
from headwater.worker.declare.lifespan import StartFailed
from tests.processes import children, command_line, runs
from tests.worker.apps import Store, eventually, one_store, working
from tests.worker.pool_jobs import (
    Job,
    batches,
    done,
    enter,
    jobs,
    needs_broken,
    needs_undecoded,
    open_broken,
    opens_slowly,
    ordered,
)
from tests.worker.processes import WorkerProcess, one_worker, supervised, workers_of

TARGET = "tests.worker.pool_jobs:app"

pytestmark = pytest.mark.slow


async def send(store: Store, *sent: Job, stream: Any = jobs) -> None:
    for one in sent:
        fields: Any = dict(stream.codec.encode(one))
        await store.look.xadd(stream.name, fields)


async def letters(store: Store, stream: str = "jobs") -> dict[int, DeadLetter]:
    return {jobs.codec.decode(one.fields).id: one for one in await store.dead(stream)}


def pool_of(worker: int) -> list[int]:
    """The pool processes of a worker process."""
    return [pid for pid in children(worker) if "spawn_main" in command_line(pid)]


async def finished(store: Store, worker: WorkerProcess, stream: str = "jobs") -> list[Any]:
    """Wait until everything is settled, and return the results."""
    await eventually(lambda: store.settled(stream=stream), "everything is settled")
    return await store.results(done)


async def test_what_ends_a_pool_process_is_a_dead_letter_and_takes_nothing_with_it(
    any_store: Store,
) -> None:
    # Given a worker with two pool processes, and among its jobs three that end their process
    with one_worker(any_store.url, target=TARGET) as worker:
        ends = {1: "segfault", 2: "exit", 3: "kill"}
        await send(any_store, *(Job(n, ends.get(n, "")) for n in range(20)))

        # When all are settled, then these three are dead letters that say how the process ended
        results = await finished(any_store, worker)
        found = await letters(any_store)
        assert {n: one.error.partition("; ")[2] for n, one in found.items()} == {
            1: "its pool process was ended by SIGSEGV",
            2: "its pool process ended with status 7",
            3: "its pool process was ended by SIGKILL",
        }
        assert all(
            one.error.startswith("Crashes: 2 processes died while running it alone")
            for one in found.values()
        )
        assert {one.deliveries for one in found.values()} == {2}
        # And all others are done, once, without a second attempt or a record
        assert sorted(one.job for one in results) == [0, *range(4, 20)]
        log = worker.log()
        assert log.count("handles ") == 17 + 3 * 2, log
        assert await any_store.look.hgetall(poison_key("jobs", "g")) == {}


async def test_a_handler_that_exceeds_its_timeout_is_ended_and_counted(store: Store) -> None:
    # Given one job that sleeps, and one that computes while it holds the interpreter's lock
    with one_worker(store.url, target=TARGET, POOL_TIMEOUT="300ms", MAX_DELIVERIES="1") as worker:
        await send(store, Job(1, "sleep"), Job(2, "spin"), Job(3))

        # When the timeout has passed, then both have failed by it
        results = await finished(store, worker)
        found = await letters(store)
        assert {one.error for one in found.values()} == {
            "TimeoutError: it ran longer than 0.3 s, and its process was ended"
        }
        assert sorted(found) == [1, 2]
        # And the others are done; the handler that could end itself has run its `finally`
        assert [one.job for one in results] == [3]
        assert "is ended 1" in worker.log()


@one_store
async def test_what_cannot_travel_between_processes_says_so(store: Store) -> None:
    with one_worker(
        store.url, target=TARGET, MAX_DELIVERIES="2", POOL_STREAMS="jobs ordered"
    ) as worker:
        await send(store, Job(1, "result"), stream=ordered)
        does = {1: "big", 2: "odd", 3: "result", 4: "dead", 5: "again"}
        await send(store, *(Job(n, one) for n, one in does.items()))
        results = await finished(store, worker)

        # A result of 10 MB arrives; an exception that cannot be pickled keeps its name, its text and its place
        assert {one.job: len(one.text) for one in results} == {1: 10_000_000, 5: 0}
        found = await letters(store)
        assert found[2].error == "tests.worker.pool_jobs.Odd: 1 and 2"
        assert "raise Odd(1, 2)" in found[2].trace
        assert found[3].error.startswith("TypeError: work returned a value of type function")
        assert found[4].error == "headwater.Dead: unknown"
        await finished(store, worker, "ordered")
        (letter,) = await store.dead("ordered")
        assert letter.error.startswith(
            "TypeError: the result of type function cannot be sent to the worker, because it cannot be pickled"
        )


async def test_a_crash_keeps_the_order_of_its_key(store: Store) -> None:
    # Given messages of two keys, of which one ends its process
    with one_worker(store.url, target=TARGET, POOL_STREAMS="ordered") as worker:
        does = {3: "exit"}
        await send(store, *(Job(n, does.get(n, "")) for n in range(10)), stream=ordered)
        # When all are settled, then each key's results are in order, without the dead letter
        results = [one.job for one in await finished(store, worker, "ordered")]
        assert [n for n in results if n % 2] == [1, 5, 7, 9]
        assert [n for n in results if n % 2 == 0] == [0, 2, 4, 6, 8]
        assert sorted(await letters(store, "ordered")) == [3]


async def test_a_batch_that_ends_its_process_is_tried_item_by_item(store: Store) -> None:
    # Given a batch with one item that ends its process, and one that the handler fails
    with one_worker(store.url, target=TARGET, POOL_STREAMS="batches") as worker:
        does = {3: "segfault", 4: "fail"}
        await send(store, *(Job(n, does.get(n, "")) for n in range(10)), stream=batches)

        # When all are settled, then only these two are dead letters, and the others are done
        results = await finished(store, worker, "batches")
        found = await letters(store, "batches")
        assert sorted(found) == [3, 4]
        assert found[3].error.endswith("its pool process was ended by SIGSEGV")
        assert found[4].error == "headwater.Failed: constraint"
        assert sorted(one.job for one in results) == [0, 1, 2, *range(5, 10)]
        # And it was not a batch again, but the items were
        assert worker.log().count("a batch of 1 ") >= 10


@one_store
async def test_a_stop_gives_handlers_the_grace_time_and_closes_dependencies(
    store: Store, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with one_worker(store.url, target=TARGET, POOL_GO=str(go)) as worker:
        await send(store, Job(1, "wait"))
        await eventually(lambda: "waits 1" in worker.log())
        # When the worker and its pool processes get SIGTERM and SIGINT, as from a terminal or a service manager
        for pid in [*pool_of(worker.pid), worker.pid]:
            os.kill(pid, signal.SIGTERM)
        for pid in pool_of(worker.pid):
            os.kill(pid, signal.SIGINT)
        await eventually(lambda: "stopping: waiting" in worker.log())
        go.touch()
        # Then the handler ends, and its dependencies are closed
        assert worker.wait() == 0
        assert [one.job for one in await store.results(done)] == [1]
        log = worker.log()
        assert log.count("the database is open") == log.count("the database is closed") == 1, log


@one_store
async def test_a_second_signal_ends_handlers_and_hands_their_messages_back(store: Store) -> None:
    with one_worker(store.url, target=TARGET) as worker:
        await send(store, Job(1, "sleep"))
        await eventually(lambda: "sleeps 1" in worker.log())
        worker.signal(signal.SIGTERM)
        await eventually(lambda: "stopping: waiting" in worker.log())
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert "is ended 1" in worker.log()
        # Then the message waits for another worker, uncounted and without a record of a crash
        ((_id, _owner, _idle, count),) = await store.pending("g", "jobs")
        assert count == 0
        assert await store.look.hgetall(poison_key("jobs", "g")) == {}


@one_store
async def test_pool_processes_end_with_their_worker(store: Store) -> None:
    with one_worker(store.url, target=TARGET) as worker:
        await send(store, Job(1, "spin"), Job(2, "sleep"))
        await eventually(lambda: "spins 1" in worker.log() and "sleeps 2" in worker.log())
        pool = pool_of(worker.pid)
        assert len(pool) == 2
        worker.signal(signal.SIGKILL)
        worker.wait()
        await eventually(lambda: not any("spawn_main" in command_line(pid) for pid in pool))


async def test_a_worker_keeps_the_lease_of_a_handler_that_holds_the_lock(store: Store) -> None:
    # Given two workers with a short claim_after, and a job that holds the lock for longer in a pool process
    with supervised(
        store.url,
        *("--workers", "2"),
        target=TARGET,
        SHOP_CLAIM_AFTER="300ms",
        POOL_TIMEOUT="2s",
        MAX_DELIVERIES="1",
    ) as parent:
        await eventually(lambda: parent.log().count("reads jobs as") == 2)
        await send(store, Job(1, "spin"))
        await eventually(lambda: store.settled(stream="jobs"))
        # Then no one else has claimed it
        (letter,) = await store.dead("jobs")
        assert letter.error.startswith("TimeoutError")
        assert parent.log().count("spins 1") == 1
        assert len(workers_of(parent.pid)) == 2


# --- handlers in threads --------------------------------------------------------------------------


async def test_a_thread_that_exceeds_its_timeout_ends_its_process_and_no_other_delivery(
    any_store: Store, tmp_path: Path
) -> None:
    # Given one worker, in which one handler hangs, one waits, and others wait for a slot
    go = tmp_path / "go"
    with supervised(
        any_store.url, target=TARGET, POOL_TIMEOUT="500ms", POOL_EXECUTOR="thread", POOL_GO=str(go)
    ) as parent:
        await eventually(lambda: "reads jobs as" in parent.log())
        (first,) = workers_of(parent.pid)
        await send(any_store, Job(1, "once"), *(Job(n) for n in range(2, 6)))

        # When its timeout has passed, then another process does all of them
        results = await finished(any_store, parent)
        assert sorted(one.job for one in results) == [1, 2, 3, 4, 5]
        (second,) = {one.by for one in results if one.job == 1}
        assert second != first
        log = parent.log()
        assert "TimeoutError: it ran longer than 0.5 s" in log
        assert "for longer than its timeout of 0.5 s, in a thread" in log
        # And only the one that hung has failed
        assert log.count("work failed on") == 1, log
        assert await any_store.dead("jobs") == []
        assert await any_store.look.hgetall(poison_key("jobs", "g")) == {}


async def test_a_process_whose_lock_is_held_beyond_the_timeout_is_replaced(store: Store) -> None:
    with supervised(
        store.url,
        target=TARGET,
        POOL_TIMEOUT="300ms",
        POOL_EXECUTOR="thread",
        SHOP_CLAIM_AFTER="1s",
    ) as parent:
        await eventually(lambda: "reads jobs as" in parent.log())
        (first,) = workers_of(parent.pid)
        await send(store, Job(1, "spin"))
        # Its own event loop cannot see that the time has passed; the supervisor does
        await eventually(lambda: "(GIL) for longer than the longest timeout" in parent.log())
        await eventually(lambda: first not in workers_of(parent.pid) != [])


# --- in one process -------------------------------------------------------------------------------


def pooled(store: Store, handler: Any, **options: Any) -> App:
    """An app whose handler, of another module, runs in pool processes."""
    app = store.app()
    app.consumer(jobs, group="g", executor="process", retry=None, **options)(handler)
    return app


@one_store
async def test_the_stack_of_a_handler_is_known_and_a_stop_kills_what_ignores_sigterm(
    store: Store,
) -> None:
    async with working(pooled(store, enter, concurrency=1), grace=0) as running:
        await send(store, Job(1, "spin"))
        (loop,) = running.loops.values()
        await eventually(lambda: loop.pool.running)
        (owned,) = loop.pool.running
        # Also while it holds the interpreter's lock
        await eventually(lambda: "do" in [one.name for one in loop.executor.stack(owned)])
    # And when the worker has stopped, its process is killed, although it does not see the SIGTERM
    await eventually(lambda: not pool_of(os.getpid()), "no pool process is left")


@one_store
async def test_a_process_that_dies_while_it_is_idle_takes_no_message_with_it(store: Store) -> None:
    app = pooled(store, enter, concurrency=1, into=done, max_crashes=1)
    async with working(app):
        for number in range(3):
            await send(store, Job(number))
            await eventually(lambda: store.settled(stream="jobs"))
            pool = pool_of(os.getpid())
            os.kill(pool[0], signal.SIGKILL)
        assert [one.job for one in await store.results(done)] == [0, 1, 2]
        assert await store.dead("jobs") == []


@one_store
async def test_no_message_waits_for_a_process_that_starts_slowly_while_another_is_idle(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given two slots, whose second process does not start before the test lets it
    go = tmp_path / "go"
    monkeypatch.setenv("POOL_GO", str(go))
    async with working(pooled(store, opens_slowly, concurrency=2, into=done)):
        # When several messages arrive at once
        await send(store, *(Job(n) for n in range(6)))
        # Then the first process handles them all
        await eventually(lambda: store.settled(stream="jobs"))
        assert len({one.by for one in await store.results(done)}) == 1
        # And the second one starts once it can, for messages that come later
        await eventually(lambda: len(pool_of(os.getpid())) == 2)
        go.touch()
        await send(store, *(Job(n) for n in range(6, 12)))
        await eventually(lambda: store.settled(stream="jobs"))
        assert len(pool_of(os.getpid())) == 2
    await eventually(lambda: not pool_of(os.getpid()), "no pool process is left")


@one_store
async def test_a_worker_stops_while_a_pool_process_starts_that_nobody_needs_any_more(
    store: Store, tmp_path: Path
) -> None:
    # Given a worker whose second process does not become ready, and no message that waits for it
    environment = {"POOL_GO": str(tmp_path / "go"), "POOL_STREAMS": "slow"}
    await send(store, *(Job(n) for n in range(6)), stream=Stream("slow", Job))
    with one_worker(store.url, target=TARGET, **environment) as worker:
        await eventually(lambda: len(pool_of(worker.pid)) == 2)
        await eventually(lambda: store.settled(stream="slow"))
        # When it gets SIGTERM, then it ends, and so do both
        pool = pool_of(worker.pid)
        worker.signal(signal.SIGTERM)
        assert await asyncio.to_thread(worker.wait) == 0
        assert not any(runs(one) for one in pool)


@one_store
async def test_a_pool_process_is_replaced_after_so_many_messages(store: Store) -> None:
    async with working(pooled(store, enter, concurrency=1, recycle=2, into=done)):
        await send(store, *(Job(n) for n in range(4)))
        await eventually(lambda: store.settled(stream="jobs"))
        by = [one.by for one in await store.results(done)]
        assert by[0] == by[1] != by[2] == by[3]


class Shouting(Middleware):
    async def handle(self, delivery: Delivery, message: Any, call_next: Any) -> Any:
        found = await call_next()
        return msgspec.structs.replace(found, text=f"{message.id}!")


@one_store
async def test_middleware_runs_in_the_worker_around_a_pool_process(store: Store) -> None:
    app = pooled(store, enter, concurrency=1, into=done)
    app.use(Shouting())
    running = asyncio.create_task(app.run())
    await send(store, Job(1))
    await eventually(lambda: store.settled(stream="jobs"))
    app.stop()
    await running
    (found,) = await store.results(done)
    assert (found.text, found.by == os.getpid()) == ("1!", False)


@one_store
async def test_a_worker_whose_pool_process_cannot_start_does_not_start(store: Store) -> None:
    app = pooled(store, needs_broken, concurrency=1)
    await send(store, Job(1))
    with pytest.raises(StartFailed, match="open_broken failed: OSError: no database"):
        await app.run()
    # And no message was read
    assert await store.pending("g", "jobs") == []


@one_store
async def test_the_error_of_a_start_may_name_a_file_that_is_not_utf8(store: Store) -> None:
    app = pooled(store, needs_undecoded, concurrency=1)
    with pytest.raises(StartFailed, match=r"open_undecoded failed: OSError: no file caf\\udce9"):
        await app.run()


async def test_in_an_app_test_the_handler_runs_in_a_thread_of_the_test() -> None:
    app = App("headwater://memory")
    app.consumer(jobs, group="g", executor="process", into=done)(enter)
    app.consumer(batches, group="g", executor="process")(needs_broken)
    async with app.test(use={open_broken: 1}) as t:
        await t.send(jobs, Job(1))
        await t.send(batches, Job(1))
        assert [one.by for one in t.results(done)] == [os.getpid()]
        assert t.deliveries(needs_broken) == [1]


SCRIPT = """
import asyncio, os
import msgspec
from headwater import App, Stream

class Job(msgspec.Struct):
    id: int

class Done(msgspec.Struct):
    by: int

app = App({url!r})
jobs, done = Stream("jobs", Job), Stream("done", Done)

@app.consumer(jobs, group="g", executor="process", into=done)
def work(job: Job) -> Done:
    return Done(os.getpid())

{guard}asyncio.run(app.run())
"""


@one_store
@pytest.mark.parametrize("guard", ['if __name__ == "__main__": ', ""], ids=["guarded", "bare"])
async def test_a_program_can_run_its_own_worker(store: Store, tmp_path: Path, guard: str) -> None:
    # Given a program that declares messages and handler itself, and runs its worker
    program = tmp_path / "program.py"
    program.write_text(SCRIPT.format(url=store.url, guard=guard))
    await send(store, Job(1))
    worker = WorkerProcess([sys.executable, str(program)], url=store.url, environment={})
    try:
        if guard:
            # Then a pool process finds them
            await eventually(lambda: store.settled(stream="jobs"))
            entries: Any = await store.look.xrange("done")
            ((_id, fields),) = entries
            assert int(fields[b"by"]) in pool_of(worker.pid)
        else:
            # When nothing prevents that a pool process runs the worker too, then the start fails and says why
            assert worker.wait() == 1
            assert 'put the call below `if __name__ == "__main__":`' in worker.log()
    finally:
        worker.end()
