"""Operations that run together send what each has to say next in one request."""

from __future__ import annotations

import pytest

from headwater.groups.protocol.operation import Command, Operation, Refused, run_together, single
from tests.worker.core import Core


def test_each_operation_gets_its_own_replies(core: Core) -> None:
    # Given operations with different numbers of steps, and of commands in a step
    def echo(name: str, steps: int) -> Operation[list[list[bytes]]]:
        found = []
        for step in range(steps):
            replies = yield [["ECHO", f"{name}{step}{n}"] for n in range(step + 1)]
            found.append(replies)
        return found

    # When they run together
    found = run_together(core.client, [echo("a", 2), echo("b", 0), echo("c", 3)])

    # Then the results are in the order of the operations
    assert found == [
        [[b"a00"], [b"a10", b"a11"]],
        [],
        [[b"c00"], [b"c10", b"c11"], [b"c20", b"c21", b"c22"]],
    ]
    assert run_together(core.client, []) == []


def test_an_error_of_one_operation_is_raised_and_the_others_are_closed(core: Core) -> None:
    # Given an operation that ends with an error, and one that would go on
    closed = []

    def waiting() -> Operation[None]:
        try:
            while True:
                yield list[Command]([["PING"]])
        finally:
            closed.append(True)

    # Then the error is raised, and the other operation is closed
    with pytest.raises(Refused, match="unknown command"):
        run_together(core.client, [waiting(), single("NONSENSE")])
    assert closed == [True]


def test_an_error_that_an_operation_expects_does_not_reach_the_others(core: Core) -> None:
    def tolerant() -> Operation[str]:
        (reply,) = yield [["NONSENSE"]]
        assert isinstance(reply, Refused)
        return reply.code

    assert run_together(core.client, [tolerant(), single("ECHO", "x")]) == ["ERR", b"x"]
