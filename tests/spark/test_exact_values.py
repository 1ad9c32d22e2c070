"""Values that are read are those that were written: a sample of the campaign, and its check."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.spark.decoding import casting
from tests import campaigns
from tests.samples import sampled
from tests.spark.exact_campaign import CAMPAIGN, differences, run


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_values_of_every_type_are_read_as_exact_parsing_does(seed: int) -> None:
    trials, found = differences(seed)
    assert found == []
    assert trials > 10_000


@pytest.mark.slice
def test_many_values_are_read_as_exact_parsing_does() -> None:
    first = campaigns.next_seed(CAMPAIGN, "values", directory=campaigns.SLICE, first=1_000_000)
    wanted = sampled(70_000)
    outcome = run(range(first, first + 1000), wanted)
    campaigns.record(CAMPAIGN, outcome, directory=campaigns.SLICE)
    assert outcome.failures == []
    assert outcome.trials >= wanted


@pytest.mark.slow
def test_a_decimal_that_wraps_around_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given Arrow's own cast, which wraps
    monkeypatch.setattr(
        casting, "_to_decimal", lambda text, kind: text.cast(pa.string()).cast(kind)
    )
    # When values are compared
    _trials, found = differences(1)
    # Then some differ, and only decimals
    assert found
    assert all("decimal(" in each for each in found)
