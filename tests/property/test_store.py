"""Any history of commands: the store replies like the naive model, satisfies its invariants after every
step, and recovers the same state from its journal.

A failing history is shrunk, which takes minutes; a successful run takes seconds.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.machine_pending import PendingMachine
from tests.samples import sampled


def _run(*, histories: int, steps: int) -> None:
    run_state_machine_as_test(
        PendingMachine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(600)
def test_any_history_matches_the_model_and_is_recovered() -> None:
    _run(histories=60, steps=50)


@pytest.mark.slice
@pytest.mark.timeout(900)
def test_many_long_histories_match_the_model() -> None:
    _run(histories=sampled(40), steps=120)
