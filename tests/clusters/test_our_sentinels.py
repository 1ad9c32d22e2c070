"""Sentinels of Redis and Valkey, unmodified, watch our servers and promote one of them when the primary is gone."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.clusters import clusters
from tests.clusters.clusters import OURS, Sentinels, until
from tests.clusters.conftest import skipped_without_peer
from tests.clusters.test_sentinels import flowing_to_another_primary
from tests.worker.apps import eventually

pytestmark = [pytest.mark.clusters, pytest.mark.slow]


@pytest.fixture(params=["redis-7.0", "redis-8.2", "valkey-9.1"])
def sentinels(request: pytest.FixtureRequest) -> Iterator[Sentinels]:
    """Three Sentinels of a peer, and three of our servers."""
    with skipped_without_peer(), clusters.sentinels(request.param, servers=OURS) as found:
        yield found


async def _kill(found: Sentinels) -> None:
    found.primary().kill()


async def _hand_over(found: Sentinels) -> None:
    await asyncio.to_thread(found.sentinels[0].ask, "SENTINEL", "FAILOVER", "shop")


async def _hang(found: Sentinels) -> None:
    before = found.primary()
    before.peer.process.send_signal(signal.SIGSTOP)
    try:
        await eventually(lambda: found.primary() is not before)
    finally:
        before.peer.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("change", [_kill, _hand_over, _hang])
async def test_workers_follow_our_new_primary(
    sentinels: Sentinels, change: Callable[[Sentinels], Awaitable[None]]
) -> None:
    await flowing_to_another_primary(sentinels, lambda: change(sentinels))


def test_a_former_primary_follows_the_new_one(sentinels: Sentinels) -> None:
    # Given a service with data, whose primary hangs until another was promoted
    before = sentinels.primary()
    for number in range(100):
        before.ask("XADD", "s", "*", "n", number)
    before.peer.process.send_signal(signal.SIGSTOP)
    until(lambda: sentinels.primary() is not before, "a replica is promoted")
    # When it goes on
    before.peer.process.send_signal(signal.SIGCONT)
    # Then the Sentinels make it a replica of the new one
    until(lambda: before.ask("ROLE")[0] == b"slave", "it follows")
    after = sentinels.primary()
    after.ask("XADD", "s", "*", "n", "last")
    until(lambda: before.ask("XLEN", "s") == 101, "it has the new entry")
    assert (
        f"replicaof 127.0.0.1 {after.port}"
        in (before.peer.directory / "headwater.conf").read_text()
    )
