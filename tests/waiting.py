"""Waits for what another process, thread or task does without a notification."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

PATIENCE_SECONDS = 30.0
"""Maximum time that `eventually` and `in_time` wait. Only a failing test waits that long."""


def eventually(
    condition: Callable[[], Any],
    what: str = "what was waited for",
    *,
    passing: tuple[type[Exception], ...] = (),
) -> Any:
    """Return the first true value of ``condition``. The errors ``passing`` count as a false one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with suppress(*passing):
            if found := condition():
                return found
        assert time.monotonic() < deadline, f"{what} did not happen in {PATIENCE_SECONDS} s"
        time.sleep(0.01)


async def in_time(condition: Callable[[], Any], what: str = "what was waited for") -> Any:
    """Return the first true value of ``condition``, which may be asynchronous."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = condition()
        if found := await found if asyncio.iscoroutine(found) else found:
            return found
        assert time.monotonic() < deadline, f"{what} did not happen in {PATIENCE_SECONDS} s"
        await asyncio.sleep(0.005)
