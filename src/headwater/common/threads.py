"""Starts threads on a system that may allow no more of them (``ulimit -u``, the cgroup's ``pids.max``)."""

from __future__ import annotations

import threading

NO_THREAD = "the system allows no more threads (ulimit -u, or pids.max of the cgroup)"


def started(thread: threading.Thread) -> bool:
    """Start a thread. Return False if the system allows no more threads."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True
