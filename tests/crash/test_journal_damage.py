"""Whatever is done to a file of a store, opening it never results in another state without a report."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from pathlib import Path

import pytest

from headwater.config.storage import FsyncPolicy
from headwater.journal.format.checksum import place_mask
from tests.crash import damage_campaign
from tests.crash.damage_campaign import KINDS, Campaign
from tests.samples import sampled

POLICIES: tuple[FsyncPolicy, ...] = ("always", "no")
ARTIFACTS = Path(__file__).parents[2] / "artifacts"


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_damage_is_named_or_gives_a_prefix_and_is_reported(policy: FsyncPolicy) -> None:
    # Seed 3 has no clean stop
    campaign = Campaign(policy, seed=3).run()
    assert campaign.failures == []
    assert sum(campaign.outcomes.values()) > 150
    assert any("damaged" in outcome for outcome in campaign.outcomes)
    assert any("prefix, said" in outcome for outcome in campaign.outcomes)
    assert {name for name in campaign.outcomes if name.startswith("newest gone")} == {
        "newest gone: damaged"
    }


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_after_a_clean_stop_every_loss_is_damage(policy: FsyncPolicy) -> None:
    campaign = Campaign(policy, seed=1).run()
    assert campaign.stopped
    assert campaign.failures == []
    assert not any("prefix" in outcome for outcome in campaign.outcomes)


@pytest.mark.slow
def test_records_that_are_not_bound_to_their_positions_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A test of the test: without the mask a duplicated record is applied twice."""
    monkeypatch.setattr(
        "headwater.journal.format.names.JournalFile.key", property(lambda self: None)
    )
    monkeypatch.setattr(damage_campaign, "file_key", lambda number: None)
    assert place_mask(0, 1)
    campaign = Campaign("no", seed=1).run()
    assert any("a state that never existed" in failure for failure in campaign.failures)


@pytest.mark.slice
@pytest.mark.timeout(600)
def test_many_damages_to_many_histories() -> None:
    """Writes artifacts/journal_damage.json."""
    seeds = range(200, 204)
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    for policy in POLICIES:
        for seed in seeds:
            campaign = Campaign(policy, seed=seed, trials=sampled(20)).run()
            outcomes += campaign.outcomes
            failures += campaign.failures
    ARTIFACTS.mkdir(exist_ok=True)
    report = {
        "date": dt.datetime.now(dt.UTC).isoformat(),
        "policies": POLICIES,
        "seeds": list(seeds),
        "trials": sum(outcomes.values()),
        "outcomes": dict(sorted(outcomes.items())),
        "failures": failures,
    }
    (ARTIFACTS / "journal_damage.json").write_text(json.dumps(report, indent=2) + "\n")
    assert failures == []
    assert {name.partition(":")[0] for name in outcomes} == set(KINDS)
