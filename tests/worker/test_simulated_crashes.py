"""A worker can die at any await: the next one continues, nothing is lost and no result is repeated."""

from __future__ import annotations

import itertools
import time

import pytest

from tests import campaigns
from tests.campaigns import Outcome
from tests.samples import every
from tests.worker.chaos.scenarios import SCENARIOS, Shape
from tests.worker.chaos.simulated import How, Played, each_step, play, several

SEED = 20261123

STRIDES = {Shape.EACH: 24, Shape.BATCH: 24, Shape.ORDER: 72}
"""Every n-th step is tested. An ordered consumer takes three times as many steps."""

SLICE_STRIDES = {
    Shape.EACH: (every(5), every(150)),
    Shape.BATCH: (every(60), every(150)),
    Shape.ORDER: (every(100), every(250)),
}
"""Strides in `make slice`, for deaths and for other interruptions. They take 20 seconds together."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Silence the log: the trials have thousands of failed deliveries."""
    caplog.set_level("CRITICAL", "headwater.worker")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_worker_that_dies_at_any_await_loses_nothing_and_repeats_no_result(scenario: str) -> None:
    done, failures = play(each_step(scenario, stride=STRIDES[SCENARIOS[scenario].shape]))
    assert failures == []
    assert done["crashes"] > 5


@pytest.mark.slow
def test_successive_deaths_of_workers_lose_nothing_and_repeat_no_result() -> None:
    _done, failures = play(several(SEED), crashes=20)
    assert failures == []


# --- faults that the trials must find -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["results", "batches", "keys"])
def test_the_trials_find_results_published_in_a_second_step(
    monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    # Given a fault: results are published first and settled in a second step
    monkeypatch.setattr("headwater.groups.settling.settling.one_step", lambda *_: False)
    # When workers die at one step after the other
    found = (text for trial in each_step(scenario, first=50) for text in trial.run())
    # Then a trial finds a result that was published twice
    assert any("results of" in text for text in found)


@pytest.mark.slow
def test_the_trials_find_a_reader_that_does_not_load_pending_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a fault: a process that becomes the reader of an ordered group does not load pending entries
    async def note(*_: object) -> None: ...

    monkeypatch.setattr("headwater.worker.read.ordered_fetch.OrderedFetch._list", note)
    # When readers die at one step after the other
    found = (text for trial in each_step("keys", first=50) for text in trial.run())
    # Then a trial finds a message that ran out of order
    assert any("was settled" in text for text in found)


# --- longer campaigns -----------------------------------------------------------------------------


@pytest.mark.slice
@pytest.mark.timeout(300)
def test_every_interruption_at_many_awaits_of_every_scenario() -> None:
    began = time.monotonic()
    done, failures = Played(), []
    for name, scenario in SCENARIOS.items():
        deaths, others = SLICE_STRIDES[scenario.shape]
        trials = [
            each_step(name, stride=deaths),
            each_step(name, stride=others, how=How.HALT),
            each_step(name, stride=others, how=How.STOP),
        ]
        more, wrong = play(itertools.chain(*trials))
        done += more
        failures += wrong
    outcome = Outcome(
        "simulated", None, done.total(), "interruptions", failures, time.monotonic() - began
    )
    campaigns.record("chaos-worker", outcome, directory=campaigns.SLICE)
    assert failures == []
