"""Clusters and Sentinels that the tests of a process share, and workers on them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests import peers
from tests.clusters import clusters
from tests.clusters.clusters import Cluster, Sentinels

CLUSTERED = ("redis-8.2", "valkey-9.1")


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Callable[[str], Cluster]]:
    """Gives the cluster of a peer, started when it is first asked for."""
    with ExitStack() as stack:
        found: dict[str, Cluster] = {}

        def give(name: str) -> Cluster:
            if name not in found:
                found[name] = stack.enter_context(clusters.cluster(name))
            return found[name]

        yield give


@pytest.fixture(params=CLUSTERED)
def cluster(request: pytest.FixtureRequest, shared_cluster: Callable[[str], Cluster]) -> Cluster:
    """An empty cluster, all of its nodes well, whatever the test before has done to them."""
    try:
        found = shared_cluster(request.param)
    except peers.PeerMissing as missing:
        if peers.required():
            raise
        pytest.skip(str(missing))
    found.mend()
    return found


@pytest.fixture(params=CLUSTERED)
def sentinels(request: pytest.FixtureRequest) -> Iterator[Sentinels]:
    """Three Sentinels of a service, new for each test: a failover changes them."""
    try:
        with clusters.sentinels(request.param) as found:
            yield found
    except peers.PeerMissing as missing:
        if peers.required():
            raise
        pytest.skip(str(missing))


@pytest.fixture
def run_headwater() -> Callable[..., str]:
    """Runs ``headwater …`` in a process of its own; what it printed."""

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "headwater.cli.main", *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
