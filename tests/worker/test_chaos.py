"""A sample of `make chaos-worker`: processes, connections and the server fail while messages flow."""

from __future__ import annotations

import time

import pytest

from tests import campaigns, peers
from tests.campaigns import Outcome
from tests.worker.chaos.events import Event, Run, repeated
from tests.worker.chaos.trial import Plan, Trial
from tests.worker.conftest import STORES

SEED = 20261123
PLAN = Plan(kills=4, pauses=1, cuts=2, server_kills=1, segfaults=1, messages=500, holds=1)


@pytest.mark.slice
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", STORES)
def test_faults_lose_no_message_repeat_no_result_and_explain_every_repeated_run(
    store: str,
) -> None:
    began = time.monotonic()
    try:
        verdict = Trial(store, PLAN, seed=SEED).run()
    except peers.PeerMissing as missing:
        pytest.skip(str(missing))
    faults = sum(count for kind, count in verdict.done.items() if kind != "messages")
    seconds = time.monotonic() - began
    part = f"processes on {store}"
    outcome = Outcome(part, (SEED, SEED), faults, "faults", verdict.failures, seconds)
    campaigns.record("chaos-worker", outcome, directory=campaigns.SLICE)
    assert verdict.failures == []
    assert faults == 10


def test_only_a_fault_between_two_runs_explains_the_second() -> None:
    # Given a message that ran in process 1 and then in process 2
    runs = {("audit", 17): [Run(10.0, 1), Run(12.0, 2)]}

    # Then the death of process 1 between the two runs explains the second, and so does the server's
    for event in (Event("SIGKILL", 1, 11.0, 11.1), Event("server kill", None, 9.0, 10.5)):
        reasons, unexplained = repeated(runs, [event])
        assert (reasons[event.kind], unexplained) == (1, [])

    # And so does a pause of process 2: it runs late what it had buffered
    assert repeated(runs, [Event("SIGSTOP", 2, 9.0, 11.9)])[1] == []

    # But the death of another process, a death after the second run, or no event does not
    for events in ([Event("SIGKILL", 2, 11.0, 11.1)], [Event("SIGKILL", 1, 13.0, 13.1)], []):
        reasons, unexplained = repeated(runs, events)
        assert len(unexplained) == 1
        assert "message 17" in unexplained[0]
