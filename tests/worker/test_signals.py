"""Waiting until the tasks of a worker have ended."""

from __future__ import annotations

import asyncio

import pytest

from headwater.worker.store import waiting


async def test_a_task_that_suppressed_its_cancellation_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a task that suppresses its first cancellation
    monkeypatch.setattr(waiting, "AGAIN_SECONDS", 0.01)
    lost = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await lost.wait()

    # When its end is awaited, then it is cancelled again and ends
    await waiting.ended([task])
    assert task.cancelled()
