"""The readers over TLS, with the certificates' paths in the url."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import redis

from headwater.testing.server import server_process
from tests import certificates
from tests.peers import free_port
from tests.spark.queries import Query
from tests.spark.stores import Shop


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Shop]:
    """A shop on a store that accepts only TLS and requires a client certificate."""
    made = certificates.make(tmp_path)
    with server_process(*made.flags(tls_port=free_port())) as server:
        url = f"{server.tls_url}?{urlencode(made.client_options)}"
        with redis.Redis.from_url(url, protocol=2) as client:
            yield Shop("headwater", url, client)


def test_batches_are_read_through_tls(secured: Shop) -> None:
    # Entries for several pages, each of several TLS records
    secured.add("s", range(1, 20_001))
    query = Query(secured)
    assert query.batches() == [list(range(1, 20_001))]
    assert query.batches() == []
