"""With `into=`, processing from stream to stream is exactly once, at whatever point workers are killed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests import campaigns
from tests.campaigns import Outcome
from tests.samples import sampled
from tests.worker.apps import Store
from tests.worker.kills import Campaign

SEED = 20261121
POINTS = sampled(70)

pytestmark = pytest.mark.slow


async def test_workers_killed_at_random_points_publish_each_result_exactly_once(
    store: Store,
) -> None:
    report = await Campaign(store, points=6, seed=SEED).run()
    assert (report["lost"], report["twice"], report["dead"]) == ([], [], 0), report
    assert report["results"] == report["entries"] > 0


@pytest.mark.slice
@pytest.mark.timeout(400)
async def test_workers_killed_at_many_points_publish_each_result_exactly_once(store: Store) -> None:
    began = time.monotonic()
    report = await Campaign(store, points=POINTS, seed=SEED + 1).run()
    _record(report, time.monotonic() - began)
    assert (report["lost"], report["twice"], report["dead"]) == ([], [], 0), report
    assert report["results"] == report["entries"] > 0
    assert sum(report["points"].values()) == POINTS


def _record(report: dict[str, Any], seconds: float) -> None:
    """Record the campaign's counts."""
    failures = [f"{word}: {report[word]}" for word in ("lost", "twice", "dead") if report[word]]
    seed, part = SEED + 1, f"on {report['store']}"
    outcome = Outcome(
        part, (seed, seed), sum(report["points"].values()), "kills", failures, seconds
    )
    campaigns.record("worker", outcome, directory=campaigns.SLICE)
