"""Stores that the worker's tests run against."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests import peers
from tests.worker.core import Core

SharedPeer = Callable[[str], peers.Peer]

CORE_STORES = ("redis-8.2", "redis-8.4", "redis-7.0", "valkey-9.1")


@pytest.fixture(params=CORE_STORES)
def core(request: pytest.FixtureRequest, shared_peer: SharedPeer) -> Iterator[Core]:
    """The first member of a new group, on each store in turn."""
    emulated = request.param == "redis-8.4"
    url = shared_peer("redis-8.2" if emulated else request.param).url
    found = Core.joined(url, claim_reads=emulated)
    yield found
    found.close()
