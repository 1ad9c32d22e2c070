"""The Spark source with clusters and Sentinels."""

from __future__ import annotations

import pytest

from headwater.errors import HeadwaterError
from headwater.spark.core.options import parse_options
from headwater.spark.core.store import SourceStore
from tests.clusters.clusters import Cluster, Sentinels

pytestmark = [pytest.mark.clusters, pytest.mark.slow]


def test_the_url_of_a_cluster_node_is_refused(cluster: Cluster) -> None:
    url = cluster.other("orders").peer.url
    store = SourceStore(parse_options({"url": url, "stream": "orders"}))
    with pytest.raises(HeadwaterError, match="is a node of a cluster"):
        store.ask("XLEN", "orders")
    store.close()


def test_the_source_reads_the_primary_that_sentinels_name(sentinels: Sentinels) -> None:
    sentinels.primary().client.xadd("orders", {"id": "1"})
    store = SourceStore(parse_options({"url": sentinels.url, "stream": "orders"}))
    state = store.state("orders")
    store.close()
    assert state is not None
    assert state.entries_added == 1
