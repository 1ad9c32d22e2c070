"""The addresses of servers, clusters and Sentinels."""

from __future__ import annotations

import pytest

import headwater
from headwater.client.redaction import redacted
from headwater.client.server_url import (
    SCHEMES,
    NodeAddress,
    is_cluster,
    is_sentinel,
    is_server,
    may_be_node,
    parse_cluster,
    parse_sentinel,
    plain,
)
from headwater.errors import ConfigError, DeclarationError
from headwater.worker import App


def test_a_cluster_url_has_some_of_its_nodes() -> None:
    found = parse_cluster("rediss+cluster://app:p%40ss@one:7000,[::1]:7001,two?protocol=2")
    assert found.nodes == (
        NodeAddress("one", 7000),
        NodeAddress("::1", 7001),
        NodeAddress("two", 6379),
    )
    assert found.node_url(found.nodes[1]) == "rediss://app:p%40ss@[::1]:7001?protocol=2"


def test_sentinels_have_separate_credentials() -> None:
    found = parse_sentinel(
        "redis+sentinel://app:pw@one:5000,two/shop/3?sentinel_username=s&sentinel_password=x%26y"
    )
    assert found.nodes == (NodeAddress("one", 5000), NodeAddress("two", 26379))
    assert (found.service, found.username, found.password) == ("shop", "s", "x&y")
    assert found.server_url == "redis://app:pw@primary:6379/3"
    assert not found.tls


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("valkey://host", "redis://host"),
        ("valkeys://host", "rediss://host"),
        ("valkey+cluster://host", "redis+cluster://host"),
        ("valkeys+sentinel://host/s", "rediss+sentinel://host/s"),
    ],
)
def test_valkey_is_another_word_for_redis(url: str, same: str) -> None:
    assert plain(url) == same


@pytest.mark.parametrize("url", [f"{scheme}://host/0" for scheme in SCHEMES])
def test_an_app_accepts_every_scheme(url: str) -> None:
    assert is_server(url)
    assert App(url).url == url


def test_the_scheme_determines_the_kind() -> None:
    assert is_cluster("valkeys+cluster://h")
    assert not is_cluster("redis://h")
    assert is_sentinel("redis+sentinel://h/s")
    assert not is_sentinel("redis+cluster://h")
    assert not is_server("headwater://memory")
    assert not is_server("redis")


def test_only_database_0_may_belong_to_a_cluster() -> None:
    assert may_be_node("redis://host/0")
    assert may_be_node("valkeys://u:p@host:1?protocol=2")
    assert not may_be_node("redis://host?db=1")
    assert not may_be_node("redis+sentinel://host/s")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+cluster://host:7000/1", "only database 0"),
        ("redis+cluster://host:port", "host:port"),
        ("redis+cluster://", "host:port"),
        ("redis+cluster://one,,two", "host:port"),
        ("redis+sentinel://host:26379", "does not name a service"),
        ("redis+sentinel://host/shop/first", "does not name a service"),
    ],
)
def test_an_invalid_address_is_refused(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        headwater.connect(url)


def test_an_unknown_parameter_of_a_cluster_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="parameters"):
        headwater.connect("redis+cluster://host:7000?protocl=2")
    with pytest.raises(ConfigError, match="parameters"):
        headwater.connect("redis+sentinel://host/shop?sentinel_passwd=x")


def test_no_error_shows_a_password() -> None:
    for url in (
        "redis+cluster://u:secret@h:x",
        "redis+sentinel://u:secret@h?sentinel_password=secret",
    ):
        with pytest.raises(ConfigError) as caught:
            headwater.connect(url)
        assert "secret" not in str(caught.value)
    assert redacted("redis+sentinel://u:secret@a,b/s?sentinel_password=secret") == (
        "redis+sentinel://***@a,b/s?***"
    )


def test_the_error_for_an_unknown_scheme_lists_all_schemes() -> None:
    with pytest.raises(DeclarationError, match=r"redis\+cluster://"):
        App("redis+clusters://host")
