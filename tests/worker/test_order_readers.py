"""An ordered group is read by one process at a time; the next reader continues from its state."""

from __future__ import annotations

import asyncio
import threading
from random import Random
from typing import Any, NamedTuple

import pytest

from headwater.messages.keys import group_reader_key, held_key
from headwater.worker import Again, App, Backoff, Dead, Delivery
from headwater.worker.read.quarantine import Suspects
from headwater.worker.running import Running, Surroundings
from headwater.worker.store.clocks import LoopClock
from headwater.worker.store.connections import Connections
from tests.worker.apps import Store, buried, elapsed, eventually, killed, worker, working
from tests.worker.processes import ROOT
from tests.worker.test_order import Seen, Step, by_key, parked, settled, steps

READER = group_reader_key("steps", "g")


async def test_one_process_reads_and_another_continues_after_its_stop(store: Store) -> None:
    # Given two processes
    app, seen = store.app(), Seen()

    @app.consumer(steps, group="g", order_by=by_key, claim_after="5s")
    async def handle(step: Step) -> None:
        seen.began(step)
        await asyncio.sleep(0)
        seen.ended(step)

    async with working(app) as first:
        reader = await eventually(lambda: store.look.get(READER))
        (one,) = first.loops.values()
        assert reader.decode() == one.scope.consumer_name
        async with working(app) as second:
            (two,) = second.loops.values()
            await steps.send_many([Step("a", number) for number in range(10)])
            await eventually(lambda: settled(store))

            # When the reader stops, then the other reads at once
            await first.stop(5)
            await steps.send_many([Step("a", number) for number in range(10, 20)])
            await eventually(lambda: settled(store))
            assert await store.look.get(READER) == two.scope.consumer_name.encode()
    assert await store.look.get(READER) is None
    assert seen.order == {"a": list(range(20))}
    assert seen.overlaps == 0


@pytest.mark.slow
async def test_the_next_reader_continues_in_order_after_a_kill(store: Store) -> None:
    # Given a reader that dies with a running message, a waiting retry and prefetched messages
    app, dying = store.app(), asyncio.Event()
    seen, hanging = Seen(), asyncio.Event()

    @app.consumer(
        steps,
        group="g",
        order_by=by_key,
        claim_after="300ms",
        lease="60ms",
        retry=Backoff("700ms", jitter=0),
        concurrency=4,
    )
    async def handle(step: Step) -> None:
        if not dying.is_set():
            if step.do == "hang":
                hanging.set()
                await asyncio.Event().wait()
            raise ValueError("not yet")
        seen.began(step)
        await asyncio.sleep(0.001)
        seen.ended(step)

    first = worker(app)
    first.start()
    async with app:
        await steps.send_many([Step("a", 0, "hang"), Step("b", 0)])
        await steps.send_many([Step(key, number) for number in (1, 2, 3) for key in "ab"])
        await hanging.wait()
        await eventually(lambda: parked(store))

        # When it dies, and new messages arrive
        killed(first)
        dying.set()
        await steps.send_many([Step(key, number) for number in (4, 5) for key in "abc"])
        async with working(app):
            await eventually(lambda: settled(store))
    await buried(first)

    # Then every key is in order
    assert seen.order == {"a": list(range(6)), "b": list(range(6)), "c": [4, 5]}
    assert seen.overlaps == 0


async def test_a_reader_that_loses_its_key_cancels_its_handlers_and_hands_entries_back(
    store: Store,
) -> None:
    # Given a reader with a running message
    app, cancelled, runs = store.app(), asyncio.Event(), []

    @app.consumer(steps, group="g", order_by=by_key, claim_after="300ms", lease="60ms")
    async def handle(step: Step, delivery: Delivery) -> None:
        runs.append((step.number, delivery.count))
        if len(runs) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                assert delivery.lost
                cancelled.set()

    async with working(app):
        await steps.send_many([Step("a", 1), Step("a", 2)])
        await eventually(lambda: runs)
        # When its key names another reader, then it cancels the handler and reads no more
        await store.look.set(READER, "another", px=300)
        await cancelled.wait()
        await eventually(lambda: all_handed_back(store))
        assert len(runs) == 1
        # Until the key expires
        await eventually(lambda: settled(store))
    assert runs == [(1, 1), (1, 1), (2, 1)]


async def test_order_holds_when_the_group_reads_the_same_messages_again(store: Store) -> None:
    # Given a waiting retry, and a message of the same key that waits for it
    app, runs = store.app(), []

    @app.consumer(steps, group="g", order_by=by_key, claim_after="30s")
    async def handle(step: Step, delivery: Delivery) -> None:
        runs.append(step.number)
        if len(runs) == 1:
            raise Again(after="200ms")

    async with working(app):
        await steps.send_many([Step("a", 1), Step("a", 2)])
        await eventually(lambda: parked(store))

        # When the group loses both deliveries, as in a failover to a replica that was behind
        rows = await store.pending(stream="steps")
        async with store.look.pipeline(transaction=True) as together:
            together.xack("steps", "g", *(one[0] for one in rows))
            together.xgroup_setid("steps", "g", "0")
            await together.execute()

        # Then the first one is handled again before the second
        await eventually(lambda: len(runs) >= 3)
        await eventually(lambda: settled(store))
    assert runs == [1, 1, 2]


async def all_handed_back(store: Store) -> bool:
    rows = await store.pending(stream="steps")
    return len(rows) == 2 and all(owner in ("", "hw.parked") for _id, owner, _idle, _count in rows)


@pytest.mark.slow
async def test_a_replayed_dead_letter_is_handled(store: Store, run_headwater: Any) -> None:
    app, seen, fixed = store.app(), Seen(), asyncio.Event()

    @app.consumer(steps, group="g", order_by=by_key)
    async def handle(step: Step) -> None:
        if not fixed.is_set():
            raise Dead("not now")
        seen.ended(step)

    async with working(app):
        await steps.send(Step("a", 1))
        letters = await eventually(lambda: store.dead("steps"))
        fixed.set()
        await asyncio.to_thread(
            run_headwater, "dead", "replay", "steps", letters[0].id, "--url", store.url
        )
        await eventually(lambda: seen.order)
    assert seen.order == {"a": [1]}


@pytest.mark.slow
async def test_a_former_reader_waits_for_its_handler_threads_before_it_reads_again(
    store: Store,
) -> None:
    # Given a handler in a thread, which cannot be cancelled
    app, free, runs = store.app(), threading.Event(), []

    @app.consumer(steps, group="g", order_by=by_key, claim_after="200ms", lease="40ms")
    def handle(step: Step) -> None:
        runs.append(step.number)
        if len(runs) == 1:
            free.wait(30)

    async with working(app) as running:
        (loop,) = running.loops.values()
        await steps.send_many([Step("a", 1), Step("a", 2)])
        await eventually(lambda: runs)
        # When its reader loses the key and could take it again
        await store.look.set(READER, "another", px=1)
        await eventually(lambda: not loop.in_flight.owned)
        await eventually(elapsed(0.2))
        # Then no message of that key is handled, and other processes may read
        assert runs == [1]
        assert await store.look.get(READER) is None
        free.set()
        await eventually(lambda: settled(store))
    assert runs == [1, 1, 2]


async def test_order_holds_in_a_group_that_was_destroyed(store: Store) -> None:
    # Given a running message, a waiting retry, and other messages of their keys
    app, seen, free = store.app(), Seen(), asyncio.Event()

    @app.consumer(steps, group="g", order_by=by_key, retry=Backoff("300ms", jitter=0))
    async def handle(step: Step, delivery: Delivery) -> None:
        if step.key == "a":
            await free.wait()
        elif step.number == 0 and delivery.count == 1:
            raise ValueError("not yet")
        seen.ended(step)

    async with working(app):
        await steps.send_many([Step(key, number) for number in range(4) for key in "ab"])
        await eventually(lambda: parked(store))
        # When the group is destroyed
        await store.look.xgroup_destroy("steps", "g")
        free.set()
        await steps.send_many([Step(key, number) for number in range(4, 6) for key in "ab"])
        await eventually(lambda: seen.order["a"][-1:] == seen.order["b"][-1:] == [5])
        await eventually(lambda: settled(store))

    # Then each key continues in order; what was settled since the last backup may be handled again
    for order in seen.order.values():
        assert sorted(set(order)) == list(range(6))
        assert order[-1] == 5


async def test_the_quarantine_process_does_not_read_for_ordered_consumers() -> None:
    app = App("headwater://memory")

    @app.consumer(steps, group="g", order_by=by_key)
    async def handle(step: Step) -> None: ...

    only = Running(
        app.consumers,
        around=Surroundings(Connections(app.url), LoopClock(), Random(1)),
        suspects=Suspects.ONLY,
    )
    assert only.loops == {}


async def test_the_rights_in_the_guide_suffice_to_renew_and_release_the_reader_key(
    store: Store,
) -> None:
    # Given a user with the rights in the guide
    text = (ROOT / "docs/guide/worker.md").read_text(encoding="utf-8")
    rules = text.partition("needs a user with these rights:\n\n```text\n")[2].partition("```")[0]
    rules = rules.replace("orders", "steps")
    set_user: Any = store.look.execute_command
    await set_user(b"ACL", "SETUSER", "app", "reset", "on", ">secret", *rules.split())
    app, seen = App(store.url.replace("://", "://app:secret@"), name="test"), Seen()

    @app.consumer(steps, group="g", order_by=by_key, lease="90ms", claim_after="30s")
    async def handle(step: Step) -> None:
        seen.ended(step)

    async with working(app):
        await eventually(lambda: store.look.get(READER))
        # When it reads, then it renews the reader key
        low = await store.look.pttl(READER)
        await eventually(elapsed(0.02))

        async def renewed() -> bool:
            nonlocal low
            left = await store.look.pttl(READER)
            low, before = min(low, left), low
            return bool(left > before)

        await eventually(renewed)
        await store.look.xadd("steps", dict(steps.codec.encode(Step("a", 1))))
        await eventually(lambda: seen.order == {"a": [1]})

    # And when it stops, another process may read at once
    assert await store.look.get(READER) is None
    await set_user(b"ACL", "DELUSER", "app")


@pytest.mark.slow
async def test_a_key_that_cannot_be_printed_is_reported_as_such(store: Store) -> None:
    # Given keys that may be compared, but not printed
    class Key(NamedTuple):
        name: str

        def __str__(self) -> str:
            raise ValueError("no text")

    app, go_on = store.app(), asyncio.Event()

    @app.consumer(steps, group="g", order_by=lambda step: Key(step.key), claim_after="5s")
    async def handle(step: Step) -> None:
        await go_on.wait()

    # When an entry waits for another one of its key
    async with working(app) as running:
        await steps.send_many([Step("a", 1), Step("a", 2)])
        held = await eventually(lambda: store.look.get(held_key("steps", "g")))

        # Then the report says what is wrong with the key, and the worker goes on
        assert b"(Key, whose __str__ raised ValueError)" in held
        go_on.set()
        await eventually(lambda: settled(store))
        assert not any(one.done() for one in running.failures())
