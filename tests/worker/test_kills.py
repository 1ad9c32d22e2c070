"""With `into=`, stream to stream is exactly once: whatever is killed whenever."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.worker.apps import Store
from tests.worker.kills import Campaign

SEED = 20261121
POINTS = 200
ARTIFACTS = Path(__file__).resolve().parent.parent.parent / "artifacts"

pytestmark = pytest.mark.slow


async def test_workers_killed_and_stopped_at_random_points_lose_no_result_and_publish_none_twice(
    store: Store,
) -> None:
    report = await Campaign(store, points=6, seed=SEED).run()
    assert (report["lost"], report["twice"], report["dead"]) == ([], [], 0), report
    assert report["results"] == report["entries"] > 0


@pytest.mark.slice
@pytest.mark.timeout(400)
async def test_the_same_at_200_points(store: Store) -> None:
    report = await Campaign(store, points=POINTS, seed=SEED + 1).run()
    _record(report)
    assert (report["lost"], report["twice"], report["dead"]) == ([], [], 0), report
    assert report["results"] == report["entries"] > 0
    assert sum(report["points"].values()) == POINTS


def _record(report: dict[str, object]) -> None:
    """Write the counts down; a claim without them does not count."""
    ARTIFACTS.mkdir(exist_ok=True)
    place = ARTIFACTS / "worker_kill.json"
    known = json.loads(place.read_text()) if place.exists() else {}
    store = str(report["store"])
    report = {**report, "seed": SEED + 1, "date": datetime.now(UTC).isoformat(timespec="seconds")}
    place.write_text(json.dumps({**known, store: report}, indent=2) + "\n")
