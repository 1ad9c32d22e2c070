"""With `order_by`, messages of one key are handled one at a time, in the order of their ids. Keys do not
wait for each other."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import msgspec
import pytest

from headwater.errors import DeclarationError
from headwater.groups.protocol.operation import perform
from headwater.operations.causes import Cause, CauseName
from headwater.operations.explaining import entry as explain_entry
from headwater.worker import Again, App, Backoff, Batch, Dead, Delivery, Stream
from tests.worker.apps import Store, eventually, working


class Step(msgspec.Struct):
    key: str
    number: int
    do: str = ""


steps: Stream[Step] = Stream("steps", Step)


def by_key(step: Step) -> str:
    return step.key


def memory_app() -> App:
    return App("headwater://memory", name="test")


async def settled(store: Store) -> bool:
    return await store.settled(stream="steps")


class Seen:
    """The messages that a handler ran, by key, and whether two of one key overlapped."""

    def __init__(self) -> None:
        self.order: dict[str, list[int]] = defaultdict(list)
        self.running: set[str] = set()
        self.overlaps = 0
        self.most = 0

    def began(self, step: Step) -> None:
        self.overlaps += step.key in self.running
        self.running.add(step.key)
        self.most = max(self.most, len(self.running))

    def ended(self, step: Step, *, done: bool = True) -> None:
        self.running.discard(step.key)
        if done:
            self.order[step.key].append(step.number)


async def test_messages_of_a_key_are_handled_in_order_and_keys_in_parallel(store: Store) -> None:
    # Given many keys, and a handler that takes longer for early messages
    app, seen = store.app(), Seen()

    @app.consumer(steps, group="g", order_by=by_key, concurrency=8, prefetch=64)
    async def handle(step: Step) -> None:
        seen.began(step)
        await asyncio.sleep(0.002 * (5 - step.number))
        seen.ended(step)

    # When their messages arrive interleaved
    async with working(app):
        await steps.send_many([Step(str(key), n) for n in range(5) for key in range(20)])
        await eventually(lambda: settled(store))

    # Then each key is in order, and several keys run at the same time
    assert seen.order == {str(key): list(range(5)) for key in range(20)}
    assert seen.overlaps == 0
    assert seen.most > 1


async def test_a_retry_delays_the_messages_of_its_key_and_no_others(store: Store) -> None:
    # Given a message that fails twice, with a delay
    app, seen = store.app(), Seen()
    retry = Backoff("50ms", jitter=0)

    @app.consumer(steps, group="g", order_by=by_key, concurrency=4, retry=retry)
    async def handle(step: Step, delivery: Delivery) -> None:
        seen.began(step)
        await asyncio.sleep(0)
        failed = step.do == "fail" and delivery.count < 3
        seen.ended(step, done=not failed)
        if failed:
            raise ValueError("not yet")
        if step.key == "b":
            b_done.set()

    b_done = asyncio.Event()
    async with working(app):
        await steps.send_many([Step("a", 1, "fail"), Step("a", 2), Step("b", 1), Step("a", 3)])
        # When a message of another key is handled, then this key still waits
        await b_done.wait()
        assert seen.order["a"] == []
        await eventually(lambda: settled(store))
    assert seen.order == {"a": [1, 2, 3], "b": [1]}


@pytest.mark.slow
async def test_explain_says_which_entry_a_key_waits_for(store: Store) -> None:
    # Given a message whose retry is due in five minutes, and two later ones of its key
    app = store.app()

    @app.consumer(steps, group="g", order_by=by_key, retry=Backoff("5m", jitter=0))
    async def handle(step: Step) -> None:
        raise ValueError("not yet")

    async with working(app):
        ids = await steps.send_many([Step("a", 1), Step("a", 2), Step("a", 3)])

        async def causes(entry_id: str) -> list[Cause]:
            answers = await perform(store.look, explain_entry(steps.name, entry_id))
            return [one for each in answers for one in each.causes if one.name is CauseName.HELD]

        # Then both wait for the first
        (cause,) = await eventually(lambda: causes(ids[2]), "the reader says what it waits for")
        assert list(cause.entries) == [ids[1], ids[2]]
        assert f"2 entries of the key 'a' wait for {ids[0]}" in cause.statement
        assert await causes(ids[0]) == []


@pytest.mark.slow
async def test_a_key_continues_after_a_dead_letter(store: Store) -> None:
    app, seen = store.app(), Seen()

    @app.consumer(steps, group="g", order_by=by_key, retry=None, max_deliveries=2)
    async def handle(step: Step) -> None:
        if step.do == "dead":
            raise Dead("unknown customer")
        if step.do == "fail":
            raise ValueError("always")
        seen.ended(step)

    await store.look.xadd("steps", {"key": "a", "number": "no number"})
    async with working(app):
        await steps.send_many([Step("a", 1, "dead"), Step("a", 2, "fail"), Step("a", 3)])
        await eventually(lambda: settled(store))
    assert seen.order == {"a": [3]}
    assert len(await store.dead("steps")) == 3


async def test_a_key_waits_for_the_settlement_of_the_message_before() -> None:
    # Given a handler whose results must be published before the next message of the key begins
    app = memory_app()
    done: Stream[Step] = Stream("done", Step)
    published: list[list[int]] = []

    @app.consumer(steps, group="g", order_by=by_key, into=done)
    async def handle(step: Step) -> Step:
        published.append([one.number for one in t.results(done)])
        return step

    async with app.test() as t:
        await t.send(steps, *(Step("a", number) for number in range(3)))
        assert published == [[], [0], [0, 1]]


async def parked(store: Store) -> bool:
    rows = await store.pending(stream="steps")
    return any(owner in ("", "hw.parked") for _id, owner, _idle, _count in rows)


async def test_a_retry_is_read_although_its_key_has_filled_the_prefetch(
    store: Store,
) -> None:
    # Given a prefetch of four entries, and a first message that waits for its retry
    app, seen = store.app(), Seen()

    @app.consumer(
        steps, group="g", order_by=by_key, concurrency=2, prefetch=4, retry=Backoff("100ms")
    )
    async def handle(step: Step, delivery: Delivery) -> None:
        if step.number == 0 and delivery.count == 1:
            raise ValueError("not yet")
        seen.ended(step)

    async with working(app) as running:
        (loop,) = running.loops.values()
        # When more messages of its key arrive than can be prefetched
        await steps.send_many([Step("a", number) for number in range(12)])
        await eventually(lambda: len(loop.in_flight.owned) == 4)
        await eventually(lambda: settled(store))
    # Then they are handled in order
    assert seen.order == {"a": list(range(12))}


async def test_retries_of_two_keys_are_read_although_the_prefetch_is_full() -> None:
    # Given a prefetch of four entries, and first messages of two keys that wait for their retries
    app, seen = memory_app(), Seen()
    delays = {"a": "20s", "b": "30s"}

    @app.consumer(steps, group="g", order_by=by_key, prefetch=4, claim_after="10m")
    async def handle(step: Step, delivery: Delivery) -> None:
        if step.number == 0 and delivery.count == 1:
            raise Again(after=delays[step.key])
        seen.ended(step)

    async with app.test() as t:
        # When the messages behind the second retry fill the prefetch
        await t.send(steps, Step("b", 0), Step("a", 0), *(Step("b", n) for n in range(1, 9)))
        assert seen.order == {}

        # Then each key is handled when its retry is due
        await t.advance("20s")
        assert seen.order == {"a": [0]}
        await t.advance("11s")
        assert seen.order == {"a": [0], "b": list(range(9))}


async def test_a_key_continues_when_its_waiting_message_is_deleted(store: Store) -> None:
    app, seen = store.app(), Seen()

    @app.consumer(steps, group="g", order_by=by_key, retry=Backoff("100ms", jitter=0))
    async def handle(step: Step) -> None:
        if step.number == 0:
            raise ValueError("not yet")
        seen.ended(step)

    async with working(app):
        first, *_ = await steps.send_many([Step("a", number) for number in range(3)])
        await eventually(lambda: parked(store))
        await store.look.xdel("steps", first)
        await eventually(lambda: settled(store))
    assert seen.order == {"a": [1, 2]}


async def test_a_key_continues_when_another_client_acknowledges_its_waiting_message(
    store: Store,
) -> None:
    app, seen = store.app(), Seen()

    @app.consumer(steps, group="g", order_by=by_key, retry=Backoff("100ms", jitter=0))
    async def handle(step: Step) -> None:
        if step.number == 0:
            raise ValueError("not yet")
        seen.ended(step)

    async with working(app):
        first, *_ = await steps.send_many([Step("a", number) for number in range(3)])
        await eventually(lambda: parked(store))
        await store.look.xack("steps", "g", first)
        await eventually(lambda: settled(store))
    assert seen.order == {"a": [1, 2]}


async def test_a_failing_key_function_fails_the_delivery(store: Store) -> None:
    app, handled = store.app(), []

    def key(step: Step) -> Any:
        return {"list": []}[step.key]  # an unhashable key, or KeyError

    @app.consumer(steps, group="g", order_by=key, max_deliveries=2, retry=None)
    async def handle(step: Step) -> None:
        handled.append(step)

    async with working(app):
        await steps.send_many([Step("list", 1), Step("missing", 2)])
        await eventually(lambda: settled(store))
    errors = sorted(letter.error for letter in await store.dead("steps"))
    assert errors[0].startswith("KeyError")
    assert errors[1].startswith("TypeError: unhashable")
    assert handled == []


async def test_again_without_delay_keeps_the_order_of_the_key(store: Store) -> None:
    app, seen = store.app(), Seen()
    times: list[Step] = []

    @app.consumer(steps, group="g", order_by=by_key)
    async def handle(step: Step) -> None:
        if step.number == 0 and len(times) < 3:
            times.append(step)
            raise Again(after="0s", counted=False)
        seen.ended(step)

    async with working(app):
        await steps.send_many([Step("a", number) for number in range(3)])
        await eventually(lambda: settled(store))
    assert seen.order == {"a": [0, 1, 2]}


async def test_a_suspected_poison_message_keeps_its_place_and_is_quarantined() -> None:
    # Given a first message that was in flight when its process died, twice
    app, runs, restarted = memory_app(), [], asyncio.Event()

    @app.consumer(steps, group="g", order_by=by_key, claim_after="10s")
    async def handle(step: Step) -> None:
        runs.append(step.number)
        if not restarted.is_set():
            await asyncio.Event().wait()

    async with app.test() as t:
        await t.send(steps, Step("a", 1), Step("a", 2), Step("a", 3))
        t.crash(handle)
        await t.advance("11s")
        t.crash(handle)
        assert runs == [1, 1]
        restarted.set()
        # When it is claimed again, then it runs before the others of its key
        await t.advance("60s")
        assert runs == [1, 1, 1, 2, 3]
        assert t.pending(handle) == {}


async def test_suspected_poison_messages_of_many_keys_run_one_by_one_without_a_pause() -> None:
    # Given one message of each of ten keys, in flight when their process died, twice
    app, runs, restarted = memory_app(), [], asyncio.Event()

    @app.consumer(steps, group="g", order_by=by_key, claim_after="10s")
    async def handle(step: Step) -> None:
        runs.append(step.key)
        if not restarted.is_set():
            await asyncio.Event().wait()

    keys = [str(key) for key in range(10)]
    async with app.test() as t:
        await t.send(steps, *(Step(key, 1) for key in keys))
        t.crash(handle)
        await t.advance("11s")
        t.crash(handle)
        restarted.set()
        runs.clear()
        # When the next process reads, then the messages do not wait for each other
        await t.advance("11s")
        assert runs == keys


def test_an_invalid_order_by_is_refused() -> None:
    async def handle(step: Step) -> None: ...
    async def load(rows: Batch[Step]) -> None: ...

    with pytest.raises(DeclarationError, match="order_by='key' must be a function"):
        memory_app().consumer(steps, group="g", order_by="key")(handle)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="a batch has no order_by"):
        memory_app().batch(steps, group="g", order_by=by_key)(load)


class _Incomparable:
    """A key that can be hashed but not compared, like one that contains an array."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")


async def test_keys_that_cannot_be_compared_fail_the_delivery_and_not_the_reader() -> None:
    # Given a function whose keys for two of three messages cannot be compared
    app = memory_app()
    handled: list[int] = []

    @app.consumer(
        steps,
        group="g",
        order_by=lambda step: _Incomparable() if step.key == "odd" else step.key,
        max_deliveries=1,
    )
    async def handle(step: Step) -> None:
        handled.append(step.number)

    async with app.test() as t:
        # When they arrive together
        await t.send(steps, Step("odd", 1), Step("odd", 2), Step("even", 3))

        # Then the second is a dead letter that names the error, and the others are handled
        assert sorted(handled) == [1, 3]
        (letter,) = t.dead(steps)
        assert "the truth value is ambiguous" in letter.error
