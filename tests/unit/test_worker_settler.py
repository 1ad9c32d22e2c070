"""Entries that wait in a settler share a settlement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from headwater.groups.membership.member import Member
from headwater.groups.protocol.capabilities import Capabilities
from headwater.groups.reading.claiming import Delivered
from headwater.groups.settling.settling import Addition, How, Settlement, SettleOutcome
from headwater.testing import ManualClock
from headwater.worker.declare.outcome import Ending
from headwater.worker.declare.owned import Owned
from headwater.worker.settle.settle import (
    ALONE_BYTES,
    BATCH,
    BATCH_RESULTS,
    Queued,
    Settler,
)

MEMBER = Member("s", "g", "c", 1_000, Capabilities(verbs=True, cluster=False, server="test"))

Answer = Callable[[Settlement], SettleOutcome]


def an_entry(number: int, *additions: Addition) -> Owned:
    owned = Owned(Delivered(b"%d-0" % number, [], 1, False, False), MEMBER)
    owned.additions = additions
    return owned


def to(stream: str, value: bytes = b"v") -> Addition:
    return Addition(stream, [(b"data", value)])


def done(_settlement: Settlement) -> SettleOutcome:
    return SettleOutcome(done=True)


async def sent(
    queue: Sequence[Owned | Queued], *, answer: Answer = done
) -> tuple[list[list[Settlement]], list[tuple[Queued, SettleOutcome]]]:
    """Settle the entries. Return the batches that were sent and the outcome of each settlement."""
    batches: list[list[Settlement]] = []
    ended: list[tuple[Queued, SettleOutcome]] = []

    async def send(settlements: list[Settlement]) -> list[SettleOutcome]:
        batches.append(settlements)
        return [answer(one) for one in settlements]

    def end(queued: Queued, outcome: SettleOutcome) -> None:
        if queued.shared and not outcome.done:
            settler.part(queued)
        else:
            ended.append((queued, outcome))

    settler = Settler(ManualClock(), send, end, how=How.ACKED)
    for one in queue:
        settler.add(one)
    running = asyncio.create_task(settler.run())
    while len(settler):
        settler.hurry()
        await asyncio.sleep(0)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return batches, ended


async def test_entries_whose_handlers_returned_nothing_are_one_settlement() -> None:
    entries = [an_entry(number) for number in range(3)]

    batches, ended = await sent(entries)

    assert batches == [[Settlement(b"0-0", How.ACKED, 0, [], [b"1-0", b"2-0"], any_owner=True)]]
    assert [(queued.entries, queued.ending) for queued, _ in ended] == [
        (entries, Ending.ACKNOWLEDGED)
    ]


async def test_results_for_one_stream_share_a_settlement_and_those_for_several_do_not() -> None:
    left, right = to("left"), to("right")
    queue = [
        an_entry(1, left),
        an_entry(2, right),
        an_entry(3, left, right),
        an_entry(4, left, left),
        an_entry(5),
    ]

    ((*batch,),), _ended = await sent(queue)

    assert sorted(batch, key=lambda one: one.id) == [
        Settlement(b"1-0", How.ACKED, 0, [left, left, left], [b"4-0"], any_owner=True),
        Settlement(b"2-0", How.ACKED, 0, [right], [], any_owner=True),
        Settlement(b"3-0", How.ACKED, 0, [left, right], [], any_owner=True),
        Settlement(b"5-0", How.ACKED, 0, [], [], any_owner=True),
    ]


async def test_a_shared_settlement_that_did_nothing_is_repeated_entry_by_entry() -> None:
    # Given results of three entries, of which another worker owns one
    entries = [an_entry(number, to("results", b"%d" % number)) for number in range(3)]

    def answer(settlement: Settlement) -> SettleOutcome:
        if b"1-0" in settlement.ids:
            return SettleOutcome(done=False, missed=settlement.ids)
        return SettleOutcome(done=True, added=[b"9-9"])

    # When they are settled
    batches, ended = await sent(entries, answer=answer)

    # Then each has a separate settlement in the next batch, with its result
    assert len(batches) == 2
    assert [(one.id, one.additions) for one in batches[1]] == [
        (owned.id, owned.additions) for owned in entries
    ]
    assert [(queued.entries, outcome.done) for queued, outcome in ended] == [
        ([entries[0]], True),
        ([entries[1]], False),
        ([entries[2]], True),
    ]


async def test_a_batch_is_bounded_in_entries_and_bytes() -> None:
    # Given more than a batch of small results, then three that fill half a batch each
    half = b"x" * (ALONE_BYTES // 2 + 1)
    small = [an_entry(number, to("results")) for number in range(BATCH + 1)]
    big = [an_entry(number, to("results", half)) for number in range(1_000, 1_003)]

    # When they are settled
    batches, _ended = await sent([*small, *big])

    # Then a batch ends with its 256th entry, or with the result that fills it
    assert [len(one.ids) for batch in batches for one in batch] == [BATCH, 3, 1]


async def test_large_results_are_sent_alone_and_delay_no_other() -> None:
    # Given large results before small ones, and a store that does not answer for the large ones
    large = [an_entry(n, to("results", b"x" * ALONE_BYTES)) for n in range(2)]
    small = [an_entry(number, to("results")) for number in range(10, 13)]
    begun: list[list[bytes]] = []
    settled: list[bytes] = []
    answer = asyncio.Event()

    async def send(settlements: list[Settlement]) -> list[SettleOutcome]:
        ids = [entry_id for one in settlements for entry_id in one.ids]
        begun.append(ids)
        if len(ids) == 1:
            await answer.wait()
        return [SettleOutcome(done=True)] * len(settlements)

    def end(queued: Queued, _outcome: SettleOutcome) -> None:
        settled.extend(owned.id for owned in queued.entries)

    settler = Settler(ManualClock(), send, end)
    for one in [*large, *small]:
        settler.add(one)
    settler.hurry()
    running = asyncio.create_task(settler.run())
    while len(begun) < 1 + len(large):  # noqa: ASYNC110 - until it waits
        await asyncio.sleep(0)

    # Then the small ones are settled in one batch, and the large ones are under way
    assert settled == [owned.id for owned in small]
    assert sorted(begun, key=len) == [[b"0-0"], [b"1-0"], [b"10-0", b"11-0", b"12-0"]]
    assert settler.under_way().startswith("the result of 0-0 of s (0.0 of 0.3 MB sent)")
    # When the store answers, then these are settled too
    answer.set()
    await settler.drained()
    assert len(settled) == len(small) + len(large)
    assert settler.under_way() == ""
    running.cancel()


async def test_a_batch_is_bounded_in_results() -> None:
    # Given entries with many small results each
    entries = [an_entry(n, *[to("results")] * (BATCH_RESULTS // 2)) for n in range(3)]

    batches, _ended = await sent(entries)

    assert [len(one.additions) for batch in batches for one in batch] == [
        BATCH_RESULTS,
        BATCH_RESULTS // 2,
    ]
