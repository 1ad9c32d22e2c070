"""A worker may die at any await: the next one finishes its work, and nothing is lost or done twice."""

from __future__ import annotations

import time

import pytest

from tests import campaigns
from tests.campaigns import Outcome
from tests.worker.chaos.simulated import SCENARIOS, each_step, play, several

SEED = 20261123


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of failed deliveries are meant to be."""
    caplog.set_level("CRITICAL", "headwater.worker")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_worker_that_dies_at_any_await_loses_nothing_and_repeats_no_result(scenario: str) -> None:
    crashes, failures = play(each_step(scenario, stride=16))
    assert failures == []
    assert crashes > 5


def test_workers_that_die_one_after_the_other_lose_nothing_and_repeat_no_result() -> None:
    _crashes, failures = play(several(SEED), crashes=20)
    assert failures == []


def test_a_result_that_is_published_apart_from_its_settlement_would_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a fault: results are published first and settled in a second step
    monkeypatch.setattr("headwater.groups.settling.one_step", lambda *_: False)
    # When workers die at one step after the other
    found = (text for trial in each_step("results", first=50) for text in trial.run())
    # Then a trial finds a result that was published twice
    assert any("results of" in text for text in found)


@pytest.mark.slice
@pytest.mark.timeout(300)
def test_the_same_at_every_second_await_of_every_scenario() -> None:
    began = time.monotonic()
    crashes, failures = 0, []
    for scenario in SCENARIOS:
        done, wrong = play(each_step(scenario, stride=2))
        crashes += done
        failures += wrong
    outcome = Outcome("simulated", None, crashes, "crashes", failures, time.monotonic() - began)
    campaigns.record("chaos-worker", outcome, directory=campaigns.SLICE)
    assert failures == []
