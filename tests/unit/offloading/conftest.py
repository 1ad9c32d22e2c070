"""A store with offloaded jobs, and two clients that can wait for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.testing.node import LocalClient, LocalStore


@pytest.fixture
def store() -> Iterator[LocalStore]:
    made = LocalStore()
    yield made
    made.node.blocked.offloading.stop()


@pytest.fixture
def client(store: LocalStore) -> LocalClient:
    return store.client(kind="tcp")


@pytest.fixture
def other(store: LocalStore) -> LocalClient:
    return store.client(kind="tcp")
