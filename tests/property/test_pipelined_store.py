"""Pipelines of any commands: the store replies like the naive model, satisfies its invariants, and recovers
from its journal. `make conform` runs 200,000 commands.
"""

from __future__ import annotations

import pytest

from headwater.common.limits import PENDING_BLOCK_RECORDS
from tests.property.machine_pipelined import PipelinedMachine
from tests.property.model_campaign import Run, explained, history

SMALL, LARGE = 0, 2
"""Seeds of a small and of a large store."""


@pytest.mark.parametrize("seed", [SMALL, LARGE])
def test_a_pipeline_matches_the_model_and_is_recovered(seed: int) -> None:
    assert not Run(history(seed)).what


@pytest.mark.slice
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_pipelines_match_the_model(seed: int) -> None:
    assert not Run(history(seed)).what


@pytest.mark.slow
def test_a_failing_history_is_shrunk_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a model that is wrong in one respect
    def xlen_of_none(_machine: PipelinedMachine, _random: object) -> None:
        _machine.put("XLEN", "none", to=lambda: 7)

    monkeypatch.setattr(PipelinedMachine, "xsplit", xlen_of_none)
    steps = history(SMALL)[:200]
    assert any(step.what == "xsplit" for step in steps)
    # When a history is compared
    what = explained(steps)
    # Then only that command is shown
    assert what.startswith("1 steps: xsplit\n")
    assert "the store says 0, the model 7" in what


def test_a_large_store_has_more_pending_entries_than_fit_into_a_block() -> None:
    run = Run(history(LARGE)[:1])
    assert not run.what
    group = run.machine.model.streams[b"s"].groups[b"g"]
    assert len(group.pending) > 2 * PENDING_BLOCK_RECORDS
