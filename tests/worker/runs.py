"""An app that runs in a test as `App.run` runs it, its start and its stop included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headwater.worker import App


@asynccontextmanager
async def run(app: App) -> AsyncIterator[asyncio.Task[None]]:
    """``app.run()`` while the block runs; then it is stopped, and its errors are raised."""
    task = asyncio.create_task(app.run())
    await asyncio.sleep(0)  # so that there is something to stop
    try:
        yield task
    finally:
        app.stop()
        await task
