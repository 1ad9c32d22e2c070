"""Groups on each kind of store, staged so that they are stuck for one reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.worker.core import Core

SERVERS = ("headwater", "redis-8.2", "valkey-9.1")


@pytest.fixture(params=SERVERS)
def url(
    request: pytest.FixtureRequest,
    store_url: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """The address of an empty store, of each kind in turn; it is ``HEADWATER_URL`` too."""
    found = store_url(request.param)
    monkeypatch.setenv("HEADWATER_URL", found)
    return found


@pytest.fixture
def core(url: str) -> Iterator[Core]:
    """Consumer ``one`` of group ``g`` of stream ``s``, whose entries can be claimed after a minute."""
    found = Core.joined(url)
    yield found
    found.close()
