"""Settings have redis.conf's names and syntax, and no mistake is accepted silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.config.config import SETTINGS, Config
from headwater.config.fixed import FIXED
from headwater.config.loading import flag_pairs, load
from headwater.errors import ConfigError


def written(directory: Path, text: str, name: str = "headwater.conf") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def from_file(directory: Path, text: str) -> Config:
    return load(file=written(directory, text), environ={})


def refused(directory: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        from_file(directory, text)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(directory), "")


def test_a_file_is_parsed_as_in_redis(tmp_path: Path) -> None:
    config = from_file(
        tmp_path,
        """
        # comments and empty lines

        PORT 7000
        bind 127.0.0.1 -::1
        requirepass "a b\\x41"
        appendonly NO
        proto-max-bulk-len 2mb
        client-output-buffer-limit normal 10mb 5mb 60
        save ""
        """,
    )
    assert config.port == 7000
    assert config.bind == ("127.0.0.1", "-::1")
    assert config.requirepass == "a bA"
    assert config.appendonly is False
    assert config.proto_max_bulk_len == 2 * 1024**2
    assert config.client_output_buffer_limit.normal == (10 * 1024**2, 5 * 1024**2, 60)
    assert config.client_output_buffer_limit.pubsub == (32 * 1024**2, 8 * 1024**2, 60)


def test_flags_override_the_environment_and_the_environment_overrides_the_file(
    tmp_path: Path,
) -> None:
    # Given a file that names three settings, one of them twice
    path = written(tmp_path, "port 1\nport 2\ntimeout 2\nmaxclients 2\n")

    # When the environment names two of them and a flag one
    config = load(
        file=path,
        environ={"HEADWATER_TIMEOUT": "3", "HEADWATER_MAXCLIENTS": "3", "HEADWATER_PURE": "1"},
        flags=[("maxclients", "4")],
    )

    # Then each has the value with the highest precedence
    assert (config.port, config.timeout, config.maxclients) == (2, 3, 4)


def test_an_include_applies_at_its_position(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    written(tmp_path / "more", "port 2\ntimeout 2\n", "a.conf")
    written(tmp_path / "more", "maxclients 2\n", "b.conf")
    config = from_file(tmp_path, "port 1\ninclude more/*.conf\ntimeout 3\n")
    assert (config.port, config.timeout, config.maxclients) == (2, 3, 2)


MISTAKES = {
    "prot 7000": "/headwater.conf, line 1: Bad directive or wrong number of arguments: unknown setting 'prot'; did you mean 'port'?",
    "\n\nappendsync no": "/headwater.conf, line 3: Bad directive or wrong number of arguments: unknown setting 'appendsync'; "
    "did you mean 'appendfsync'?",
    "qqq 1": "/headwater.conf, line 1: Bad directive or wrong number of arguments: unknown setting 'qqq'; "
    "docs/reference/configuration.md lists all.",
    "port x": "/headwater.conf, line 1: 'port \"x\"': argument couldn't be parsed into an integer",
    "port 65536": "/headwater.conf, line 1: 'port \"65536\"': "
    "argument must be between 0 and 65535 inclusive",
    "port 1 2": '/headwater.conf, line 1: \'port "1" "2"\': wrong number of arguments; port takes one value: quote it',
    "port": "/headwater.conf, line 1: 'port' has no value; write port and its value, or \"\"",
    'requirepass "a': "/headwater.conf, line 1: unbalanced quotes in 'requirepass \"a'",
    "proto-max-bulk-len 1x": "/headwater.conf, line 1: 'proto-max-bulk-len \"1x\"': "
    "argument must be a memory value",
    "maxmemory-policy allkeys-lru": "/headwater.conf, line 1: 'maxmemory-policy "
    '"allkeys-lru"\': the only value is noeviction; no key is deleted to free memory: let keys expire, '
    "trim streams with XTRIM or XADD MAXLEN, and let maxmemory refuse what would take more",
    "replicaof 10.0.0.1 port": '/headwater.conf, line 1: \'replicaof "10.0.0.1" "port"\': Invalid master port',
    "replicaof 10.0.0.1": "/headwater.conf, line 1: 'replicaof \"10.0.0.1\"': wrong number of arguments",
    "maxmemory-clients 101%": "/headwater.conf, line 1: 'maxmemory-clients \"101%\"': percentage argument "
    "must be less or equal to 100",
    "maxmemory-clients much": "/headwater.conf, line 1: 'maxmemory-clients \"much\"': argument must be a "
    "memory or percent value",
    "maxmemory-policy lru": "/headwater.conf, line 1: 'maxmemory-policy \"lru\"': argument(s) must be one of the "
    "following: volatile-lru, volatile-lfu, volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, "
    "allkeys-random, noeviction",
    "shutdown-on-sigint later": "/headwater.conf, line 1: 'shutdown-on-sigint \"later\"': argument(s) must be one "
    "of the following: default, save, nosave, now, force",
    "shutdown-on-sigterm save nosave": '/headwater.conf, line 1: \'shutdown-on-sigterm "save" "nosave"\': '
    "shutdown options SAVE and NOSAVE can't be used simultaneously",
    "requirepass a b": '/headwater.conf, line 1: \'requirepass "(redacted)" "(redacted)"\': wrong number of '
    "arguments; requirepass takes one value: quote it",
    "replicaof 10.0.0.1 6379": '/headwater.conf, line 1: \'replicaof "10.0.0.1" "6379"\': the '
    "only value is empty; there is no replication in this release: start the server without it",
    "slaveof 10.0.0.1 6379": '/headwater.conf, line 1: \'slaveof "10.0.0.1" "6379"\': the '
    "only value is empty; there is no replication in this release: start the server without it",
    "cluster-enabled yes": "/headwater.conf, line 1: 'cluster-enabled \"yes\"': the only "
    "value is no; there is no cluster mode: start the server without it",
    'rename-command FLUSHALL ""': "/headwater.conf, line 1: 'rename-command' is not supported: "
    "commands cannot be renamed; take a command from users: user name … -flushall",
    "loadmodule /a.so": "/headwater.conf, line 1: 'loadmodule' is not supported: modules cannot be "
    "loaded; remove the line",
    "save 900": "/headwater.conf, line 1: 'save \"900\"': Invalid save parameters",
    "save 0 1": "/headwater.conf, line 1: 'save \"0 1\"': Invalid save parameters",
    "hz often": "/headwater.conf, line 1: 'hz \"often\"': "
    "argument couldn't be parsed into an integer",
    "rdbcompression maybe": "/headwater.conf, line 1: 'rdbcompression \"maybe\"': "
    "argument must be 'yes' or 'no'",
    "databases 32": "/headwater.conf, line 1: 'databases \"32\"': "
    "the only value is 16; the number of databases cannot be changed",
    "unixsocketperm 888": "/headwater.conf, line 1: 'unixsocketperm \"888\"': "
    "argument must be octal permissions, 0 to 777",
    "client-output-buffer-limit pubsub 1 1 1mb": "/headwater.conf, line 1: "
    '\'client-output-buffer-limit "pubsub" "1" "1" "1mb"\': '
    "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
    "notify-keyspace-events KQ": "/headwater.conf, line 1: 'notify-keyspace-events \"KQ\"': "
    "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.",
    "include nowhere.conf": "/headwater.conf, line 1: /nowhere.conf does not exist; "
    "correct the path or remove the line",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_in_a_file_names_file_line_setting_and_remedy(tmp_path: Path, text: str) -> None:
    assert refused(tmp_path, text) == MISTAKES[text]


def test_a_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    assert "does it include itself?" in refused(tmp_path, "include headwater.conf")


def test_the_error_for_a_missing_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.conf: cannot be read: No such file"):
        load(file=tmp_path / "none.conf", environ={})


def test_the_error_names_the_flag_or_variable() -> None:
    with pytest.raises(ConfigError, match=r"^flag --prt: .*unknown setting 'prt'; .* 'port'"):
        load(flags=[("prt", "1")], environ={})
    with pytest.raises(ConfigError, match=r"^environment, HEADWATER_PORT: 'port \"x\"': "):
        load(environ={"HEADWATER_PORT": "x"})
    with pytest.raises(ConfigError, match=r"^'prt' is not a flag"):
        flag_pairs(["prt", "1"])


WRONG_COUNTS = {
    "--port": "'port'",
    "--port 1 --loglevel": "'loglevel'",
    "--port 1 2": '\'port "1" "2"\'',
    "--port --loglevel verbose": '\'port "--loglevel" "verbose"\'',
    "--requirepass a b": '\'requirepass "(redacted)" "(redacted)"\'',
    "--bind": "'bind'",
    "--user": "'user'",
    "--config": "'config'",
    "--config a b": '\'config "a" "b"\'',
}


@pytest.mark.parametrize("line", WRONG_COUNTS)
def test_a_flag_with_a_wrong_number_of_values_is_shown_as_redis_shows_it(line: str) -> None:
    with pytest.raises(ConfigError, match="wrong number of arguments") as caught:
        flag_pairs(line.split())
    assert f": {WRONG_COUNTS[line]}: " in str(caught.value)


SIZES = {"1": 1, "1b": 1, "2k": 2000, "2kb": 2048, "3M": 3 * 10**6, "3Mb": 3 * 2**20, "1gB": 2**30}


@pytest.mark.parametrize("text", SIZES)
def test_sizes_have_the_suffixes_of_redis(text: str) -> None:
    config = Config()
    config.set("stream-node-max-bytes", text)
    assert config.stream_node_max_bytes == SIZES[text]


@pytest.mark.parametrize("text", ["", "kb", "1 kb", "1kib", "-1", "1.5mb", "1bb", "٣"])
def test_an_invalid_size_changes_nothing(text: str) -> None:
    config = Config()
    with pytest.raises(ValueError, match="memory value"):
        config.set("stream-node-max-bytes", text)
    assert config == Config()


@pytest.mark.parametrize("name", SETTINGS)
def test_every_default_can_be_set_as_it_is_shown(name: str) -> None:
    config = Config()
    config.set(name, config.get(name))
    if name != "dir":  # which is shown as an absolute path
        assert config == Config()


POSSIBLE = {
    "maxmemory-policy": "allkeys-lru", "maxmemory-clients": "5%", "replicaof": "host 1",
    "lua-enable-deprecated-api": "yes",
}  # fmt: skip
"""Values that Redis accepts for settings whose values are checked."""


@pytest.mark.parametrize("name", FIXED)
def test_a_fixed_setting_accepts_only_its_value(name: str) -> None:
    Config().set(name, FIXED[name].value)
    with pytest.raises(ValueError, match="the only value is"):
        Config().set(name, POSSIBLE.get(name, "something else"))


def test_passwords_are_never_shown() -> None:
    config = Config(requirepass="secret", users=(("alice", ">hunter2"),))
    assert "secret" not in repr(config)
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize("text", ["dir data\naclfile u.acl", "aclfile u.acl\ndir data"])
def test_paths_are_relative_to_dir_wherever_it_is_set(tmp_path: Path, text: str) -> None:
    # Given a file with dir before or after a path, and a path in a flag
    file = written(tmp_path, f"{text}\ntls-cert-file /etc/cert.pem\n")
    config = load(file=file, flags=[("unixsocket", "hw.sock")], environ={})

    # Then a relative path is in the data directory, and CONFIG GET shows it as it was written
    located, data = config.located(), Path("data").absolute()
    assert (located.aclfile, located.unixsocket) == (str(data / "u.acl"), str(data / "hw.sock"))
    assert (located.tls_cert_file, located.logfile) == ("/etc/cert.pem", "")
    assert config.get("aclfile") == "u.acl"


def test_each_dir_line_is_relative_to_the_one_before(tmp_path: Path) -> None:
    assert from_file(tmp_path, "dir /var\ndir data\n").dir == "/var/data"
    assert from_file(tmp_path, "dir data\ndir /var\n").dir == "/var"


def test_a_dir_flag_is_relative_to_the_files_and_replaces_the_environments(tmp_path: Path) -> None:
    file, environ = written(tmp_path, "dir /var\n"), {"HEADWATER_DIR": "other"}
    assert load(file=file, environ=environ).dir == "/var/other"
    assert load(file=file, environ=environ, flags=[("dir", "data")]).dir == "/var/data"


def test_flags_may_be_written_as_for_redis_server(tmp_path: Path) -> None:
    # Given forms that redis-server accepts: a word of name and value, a value like a flag or that is one, save
    # alone, and a first name without dashes
    assert flag_pairs(["--config", "a.conf", "port", "1"]) == [
        ("config", ["a.conf"]),
        ("port", ["1"]),
    ]
    assert flag_pairs(["loglevel", "debug", "--maxmemory '700mb'"]) == [
        ("loglevel", ["debug"]), ("maxmemory", ["700mb"]),
    ]  # fmt: skip
    words = "--proc-title-template --save --save --logfile --port --loglevel debug"
    assert flag_pairs(words.split()) == [
        ("proc-title-template", ["--save"]), ("save", []), ("logfile", ["--port"]), ("loglevel", ["debug"]),
    ]  # fmt: skip
    config = load(environ={}, flags=[("shutdown-on-sigint", ["nosave", "FORCE", "now"])])
    assert config.get("shutdown-on-sigint") == "nosave now force"

    # Then save points of flags add to those of the file
    file = written(tmp_path, "save 900 1\n")
    assert load(file=file, environ={}, flags=[("save", "100 100")]).save == ((900, 1), (100, 100))
    assert load(file=file, environ={}, flags=[("save", "")]).save == ()
