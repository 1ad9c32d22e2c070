"""Takes away the file descriptors of this process, as many clients do it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open ``count`` more descriptors at most, while the block runs; another one is EMFILE."""
    # The system gives the lowest free number, so there are `count` free ones below that of the last of these.
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(count + 1)]
    for descriptor in taken:
        os.close(descriptor)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
