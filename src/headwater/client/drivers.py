"""Two drivers, for threads and for asyncio, of procedures that are written once.

    procedure ──[call]───▶ driver ──▶ redis-py
              ◀──[result]─

Rule 1. A procedure is a generator. It yields a call, a function without arguments, and is sent its
        result; an error of the call is raised where the procedure yielded it. Or it yields a `Sleep`.
Rule 2. A driver decides nothing. That of asyncio awaits what a call returns, so a procedure yields
        only methods that redis-py's two hierarchies have under the same name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

Call: TypeAlias = Callable[[], Any]


class Sleep(NamedTuple):
    """A wait between two calls."""

    seconds: float


Procedure: TypeAlias = Generator[Call | Sleep, Any, T]


def run(procedure: Procedure[T]) -> T:
    """Carry out a procedure in this thread; its result.

    >>> def twice(ask):
    ...     first = yield ask
    ...     return first + (yield ask)
    >>> run(twice(lambda: 2))
    4

    Raises what the procedure raises.
    """
    step: Any = None
    try:
        step = next(procedure)
        while True:
            try:
                if isinstance(step, Sleep):
                    time.sleep(step.seconds)
                    result = None
                else:
                    result = step()
            except BaseException as error:
                step = procedure.throw(error)
            else:
                step = procedure.send(result)
    except StopIteration as finished:
        returned: T = finished.value
        return returned
    finally:
        # An error that leaves here holds this frame; a call that holds the error would close the ring.
        step = None


async def perform(procedure: Procedure[T]) -> T:
    """Carry out a procedure in the running event loop, as `run` does in a thread."""
    step: Any = None
    try:
        step = next(procedure)
        while True:
            try:
                if isinstance(step, Sleep):
                    await asyncio.sleep(step.seconds)
                    result = None
                else:
                    result = await step()
            except BaseException as error:
                step = procedure.throw(error)
            else:
                step = procedure.send(result)
    except StopIteration as finished:
        returned: T = finished.value
        return returned
    finally:
        step = None  # as in `run`
