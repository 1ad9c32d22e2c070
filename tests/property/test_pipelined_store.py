"""Pipelines of any commands: the store answers as the naive model, is sound, and comes back from its
journal. `make conform` puts 200,000 commands.
"""

from __future__ import annotations

import pytest

from headwater.limits import PENDING_BLOCK_RECORDS
from tests.property.machine_pipelined import PipelinedMachine
from tests.property.model_campaign import Run, explained, history

SMALL, LARGE = 0, 2
"""Seeds of a small and of a large store."""


@pytest.mark.parametrize("seed", [SMALL, LARGE])
def test_a_pipeline_is_as_modelled_sound_and_recovered(seed: int) -> None:
    assert not Run(history(seed)).what


@pytest.mark.slice
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_pipelines_are(seed: int) -> None:
    assert not Run(history(seed)).what


def test_a_history_that_fails_is_shrunk_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a model that believes one thing otherwise
    def xlen_of_none(_machine: PipelinedMachine, _random: object) -> None:
        _machine.put("XLEN", "none", to=lambda: 7)

    monkeypatch.setattr(PipelinedMachine, "xsplit", xlen_of_none)
    steps = history(SMALL)[:200]
    assert any(step.what == "xsplit" for step in steps)
    # When a history is compared
    what = explained(steps)
    # Then what is shown is that command alone
    assert what.startswith("1 steps: xsplit\n")
    assert "the store says 0, the model 7" in what


def test_a_large_store_has_more_pending_than_a_block_holds() -> None:
    run = Run(history(LARGE)[:1])
    assert not run.what
    group = run.machine.model.streams[b"s"].groups[b"g"]
    assert len(group.pending) > 2 * PENDING_BLOCK_RECORDS
