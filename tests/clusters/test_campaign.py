"""One round of the cluster campaign."""

from __future__ import annotations

import pytest

from tests.clusters import campaign
from tests.clusters.clusters import Cluster

pytestmark = [pytest.mark.clusters, pytest.mark.slow, pytest.mark.slice]

SEED = 57
"""Kill, kill ahead, hand over, move, with ordered messages. Successive failovers left a shard of Redis
without a primary (`Cluster.can_fail_over`)."""


async def test_nothing_is_lost_in_four_changes_in_a_row(cluster: Cluster) -> None:
    await campaign.play(cluster, SEED)
