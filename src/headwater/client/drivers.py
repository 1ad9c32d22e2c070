"""Two drivers, one for threads and one for asyncio, for procedures that are written once.

    procedure ──[call]───▶ driver ──▶ redis-py
              ◀──[result]─

Rule 1. A procedure is a generator. It yields a call (a function without arguments) and receives its
        result. An error of the call is raised at the yield. It may also yield a `Sleep`.
Rule 2. A driver makes no decisions. The asyncio driver awaits what a call returns, so a procedure
        yields only methods that have the same name in redis-py's two hierarchies, or that were passed to it.
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
    """Run a procedure in this thread and return its result.

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
        # An error that is raised here refers to this frame. If the frame kept a call that refers to the
        # error, that would be a reference cycle.
        step = None


async def perform(procedure: Procedure[T]) -> T:
    """Run a procedure in the running event loop and return its result; see `run`."""
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
