"""Reads bytes of a file that are in the page cache, without waiting for the disk: preadv2 with RWF_NOWAIT (Linux).

Compiled modules import `read_cached` from ``page_cache_c.pxd``. That version keeps the GIL and reads into the bytes
that it returns: a blob of a few KiB takes three quarters of the time. Plain Python uses the equivalent below.
"""

from __future__ import annotations

import os

NOWAIT = getattr(os, "RWF_NOWAIT", 0) if hasattr(os, "preadv") else 0
"""The flag RWF_NOWAIT; 0 if the system does not know it."""


def read_cached(descriptor: int, offset: int, length: int) -> bytes | None:
    """Return ``length`` bytes of a file from ``offset`` on; None if it has fewer, or if some are not in memory.
    Raises `OSError`, for example if the system or the file system does not know RWF_NOWAIT."""
    data = bytearray(length)
    try:
        done = os.preadv(descriptor, [data], offset, NOWAIT)
    except BlockingIOError:
        return None
    return bytes(data) if done == length else None
