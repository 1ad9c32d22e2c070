"""Any history of commands: the store answers as the naive model, is sound after every step, and
comes back from its journal as it was.

A history that fails is shrunk, which takes minutes; one that does not takes seconds.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.machine_pending import PendingMachine


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
def test_any_history_is_as_modelled_sound_and_recovered() -> None:
    _run(histories=60, steps=50)


@pytest.mark.slice
@pytest.mark.timeout(900)
def test_many_long_histories_are() -> None:
    _run(histories=120, steps=120)
