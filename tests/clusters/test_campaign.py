"""A round of the campaign of clusters."""

from __future__ import annotations

import pytest

from tests.clusters import campaign
from tests.clusters.clusters import Cluster

pytestmark = [pytest.mark.clusters, pytest.mark.slow, pytest.mark.slice]

SEED = 31
"""Kill, hand over, kill, move, in order: on Redis the second kill left the shard without a primary (`Cluster.rested`)."""


async def test_nothing_is_lost_in_four_changes_in_a_row(cluster: Cluster) -> None:
    await campaign.play(cluster, SEED)
