"""The table of remedies: what to do about an error of the store, at each step."""

from __future__ import annotations

import pytest
import redis.exceptions as theirs

from headwater.errors import DeclarationError, Disconnected, StoreClosed
from headwater.groups.protocol.operation import GroupVanished, Refused
from headwater.groups.protocol.store_errors import Remedy, Step, remedy
from headwater.worker.store.connections import LONGEST_PAUSE, Pause, deadline_s

JOINED = [step for step in Step if step is not Step.JOIN]


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize(
    "code", ["OOM", "MISCONF", "NOREPLICAS", "BUSY", "TRYAGAIN", "CLUSTERDOWN"]
)
def test_temporary_errors_are_waited_for_at_every_step(step: Step, code: str) -> None:
    assert remedy(Refused(f"{code} as the server says it"), step) is Remedy.WAIT


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize("code", ["READONLY", "MASTERDOWN", "LOADING", "UNBLOCKED"])
def test_errors_of_a_wrong_server_lead_to_a_reconnect_at_every_step(step: Step, code: str) -> None:
    assert remedy(Refused(f"{code} as the server says it"), step) is Remedy.RECONNECT


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize(
    "error",
    [
        theirs.ConnectionError("closed"),
        theirs.TimeoutError("no answer"),
        theirs.InvalidResponse("Protocol Error: b'HTTP/1.1 502'"),
        theirs.BusyLoadingError("Redis is loading the dataset in memory"),
        ConnectionResetError(),
        Disconnected("gone"),
        StoreClosed("closed"),
    ],
    ids=repr,
)
def test_a_lost_connection_is_replaced_at_every_step(step: Step, error: Exception) -> None:
    assert remedy(error, step) is Remedy.RECONNECT


@pytest.mark.parametrize(
    "error",
    [
        theirs.AuthenticationError("invalid username-password pair"),
        Refused("WRONGPASS invalid username-password pair"),
        Refused("NOAUTH Authentication required."),
    ],
    ids=str,
)
def test_a_wrong_password_ends_only_a_worker_that_has_not_joined(error: Exception) -> None:
    assert remedy(error, Step.JOIN) is Remedy.END
    assert {remedy(error, step) for step in JOINED} == {Remedy.RECONNECT}


@pytest.mark.parametrize("code", ["NOPERM", "WRONGTYPE", "ERR", "NOTHEARDOF"])
def test_permanent_errors_fail_only_the_settlement_or_message(code: str) -> None:
    error = Refused(f"{code} as the server says it")
    assert {step: remedy(error, step) for step in Step} == {
        Step.JOIN: Remedy.END,
        Step.READ: Remedy.WAIT,
        Step.CLAIM: Remedy.WAIT,
        Step.RENEW: Remedy.WAIT,
        Step.SETTLE: Remedy.FAIL,
        Step.PUBLISH: Remedy.FAIL,
    }


def test_a_missing_group_is_created_again_and_programming_errors_end_the_worker() -> None:
    assert remedy(GroupVanished("NOGROUP no such group", "NOGROUP"), Step.SETTLE) is Remedy.REJOIN
    assert remedy(DeclarationError("claims after 5 s"), Step.JOIN) is Remedy.END
    assert remedy(TypeError("ours"), Step.READ) is Remedy.END


def test_pauses_double_and_are_reset_after_a_success() -> None:
    pause = Pause()
    assert [pause.next() for _ in range(3)] == [0.05, 0.1, 0.2]
    assert [pause.next() for _ in range(10)][-1] == LONGEST_PAUSE
    pause.reset()
    assert pause.next() == 0.05


@pytest.mark.parametrize(("claim_after_ms", "seconds"), [(300, 1.0), (30_000, 10 / 3)])
def test_the_deadline_of_a_reply_is_a_third_of_the_lease(
    claim_after_ms: int, seconds: float
) -> None:
    assert deadline_s(claim_after_ms // 3) == pytest.approx(seconds)
