"""Finding the primary of a service, with simulated Sentinels."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError
from redis.sentinel import MasterNotFoundError

from headwater.client.drivers import run
from headwater.client.primary import Primary
from headwater.client.server_url import parse_sentinel


class Sentinels:
    """In place of redis-py's Sentinel: the last Sentinel of the url answers."""

    def __init__(self, nodes: list[Any], sentinel_kwargs: dict[str, Any]) -> None:
        self.sentinels = [_Client(host, port) for host, port in reversed(nodes)]
        self.options = sentinel_kwargs
        self.closed = False
        made.append(self)

    def discover_master(self, service: str) -> tuple[str, int]:
        if service == "unknown":
            raise MasterNotFoundError(f"No master found for {service!r}")
        return "primary", 7000

    def close(self) -> None:
        self.closed = True


class _Client:
    def __init__(self, host: str, port: int) -> None:
        self.connection_pool = self
        self.connection_kwargs = {"host": host, "port": port}


made: list[Sentinels] = []


class Server:
    """A connection to the server that the Sentinels named."""

    host, port = "primary", 7000

    def __init__(self, role: Any) -> None:
        self.role = role
        self.calls: list[str] = []

    def send_command(self, *words: str, check_health: bool) -> None:
        self.calls.append(" ".join(words))

    def read_response(self) -> list[Any]:
        if isinstance(self.role, Exception):
            raise self.role
        return [self.role, 0, []]

    def disconnect(self) -> None:
        self.calls.append("disconnect")


def primary(url: str = "redis+sentinel://a,b:5000/shop", **options: Any) -> Primary:
    return Primary(parse_sentinel(url), options)


def test_the_sentinel_that_answered_is_queried_first_next_time() -> None:
    found = primary()
    assert run(found.find(Sentinels, Sentinels.close)) == ("primary", 7000)
    assert found.nodes == [("b", 5000), ("a", 26379)]
    assert made[-1].closed


def test_sentinels_are_closed_when_none_knows_the_service() -> None:
    found = primary("redis+sentinel://a/unknown")
    with pytest.raises(MasterNotFoundError):
        run(found.find(Sentinels, Sentinels.close))
    assert made[-1].closed


def test_sentinels_have_their_own_password_and_the_tls_of_the_servers() -> None:
    options = primary(
        "rediss+sentinel://app:pw@a/shop?sentinel_password=s", ssl_ca_certs="ca.pem", db=1
    ).options
    assert options == {
        "socket_timeout": 2.0,
        "socket_connect_timeout": 2.0,
        "username": None,
        "password": "s",
        "ssl": True,
        "ssl_ca_certs": "ca.pem",
    }


@pytest.mark.parametrize("role", [b"master", "master", NoPermissionError("NOPERM")])
def test_a_primary_and_a_server_that_refuses_role_are_accepted(role: Any) -> None:
    server = Server(role)
    run(primary().confirm(server))
    assert server.calls == ["ROLE"]


def test_a_replica_is_disconnected_and_another_sentinel_is_queried() -> None:
    found, server = primary(), Server(b"slave")
    with pytest.raises(RedisConnectionError, match="primary of 'shop', but it is a replica"):
        run(found.confirm(server))
    assert server.calls == ["ROLE", "disconnect"]
    assert found.nodes == [("b", 5000), ("a", 26379)]
