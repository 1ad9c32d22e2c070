"""Waits for what another process or thread does without a notification."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 30.0


def eventually(condition: Callable[[], Any], what: str = "what was waited for") -> Any:
    """Return the first true value of ``condition``."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not happen in {PATIENCE_SECONDS} s")
