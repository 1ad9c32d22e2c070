"""Both drivers run the same procedures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headwater.client.drivers import Procedure, Sleep, perform, run


def _for_threads(make: Callable[[Callable[..., Any]], Procedure[Any]]) -> Any:
    return run(make(partial))


def _for_loops(make: Callable[[Callable[..., Any]], Procedure[Any]]) -> Any:
    async def awaited(action: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return action(*arguments)

    return asyncio.run(perform(make(lambda *given: partial(awaited, *given))))


drivers = pytest.mark.parametrize("carry_out", [_for_threads, _for_loops])


@drivers
def test_results_and_errors_of_a_call_arrive_at_its_yield(carry_out: Any) -> None:
    # Given a procedure that continues after an error, and sleeps in between
    def procedure(call: Callable[..., Any]) -> Procedure[list[Any]]:
        found = [(yield call(len, "abc"))]
        try:
            yield call(int, "x")
        except ValueError as error:
            found.append(str(error)[:15])
        yield Sleep(0.001)
        return [*found, (yield call(len, ""))]

    # When a driver runs it, then it returns the collected results
    assert carry_out(procedure) == [3, "invalid literal", 0]


@drivers
def test_an_error_that_the_procedure_does_not_catch_reaches_the_caller(carry_out: Any) -> None:
    def procedure(call: Callable[..., Any]) -> Procedure[None]:
        yield call(int, "x")

    with pytest.raises(ValueError, match="invalid literal"):
        carry_out(procedure)


async def test_a_cancelled_call_is_raised_in_the_procedure() -> None:
    # Given a procedure in the middle of a call
    ended: list[str] = []

    def procedure() -> Procedure[None]:
        try:
            yield partial(asyncio.sleep, 60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    task = asyncio.create_task(perform(procedure()))
    await asyncio.sleep(0)
    # When its task is cancelled
    task.cancel()
    # Then the procedure and the task's owner get CancelledError
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]
