"""A store is read and restored as it was at a moment, as far back as `journal-retention` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.property.machine_moments import compared
from tests.samples import sampled

pytestmark = pytest.mark.slow

MOMENTS_OF_ONE = 10


@pytest.mark.parametrize(
    "moments", [60, pytest.param(sampled(200), marks=[pytest.mark.slice, pytest.mark.timeout(300)])]
)
def test_a_store_at_a_moment_equals_the_naive_model_at_that_moment(
    tmp_path: Path, moments: int
) -> None:
    # Given random histories with checkpoints, compactions, crashes and a retention
    found = older = seed = 0
    wrong: list[str] = []
    while found < moments and not wrong:
        seed += 1
        directory = tmp_path / str(seed)
        directory.mkdir()
        # When the store is read, and restored, as it was at random moments
        some, too_old, wrong = compared(seed, directory, most=MOMENTS_OF_ONE)
        found, older = found + some, older + too_old

    # Then it equals the naive model; a moment from before the oldest image is refused
    assert wrong == []
    assert older > 0
