"""Parsing ``headwater://`` urls, and the errors for wrong ones."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from headwater.client.embedded_url import parse_embedded
from headwater.config.config import SETTINGS
from headwater.config.setting import EmbeddedUse, Setting
from headwater.errors import ConfigError


def test_a_directory_is_absolute_and_percent_decoded(tmp_path: Path) -> None:
    address = parse_embedded(f"headwater://{tmp_path}/my%20orders/../bills/")
    assert address.directory == tmp_path / "bills"
    assert address.key == f"dir:{tmp_path / 'bills'}"


def test_symlinks_to_one_directory_are_one_store(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert (
        parse_embedded(f"headwater://{tmp_path}/link").key
        == parse_embedded(f"headwater://{tmp_path}/data").key
    )


def test_memory_has_a_name_only_if_the_url_gives_one() -> None:
    assert parse_embedded("headwater://memory").key is None
    assert parse_embedded("headwater://memory/").key is None
    assert parse_embedded("headwater://memory/shop").key == "memory:shop"
    assert parse_embedded("headwater://memory?name=shop").key == "memory:shop"


def test_a_url_may_contain_settings(tmp_path: Path) -> None:
    address = parse_embedded(f"headwater://{tmp_path}?appendfsync=always&stream_node_max_entries=7")
    config = address.config()
    assert (config.appendfsync, config.stream_node_max_entries) == ("always", 7)
    assert (config.appendonly, config.dir) == (True, str(tmp_path))
    assert parse_embedded("headwater://memory").config().appendonly is False


def test_the_environment_does_not_turn_off_durability(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_APPENDONLY", "no")
    monkeypatch.setenv("HEADWATER_APPENDFSYNC", "no")
    config = parse_embedded(f"headwater://{tmp_path}").config()
    assert (config.appendonly, config.appendfsync) == (True, "everysec")


def test_options_of_the_client_have_their_types() -> None:
    address = parse_embedded(
        "headwater://memory?db=3&protocol=2&decode_responses=True&socket_timeout=1.5&client_name=me"
    )
    assert address.options == {
        "db": 3,
        "protocol": 2,
        "decode_responses": True,
        "socket_timeout": 1.5,
        "client_name": "me",
    }


@pytest.mark.parametrize("declared", SETTINGS.values(), ids=SETTINGS)
def test_a_url_accepts_the_settings_that_are_declared_for_it(declared: Setting) -> None:
    value = quote(declared.spelled_default)
    for place, uses in (
        ("/data", {EmbeddedUse.ALWAYS, EmbeddedUse.ON_DISK}),
        ("memory", {EmbeddedUse.ALWAYS}),
    ):
        for name in (declared.name, declared.attribute):
            url = f"headwater://{place}?{name}={value}"
            if declared.embedded in uses:
                assert parse_embedded(url).settings == {declared.name: declared.spelled_default}
            else:
                with pytest.raises(ConfigError, match=f"{declared.name} has no effect for"):
                    parse_embedded(url)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("headwater://data/orders", "'data' is in the place of a host"),
        ("headwater://localhost:6379", "For a server, write redis://host:port"),
        ("headwater://", "does not name a directory"),
        ("headwater:///", "does not name a directory"),
        ("headwater:///data?port=7000", "port has no effect for headwater:///data"),
        ("headwater:///data?appendonly=no", "appendonly has no effect"),
        ("headwater:///data?dir=/x", "dir has no effect"),
        (
            "headwater://memory?appendfsync=always",
            "appendfsync has no effect for headwater://memory",
        ),
        ("headwater:///data?appendfzync=always", "unknown parameter 'appendfzync'. Parameters:"),
        ("headwater:///data?name=shop", "unknown parameter 'name'"),
        ("headwater://memory?db=first", "db cannot be 'first'"),
        ("headwater://memory?decode_responses=maybe", "decode_responses cannot be 'maybe'"),
        ("headwater:///data?appendfsync=often", "'appendfsync \"often\"': "),
    ],
)
def test_the_error_names_what_is_wrong(url: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_embedded(url).config()
    assert text in str(caught.value)


@pytest.mark.parametrize("url", ["", "localhost:6379", "http://localhost", "redis:localhost", None])
def test_an_unknown_scheme_is_refused(url: str | None) -> None:
    import headwater

    wrong = "no url is given" if url is None else "does not name a store"
    for module in (headwater, headwater.aio):
        with pytest.raises(ConfigError, match=wrong):
            module.connect(url)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://localhost:6379/0?nothing=1", "unexpected keyword argument 'nothing'"),
        ("redis://localhost:port", "check its port"),
        ("redis://:hunter2#@localhost", "%23 for #"),
        ("redis://localhost?socket_timeout=hunter2", "its parameters"),
    ],
)
def test_the_error_for_an_invalid_server_url_shows_no_secret(url: str, text: str) -> None:
    import headwater

    for module in (headwater, headwater.aio):
        with pytest.raises(ConfigError) as caught:
            module.connect(url)
        assert text in str(caught.value)
        assert "hunter2" not in str(caught.value)
