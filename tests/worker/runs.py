"""Runs an app inside a test the way `App.run` does, including its start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headwater.worker import App


@asynccontextmanager
async def run(app: App) -> AsyncIterator[asyncio.Task[None]]:
    """Run ``app.run()`` while the block runs, then stop it and raise its errors."""
    task = asyncio.create_task(app.run())
    await asyncio.sleep(0)  # lets run() begin, so that stop() has an effect
    try:
        yield task
    finally:
        app.stop()
        await task
