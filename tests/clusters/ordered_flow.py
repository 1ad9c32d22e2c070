"""A flow of messages of several keys, in order, through two workers, and the checks at its end."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import redis.exceptions

from headwater.client.aio.connect import connect
from headwater.errors import HeadwaterError
from headwater.worker import Again, App, Delivery, Stream
from tests.clusters.clusters import Cluster
from tests.worker.apps import Store, eventually, working
from tests.worker.test_order import Step, by_key

steps: Stream[Step] = Stream("steps", Step)
done: Stream[Step] = Stream("{steps}.done", Step)
"""In the slot of ``steps``."""

KEYS = [f"key-{n}" for n in range(8)]
UNSURE = [f"unsure-{n}" for n in range(2)]
"""Keys of messages that are sent without waiting for a replica, in addition to `KEYS`."""
BATCH = 5
PAUSE_SECONDS = 0.02
"""Between two batches of a key."""


@dataclass
class OrderedFlow:
    """The messages that were sent and handled, by key."""

    app: App
    wait: int | None
    sent: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Messages that the store has confirmed; with ``wait``, a replica too."""
    began: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    handled: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    running: set[str] = field(default_factory=set)
    overlaps: list[str] = field(default_factory=list)
    runs: int = 0
    stream = steps.name

    def summary(self) -> str:
        """The line to print."""
        sent = sum(map(len, self.sent.values()))
        return (
            f"in order, {sent} confirmed, {self.count} handled, {self.runs - self.count} runs more"
        )

    @property
    def count(self) -> int:
        """The number of handled messages."""
        return sum(map(len, self.handled.values()))

    async def more(self, count: int) -> None:
        """Wait until ``count`` more messages were handled."""
        aim = self.count + count
        await eventually(lambda: self.count >= aim, "messages are handled")

    @contextmanager
    def handling(self, step: Step) -> Iterator[None]:
        """Record the run of a handler."""
        if step.key in self.running:
            self.overlaps.append(f"{step.key} {step.number}")
        self.running.add(step.key)
        self.began[step.key].append(step.number)
        self.runs += 1
        try:
            yield
            self.handled[step.key].add(step.number)
        finally:
            self.running.discard(step.key)

    async def publish(self, key: str) -> None:
        """Send one key's messages until cancelled. A refused or uncertain message is not sent again."""
        wait = None if key in UNSURE else self.wait
        number = 0
        while True:
            numbers = range(number, number + (BATCH if wait is None else 1))
            number = numbers.stop
            batch = [Step(key, one) for one in numbers]
            try:
                if wait is None:
                    await self.app.send_many(steps, batch)
                else:
                    await self.app.send(steps, batch[0], wait=wait)
                if key not in UNSURE:
                    self.sent[key] += numbers
            except (HeadwaterError, redis.exceptions.RedisError):
                pass
            await asyncio.sleep(PAUSE_SECONDS)


@asynccontextmanager
async def flowing_in_order(
    cluster: Cluster, *, url: str | None = None, wait: int | None = None
) -> AsyncIterator[OrderedFlow]:
    """Messages flow while the block runs. At its end all confirmed messages must be handled and settled,
    in order. ``url`` is another address of the cluster, for the app."""
    app = App(url or cluster.url, name="test")
    flow = OrderedFlow(app, wait)

    @app.consumer(
        steps,
        group="g",
        into=done,
        order_by=by_key,
        lease="900ms",
        claim_after="3s",
        max_deliveries=100,
    )
    async def handle(step: Step, delivery: Delivery) -> Step:
        with flow.handling(step):
            await asyncio.sleep(0.001)  # handlers of other keys run meanwhile
            if step.number % 20 == 7 and delivery.count == 1:
                raise Again(after="20ms")
        return step

    async with working(app), working(app):
        keys = KEYS if wait is None else KEYS + UNSURE
        publishing = [asyncio.create_task(flow.publish(key)) for key in keys]
        try:
            await flow.more(200)
            yield flow
        finally:
            for task in publishing:
                task.cancel()
            await asyncio.wait(publishing)
        await eventually(
            lambda: all(flow.handled[key] >= set(flow.sent[key]) for key in KEYS),
            "all that was sent is handled",
        )
        async with connect(cluster.url) as look:
            store = Store(cluster.name, cluster.url, look)
            await eventually(lambda: store.settled(stream="steps"))
            results = await store.results(done)
    judge(flow, results)


def judge(flow: OrderedFlow, results: list[Step]) -> None:
    """Raise AssertionError if a result is lost, out of order or duplicated."""
    assert flow.overlaps == []
    for key in KEYS + UNSURE:
        numbers = [one.number for one in results if one.key == key]
        first = list(dict.fromkeys(flow.began[key]))
        assert first == sorted(first), f"{key} began out of order"
        assert set(numbers) >= set(flow.sent[key]), f"results of {key} are lost"
        # Publishing and settling are one step, so a lost primary loses both together.
        assert len(numbers) == len(set(numbers)), f"results of {key} are there twice"
        if flow.wait is None:
            assert numbers == sorted(numbers), f"results of {key} are out of order"
