"""Configuration files of Redis and Valkey are accepted, and every setting in them has a decision."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from headwater.config.config import NAMES, SETTINGS, Config
from headwater.config.fixed import FIXED
from headwater.config.inert import ALIASES, INERT
from headwater.config.loading import load
from headwater.config.rewriting import rewritten
from headwater.config.storage import StorageConfig
from headwater.errors import ConfigError
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure
from headwater.testing.server import server_process
from tests import peers
from tests.peers import PEERS, Peer

STOCK = peers.DIRECTORY.parent / "debian" / "etc" / "redis" / "redis.conf"
"""The file that Debian's package of Redis 7.0 installs, with the binary that `make peers` installs."""

DIFFERENT = {
    "port", "dir", "appendonly", "save",  # as the peer was started
    "aof-load-truncated", "log-format", "supervised", "latency-tracking", "tls-protocols",
    "bind", "unixsocket", "logfile", "pidfile",
    "hide-user-data-from-log", "repl-backlog-size", "syslog-ident",  # Valkey's default
}  # fmt: skip
"""Settings whose defaults differ from those of a peer."""


def written(directory: Path, text: str) -> Path:
    path = directory / "redis.conf"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.slow
@pytest.mark.peer
def test_debians_file_starts_the_server(tmp_path: Path) -> None:
    # Given the stock file of Debian's Redis 7.0, and a place for its data and log
    if not STOCK.exists():
        pytest.fail("make peers") if peers.required() else pytest.skip("make peers")
    log = tmp_path / "log"
    # When the server is started with it
    flags = ("--config", str(STOCK), "--logfile", str(log))
    with server_process(*flags, directory=tmp_path) as server:
        client = redis.Redis.from_url(server.url, decode_responses=True)
        # Then it keeps data, by the default save points, and shows what was set
        assert "appendfsync no (appendonly no with save points)" in server.ready_line
        assert client.config_get("save") == {"save": "3600 1 300 100 60 10000"}
        assert client.config_get("appendonly") == {"appendonly": "no"}
        assert client.config_get("daemonize") == {"daemonize": "yes"}
        assert client.config_get("oom-score-adj-values") == {"oom-score-adj-values": "0 200 800"}
        client.set("k", "v")
        client.close()
    # And the log names once what has no effect
    lines = [line for line in log.read_text().splitlines() if "have no effect here" in line]
    assert len(lines) == 1
    assert re.search(
        r"no effect here: daemonize, pidfile, .*, rdb-save-incremental-fsync", lines[0]
    )
    # And the next start has the data
    with server_process(*flags, directory=tmp_path) as server:
        client = redis.Redis.from_url(server.url, decode_responses=True)
        assert client.get("k") == "v"
        client.close()


@pytest.mark.peer
@pytest.mark.parametrize("name", PEERS)
def test_every_setting_of_a_peer_has_a_decision(
    name: str, shared_peer: Callable[[str], Peer]
) -> None:
    # Given all settings of a peer
    with redis.Redis.from_url(shared_peer(name).url, decode_responses=True) as client:
        theirs: dict[str, str] = client.config_get("*")
    # Then each is known here
    assert set(theirs) - set(NAMES) == set()
    # And its default is accepted here, unless it is one of those that differ
    config = Config()
    for setting, value in theirs.items():
        if setting not in DIFFERENT:
            config.set(setting, value)
    # And those without effect here have the same default
    own = Config()
    inert = {each for each in theirs if ALIASES.get(each, each) in INERT} - DIFFERENT
    different = {each: own.get(each) for each in inert if own.get(each) != theirs[each]}
    if name == "valkey-9.1":
        different = {each: value for each, value in different.items() if "lazy" not in each}
    assert different == {}


def test_each_name_belongs_to_one_kind() -> None:
    assert not set(INERT) & (set(SETTINGS) | set(FIXED))
    assert not set(ALIASES) & (set(SETTINGS) | set(FIXED) | set(INERT))
    assert set(ALIASES.values()) <= set(SETTINGS) | set(FIXED) | set(INERT)


@pytest.mark.parametrize("name", INERT)
def test_the_default_of_a_setting_without_effect_is_valid(name: str) -> None:
    config = Config()
    config.set(name, config.get(name))
    assert config.get(name) == INERT[name].default


def test_a_setting_without_effect_is_set_shown_and_written(tmp_path: Path) -> None:
    # Given a file with such settings, one of them by its old name, and an include
    written(tmp_path, "hz 50\nslave-priority 7\nrepl-backlog-size 2mb\ninclude more.conf\n")
    (tmp_path / "more.conf").write_text("io-threads 4\n")
    config = load(file=tmp_path / "redis.conf", environ={})
    # Then CONFIG GET shows the values, by both names
    names = ["hz", "replica-priority", "slave-priority", "repl-backlog-size", "io-threads"]
    assert [config.get(name) for name in names] == ["50", "7", "7", "2097152", "4"]
    # When one is changed and the file is rewritten
    config.set("hz", "10")
    config.set("activedefrag", "yes")
    text = rewritten(config).decode()
    # Then loading it gives the same values, and defaults are not written
    assert "hz" not in text
    again = load(file=written(tmp_path, text), environ={})
    assert {**again.inert, "hz": "10"} == config.inert


def test_clients_can_set_what_has_no_effect() -> None:
    client = LocalStore().client()
    assert client("CONFIG", "SET", "hz", "100", "slave-priority", "3") is not None
    assert client("CONFIG", "GET", "hz", "replica-priority") == [
        b"hz", b"100", b"replica-priority", b"3",
    ]  # fmt: skip
    refused = client("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    assert isinstance(refused, Failure)
    assert b"let keys expire" in refused.text


def points_of(directory: Path, text: str) -> tuple[str, bool, str]:
    config = load(file=written(directory, text), environ={})
    return config.get("save"), config.keeps_data, config.journal_policy


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("3600 1 300 100 60 10000", True, "everysec")),
        ("appendonly no", ("3600 1 300 100 60 10000", True, "no")),
        ("appendonly no\nappendfsync always", ("3600 1 300 100 60 10000", True, "no")),
        ('appendonly no\nsave ""', ("", False, "no")),
        ("save 900 1\nsave 300 10", ("900 1 300 10", True, "everysec")),
        ("save 900 1 300 10", ("900 1 300 10", True, "everysec")),
        ('save 900 1\nsave ""\nsave 60 5', ("60 5", True, "everysec")),
        ('save ""', ("", True, "everysec")),
    ],
)
def test_save_points_decide_whether_data_is_kept_without_appendonly(
    tmp_path: Path, text: str, expected: tuple[str, bool, str]
) -> None:
    assert points_of(tmp_path, text) == expected


def test_save_points_of_a_flag_add_to_those_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "save 900 1\n")
    config = load(file=path, environ={}, flags=[("save", "60 1"), ("save", "30 2")])
    assert config.get("save") == "900 1 60 1 30 2"
    assert load(file=path, environ={}, flags=[("save", "")]).save == ()


def test_save_points_need_a_restart_if_nothing_is_stored() -> None:
    # Given a store that was started without a journal
    config = Config(port=0, appendonly=False, save=())
    client = LocalStore(config=config, journaled=False).client()
    # When save points are set
    reply = client("CONFIG", "SET", "save", "60 1")
    # Then that is refused, because nothing could be kept
    assert isinstance(reply, Failure)
    assert b"restart it with save points" in reply.text


def test_the_summaries_of_settings_say_what_is_kept() -> None:
    assert StorageConfig(appendonly=False, save=()).keeps_data is False
    with pytest.raises(ConfigError, match="not supported"):
        load(flags=[("loadmodule", "/a.so")], environ={})
