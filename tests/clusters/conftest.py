"""Fixtures for clusters and Sentinels. All tests of a process share the clusters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests import certificates, peers
from tests.certificates import Certificates
from tests.clusters import clusters
from tests.clusters.clusters import Cluster, Sentinels

CLUSTERED = ("redis-8.2", "valkey-9.1")


TLS = "redis-7.0"
"""The peer whose binary has TLS. The others were built without it."""


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of the servers and of a client."""
    return certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def shared_cluster(made: Certificates) -> Iterator[Callable[[str], Cluster]]:
    """Returns the cluster of a peer, started on first use. The cluster of the peer `TLS` uses TLS."""
    with ExitStack() as stack:
        found: dict[str, Cluster] = {}

        def give(name: str) -> Cluster:
            if name not in found:
                encrypted = made if name == TLS else None
                with skipped_without_peer():
                    found[name] = stack.enter_context(clusters.cluster(name, made=encrypted))
            found[name].reset()
            return found[name]

        yield give


@contextmanager
def skipped_without_peer() -> Iterator[None]:
    """Skip a test whose peer is not installed; in CI, let it fail."""
    try:
        yield
    except peers.PeerMissing as missing:
        if peers.required():
            raise
        pytest.skip(str(missing))


@pytest.fixture(params=CLUSTERED)
def cluster(request: pytest.FixtureRequest, shared_cluster: Callable[[str], Cluster]) -> Cluster:
    """An empty cluster whose nodes are all healthy, whatever the previous test did to them."""
    return shared_cluster(request.param)


@pytest.fixture
def tls_cluster(shared_cluster: Callable[[str], Cluster]) -> Cluster:
    """The same, over TLS."""
    return shared_cluster(TLS)


@pytest.fixture(params=CLUSTERED)
def sentinels(request: pytest.FixtureRequest) -> Iterator[Sentinels]:
    """Three Sentinels of a service, new for each test: a failover changes them."""
    with skipped_without_peer(), clusters.sentinels(request.param) as found:
        yield found


@pytest.fixture
def tls_sentinels(made: Certificates) -> Iterator[Sentinels]:
    """The same, over TLS, like their servers."""
    with skipped_without_peer(), clusters.sentinels(TLS, made=made) as found:
        yield found


@pytest.fixture
def run_headwater() -> Callable[..., str]:
    """Runs ``headwater …`` in a separate process and returns its output."""

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "headwater.cli.main", *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
