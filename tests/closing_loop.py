"""Event loops that send this process SIGTERM while they close: a process manager may signal at any time."""

from __future__ import annotations

import asyncio
import os
import signal


class ClosingLoop(asyncio.SelectorEventLoop):
    """Sends SIGTERM while it closes and afterwards."""

    def _close_self_pipe(self) -> None:
        super()._close_self_pipe()  # type: ignore[misc]
        os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        super().close()
        os.kill(os.getpid(), signal.SIGTERM)


class ClosingLoops(asyncio.DefaultEventLoopPolicy):
    """Makes every new event loop a `ClosingLoop`."""

    def new_event_loop(self) -> ClosingLoop:
        return ClosingLoop()
