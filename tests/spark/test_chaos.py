"""After any kill of what Spark consists of, the sink holds each entry once: a sample of the campaign."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.spark import campaign
from tests.spark.chaos.lives import KINDS, Kind, Life, verdict

SEED = 20261121


@pytest.mark.slice
@pytest.mark.peer
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_killed_costs_no_entry_and_doubles_none(kind: Kind) -> None:
    life = campaign.one_life(kind, SEED, kills=2)

    assert life.failures == []
    assert life.trials == 2, life
    assert life.entries > 0


def test_the_next_run_goes_on_with_the_next_seed(tmp_path: Path) -> None:
    # Given a run that was cut short after two lives
    artifact = tmp_path / "chaos-spark.jsonl"
    campaign.record(
        Life("commit", "parquet", "headwater", 7, moments=["jvm in batch 1"]), 20, artifact
    )
    campaign.record(Life("driver", "parquet", "headwater", 8, failures=["lost 1"]), 20, artifact)

    # Then its file says what was tried, line by line, and where the next begins
    lines = campaign.recorded(artifact)
    assert [(line["kind"], line["trials"], line["failures"]) for line in lines] == [
        ("commit", 1, []),
        ("driver", 0, ["lost 1"]),
    ]
    assert campaign.next_seed(lines) == 9
    assert campaign.next_seed([]) == campaign.FIRST_SEED
    assert json.loads(artifact.read_text().splitlines()[0])["moments"] == ["jvm in batch 1"]


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (["1-0", "2-0", "3-0"], []),
        (["1-0", "3-0"], ["lost 1: ['2-0']"]),
        (["1-0", "2-0", "2-0", "3-0"], ["too many 1: ['2-0']"]),
        (["1-0", "2-0", "4-0"], ["lost 1: ['3-0']", "too many 1: ['4-0']"]),
    ],
)
def test_the_verdict_sees_what_is_lost_and_what_is_there_twice(
    held: list[str], said: list[str]
) -> None:
    assert verdict(Counter(["1-0", "2-0", "3-0"]), Counter(held)) == said
