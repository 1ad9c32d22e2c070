"""What an operator asks of a whole store is answered while streams and groups come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.errors import HeadwaterError
from headwater.groups.membership.member import join
from headwater.groups.protocol.operation import Operation
from headwater.groups.reports.pending import pending
from headwater.operations.explaining import look_if_there
from headwater.operations.metrics import samples
from headwater.operations.positions import reset_back, trim_to_length
from headwater.operations.refusals import Refusals
from headwater.operations.streams import lags, summaries
from tests.worker.core import Core

pytestmark = pytest.mark.slow

Asking = Callable[[], Operation[Any]]


def interrupted(step: int, delete: Callable[[], object], asking: Operation[Any]) -> Operation[bool]:
    """Delete something before a step of an operation. Return whether there was such a step."""
    steps = 0
    try:
        commands = next(asking)
        while True:
            if steps == step:
                delete()
            steps += 1
            commands = asking.send((yield commands))
    except StopIteration:
        return steps > step


def steps_with_a_deletion(
    core: Core, command: tuple[str, ...], asking: Asking
) -> list[HeadwaterError | None]:
    """Run an operation again and again, with a deletion before each of its steps in turn. Return the errors."""
    found: list[HeadwaterError | None] = []
    there = True
    while there:
        # A group with an entry that is pending, and one that is unread
        core.client.flushall()
        core.do(join(core.member))
        core.client.xgroup_create("other", "g", mkstream=True)
        for n in range(2):
            core.client.xadd("s", {"n": n})
        core.read(1)
        try:
            there = core.do(
                interrupted(len(found), lambda: core.client.execute_command(*command), asking())
            )
            found.append(None)
        except HeadwaterError as error:
            found.append(error)
    return found


DELETIONS = pytest.mark.parametrize("command", [("DEL", "s"), ("XGROUP", "DESTROY", "s", "g")])


@DELETIONS
@pytest.mark.parametrize(
    "asking",
    [
        pytest.param(lambda: look_if_there("s", Refusals([], [])), id="explain"),
        pytest.param(lambda: summaries(["s", "other"]), id="streams"),
        pytest.param(lambda: lags(["s", "other"]), id="lag"),
        pytest.param(lambda: samples(consumers=True), id="metrics"),
    ],
)
def test_what_is_deleted_while_a_store_is_examined_is_left_out(
    core: Core, command: tuple[str, ...], asking: Asking
) -> None:
    found = steps_with_a_deletion(core, command, asking)
    assert found == [None] * len(found)
    assert len(found) >= 2


@DELETIONS
@pytest.mark.parametrize(
    "asking",
    [
        pytest.param(lambda: pending("s"), id="pending"),
        pytest.param(lambda: trim_to_length("s", 0), id="trim"),
        pytest.param(lambda: reset_back("s", "g", 1), id="reset"),
    ],
)
def test_what_is_deleted_while_it_is_examined_is_named(
    core: Core, command: tuple[str, ...], asking: Asking
) -> None:
    for error in steps_with_a_deletion(core, command, asking):
        assert error is None or "'s'" in str(error) or "NOGROUP" in str(error)
