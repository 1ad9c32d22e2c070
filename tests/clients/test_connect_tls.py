"""`headwater.connect` over TLS, with and without a client certificate, sync and asyncio."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import redis

import headwater
from headwater.testing.server import ServerProcess, server_process
from tests import certificates
from tests.certificates import Certificates
from tests.clients.proxy import CuttingProxy
from tests.clients.uniform import UniformClient
from tests.guides import GUIDES, outputs
from tests.peers import free_port

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(made: Certificates) -> Iterator[ServerProcess]:
    with server_process(*made.flags(tls_port=free_port())) as server:
        yield server


@pytest.fixture(params=["sync", "asyncio"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "asyncio")


def connected(url: str, *, asynchronous: bool, **options: Any) -> UniformClient:
    connect = headwater.aio.connect if asynchronous else headwater.connect
    return UniformClient(connect(url, decode_responses=True, **options), asynchronous=asynchronous)


async def test_a_client_with_a_certificate_can_connect(
    server: ServerProcess, made: Certificates, *, asynchronous: bool
) -> None:
    client = connected(server.tls_url, asynchronous=asynchronous, **made.client_options)
    try:
        key = f"orders-{asynchronous}"
        assert await client("xadd", key, {"item": "tea"}, id="1-1") == "1-1"
        assert await client("xlen", key) == 1
        assert not await client("xread", {key: "$"}, block=1)
    finally:
        await client.close()


async def test_the_url_may_have_all_options(
    server: ServerProcess, made: Certificates, *, asynchronous: bool
) -> None:
    client = connected(
        f"{server.tls_url}?{urlencode(made.client_options)}", asynchronous=asynchronous
    )
    try:
        assert await client("ping") is True
    finally:
        await client.close()


async def test_a_large_value_may_take_longer_than_the_timeout(
    server: ServerProcess, made: Certificates, *, asynchronous: bool
) -> None:
    # Given a link on which a value takes four times the timeout
    host = urlsplit(server.tls_url).hostname
    with CuttingProxy(urlsplit(server.tls_url).port or 0) as proxy:
        url = f"rediss://{host}:{proxy.port}"
        options = {**made.client_options, "socket_timeout": 0.1}
        client = connected(url, asynchronous=asynchronous, **options)
        try:
            assert await client("ping")
            proxy.rate = 1_500_000
            assert await client("set", "large", "x" * 600_000)
            assert len(await client("get", "large")) == 600_000
        finally:
            await client.close()


@pytest.mark.parametrize("what", ["authority", "certificate"])
async def test_a_missing_certificate_is_an_error_and_does_not_hang(
    server: ServerProcess, made: Certificates, what: str, *, asynchronous: bool
) -> None:
    options: dict[str, Any] = {"retry": None}
    if what == "certificate":
        options["ssl_ca_certs"] = made.authority
    client = connected(server.tls_url, asynchronous=asynchronous, **options)
    try:
        with pytest.raises(redis.ConnectionError):
            await client("ping")
    finally:
        await client.close()


async def test_a_client_reconnects_over_tls(made: Certificates, *, asynchronous: bool) -> None:
    # Given a client whose server is killed and restarted
    with server_process(*made.flags(tls_port=free_port())) as server:
        client = connected(server.tls_url, asynchronous=asynchronous, **made.client_options)
        try:
            await client("ping")
            server.kill()
            server.start()
            # Then a read is repeated on a new connection
            assert await client("xlen", "orders") == 0
            assert isinstance(await client("xadd", "orders", {"item": "tea"}), str)
        finally:
            await client.close()


def test_the_guide_runs(made: Certificates) -> None:
    with server_process(*made.flags(tls_port=free_port())) as server:
        found = outputs(
            "security.md",
            ("rediss://store.example.org:6390", server.tls_url),
            ("/etc/headwater/", f"{made.directory}/"),
            section="## TLS",
        )
    assert found == ["1 order\n"]


def test_the_guides_flags_are_those_of_the_server(made: Certificates) -> None:
    text = (GUIDES / "security.md").read_text(encoding="utf-8")
    (flags,) = re.findall(
        r"\$ headwater serve (--port 0 --tls-port.*?)\nheadwater", text, re.DOTALL
    )
    words = flags.replace("\\\n", " ").replace("/etc/headwater", str(made.directory)).split()
    words[words.index("6390")] = str(free_port())
    with server_process(*words) as server:
        url = f"{server.tls_url}?{urlencode(made.client_options)}"
        with headwater.connect(url) as client:
            assert client.ping()
