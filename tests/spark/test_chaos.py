"""After any process of Spark is killed, the sink has each entry once: a sample of the campaign."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.samples import sampled
from tests.spark import campaign
from tests.spark.chaos.lives import KILLS_OF, KINDS, Kind, Life, verdict

SEED = 20261121


@pytest.mark.slice
@pytest.mark.peer
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_loses_no_entry_and_duplicates_none(kind: Kind) -> None:
    kills = min(sampled(1), KILLS_OF[kind])
    life = campaign.one_life(kind, SEED, kills=kills)

    assert life.failures == []
    assert life.trials == kills, life
    assert life.entries > 0


def test_a_life_is_recorded_with_its_kills_and_failures() -> None:
    life = Life(
        "driver", "parquet", "headwater", 8, moments=["jvm in batch 1"], failures=["lost 1"]
    )
    outcome = campaign.outcome_of(life, 20.0)
    assert (outcome.part, outcome.seeds, outcome.trials) == ("driver", (8, 8), 1)
    assert outcome.failures == ["parquet on headwater: lost 1"]


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (["1-0", "2-0", "3-0"], []),
        (["1-0", "3-0"], ["lost 1: ['2-0']"]),
        (["1-0", "2-0", "2-0", "3-0"], ["too many 1: ['2-0']"]),
        (["1-0", "2-0", "4-0"], ["lost 1: ['3-0']", "too many 1: ['4-0']"]),
    ],
)
def test_the_verdict_lists_lost_and_duplicate_ids(held: list[str], said: list[str]) -> None:
    assert verdict(Counter(["1-0", "2-0", "3-0"]), Counter(held)) == said
