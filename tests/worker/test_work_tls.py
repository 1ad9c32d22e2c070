"""Workers whose store requires TLS: the URL has all that they need."""

from __future__ import annotations

import signal
from pathlib import Path
from urllib.parse import urlencode

import pytest

from headwater.aio import connect
from headwater.testing.server import server_process
from tests import certificates
from tests.peers import free_port
from tests.worker import shop
from tests.worker.apps import eventually
from tests.worker.processes import supervised

pytestmark = pytest.mark.slow


async def test_headwater_work_reads_settles_and_publishes_through_tls(tmp_path: Path) -> None:
    # Given a store that only accepts TLS and requires a client certificate
    made = certificates.make(tmp_path)
    with server_process(*made.flags(tls_port=free_port())) as server:
        url = f"{server.tls_url}?{urlencode(made.client_options)}"
        async with connect(url, decode_responses=True) as client:
            # When two workers run on it, and entries are added
            with supervised(url, "--workers", "2") as parent:
                await eventually(lambda: parent.log().count("reads orders as") == 2)
                for number in range(20):
                    await client.xadd("orders", dict(shop.orders.codec.encode(shop.Order(number))))

                async def all_done() -> bool:
                    pending = await client.xpending("orders", "g")
                    return await client.xlen("invoices") == 20 and pending["pending"] == 0

                await eventually(all_done)
                parent.signal(signal.SIGTERM)
                assert parent.wait() == 0
                # Then the path of the private key is not logged
                assert "ssl_keyfile" not in parent.log()
