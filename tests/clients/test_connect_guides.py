"""The programs of the client's guides run unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.testing.server import server_process
from tests.guides import outputs

pytestmark = pytest.mark.slow


def test_the_clients_guide_runs() -> None:
    with server_process() as server:
        found = outputs("client.md", ("redis://localhost:6379", server.url))
    assert found == ["orders: 1\n", "orders: 2\n"]


def test_the_embedded_stores_guide_runs(tmp_path: Path) -> None:
    found = outputs("embedded.md", ("/tmp/shop", f"{tmp_path}/shop"))
    assert found[0] == "{'number': '1', 'item': 'tea', 'price': '2.5'}\n"
    assert found[1] == "record groups: 1, bytes cut off: 0\n"
    assert found[2] == "something was added to orders\n"
    assert re.fullmatch(r"\S+ after 1\.\d+ h\n", found[3]), found[3]


def test_the_servers_guide_to_pubsub_runs() -> None:
    with server_process() as server:
        found = outputs("server.md", ("redis://localhost:6379", server.url), section="## Pub/sub")
    assert found == ["__keyevent@0__:xadd orders\n"]
