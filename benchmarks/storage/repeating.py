"""Something that is done again and again during a measurement."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(run: Callable[[], object], seconds: float, *, name: str) -> Iterator[None]:
    """Call ``run`` in a thread inside the block: first after ``seconds``, then always after that time. ``name`` is
    the thread's."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            run()

    thread = threading.Thread(target=repeat, name=name)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
