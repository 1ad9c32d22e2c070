"""Users in files: the syntax of ACL files, the errors of invalid ones, and what is written to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.config.config import Config
from headwater.config.loading import load
from headwater.config.rewriting import rewritten
from headwater.errors import ConfigError
from headwater.server.services.acl.access import AccessControl
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure, Reply, Simple
from headwater.testing.server import ServerThread, server_thread
from tests.conformance.endpoints import Connection
from tests.conformance.wire import Start, connected
from tests.peers import Peer

HASH = b"5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"

GOOD = {
    "nothing": b"",
    "users": b"user default on nopass ~* &* +@all\nuser alice on >x ~a %R~b +@read\n\n",
    "no default": b"user alice on\n",
    "default changed": b"user default on nopass ~* +@all\n",
    "spaces around": b"  user alice on  \r\n\t\nuser bob off nopass\t\n",
    "selectors": b"user alice on ~a +get (~b +set) (+@stream ~c &d)\n",
    "no end of line": b"user alice on +@all",
    "a hash": b"user alice on #%b\n" % HASH,
    "no rules": b"user alice\n",
    "commands of other servers": b"user a +@all -migrate -zadd -function|load -@geo\n"
    b"user b -@all +@sortedset -zrem +zadd +migrate|x (+sort ~a)\n",
}
BAD = {
    "a comment": b"# mine\nuser alice on\n",
    "no user": b"alice on\n",
    "no name": b"user\n",
    "upper case": b"USER alice on\n",
    "two of a name": b"user alice on\nuser bob on\nuser alice off\n",
    "an unknown command": b"user alice on +nosuch ~a -nosuch +@nosuch\n",
    "a wrong rule": b"user alice on nosuch %X~a\n",
    "a wrong hash": b"user alice on #abc <x\n",
    "both kinds": b"user alice nosuch +nosuch nosuch\nuser bob +nosuch|x\n",
    "a wrong selector": b"user alice on (+nosuch) (on)\n",
    "a name with a tab": b"user al\tice on\n",
}


@pytest.fixture
def redis_with_file(peer: Callable[..., Peer], tmp_path: Path) -> Iterator[tuple[Connection, Path]]:
    """A Redis with its own ACL file, which is empty at first."""
    path = tmp_path / "theirs.acl"
    path.touch()
    connection = Connection(peer("redis-8.2", "--aclfile", str(path)))
    yield connection, path
    connection.close()


def ours(path: Path) -> LocalStore:
    path.touch()
    return LocalStore(config=Config(port=0, aclfile=str(path)), journaled=False)


@pytest.mark.peer
def test_files_are_loaded_and_saved_as_in_redis(
    redis_with_file: tuple[Connection, Path], tmp_path: Path
) -> None:
    redis, theirs = redis_with_file
    mine = tmp_path / "ours.acl"
    client = ours(mine).client(kind="tcp")
    for name, data in {**GOOD, **BAD}.items():
        # Given the same users in both
        for ask in (lambda *words: redis.run([words])[0], client):
            assert ask(b"ACL", b"SETUSER", b"before", b"on") == Simple(b"OK")
        # When both load the same file
        theirs.write_bytes(data)
        mine.write_bytes(data)
        expected, answer = redis.run([(b"ACL", b"LOAD")])[0], client("ACL", "LOAD")
        # Then both give the same reply, except for the file's name, and have the same users
        assert _of(answer, mine) == _of(expected, theirs), name
        assert isinstance(answer, Failure) == (name in BAD), name
        assert client("ACL", "LIST") == redis.run([(b"ACL", b"LIST")])[0], name
        # And write the same file
        assert client("ACL", "SAVE") == redis.run([(b"ACL", b"SAVE")])[0] == Simple(b"OK")
        assert mine.read_bytes() == theirs.read_bytes(), name


def _of(reply: Reply, path: Path) -> Reply:
    return reply.text.replace(str(path).encode(), b"FILE") if isinstance(reply, Failure) else reply


def test_a_selector_that_is_not_closed_is_an_error(tmp_path: Path) -> None:
    """Redis 8.2.3 crashes with such a file."""
    path = tmp_path / "users.acl"
    client = ours(path).client()
    path.write_bytes(b"user alice on (+get ~a\n")
    answer = client("ACL", "LOAD")
    assert isinstance(answer, Failure)
    assert b"users.acl:1: Unmatched parenthesis in selector definition. WARNING" in answer.text


def test_saved_users_are_loaded_again(tmp_path: Path) -> None:
    # Given users with patterns that contain characters of the file's syntax
    path = tmp_path / "users.acl"
    store = ours(path)
    client = store.client()
    rules = ["on", ">secret", '~a"b', "~(x)", "~)", "%R~'", "&#c", "+@stream", "+select|0"]
    client("ACL", "SETUSER", "al(ice", *rules, '(~"a)\\"\'b" %W~\\) +get)')
    listed = client("ACL", "LIST")

    # When they are saved, and loaded by another server
    assert client("ACL", "SAVE") == Simple(b"OK")

    # Then they are the same, and the file does not contain the password
    assert ours(path).client()("ACL", "LIST") == listed
    assert b"secret" not in path.read_bytes()


ALL_KEYS_BY_PATTERN = {
    "read and write": ["%RW~*", "~foo"],
    "read, then write": ["%R~*", "~foo", "%W~*"],
    "in a selector": ["(%RW~* ~foo +get)"],
    "alone": ["%RW~*"],
    "last": ["~foo", "%WR~*"],
}


@pytest.mark.peer
@pytest.mark.parametrize("case", ALL_KEYS_BY_PATTERN)
def test_a_pattern_that_permits_all_keys_is_shown_as_in_redis_and_loaded_again(
    case: str, redis_with_file: tuple[Connection, Path], tmp_path: Path
) -> None:
    redis, theirs = redis_with_file
    mine = tmp_path / "ours.acl"
    client = ours(mine).client(kind="tcp")
    # Given a user with the pattern * for reading and writing, which is shown like all keys, and other patterns
    for words in (
        (b"ACL", b"SETUSER", b"alice", *(rule.encode() for rule in ALL_KEYS_BY_PATTERN[case])),
        (b"ACL", b"LIST"),
        (b"ACL", b"GETUSER", b"alice"),
        (b"ACL", b"SETUSER", b"bob", b"~*", b"~foo"),  # an error
    ):
        assert client(*words) == redis.run([words])[0], words

    # When the users are saved
    listed = client("ACL", "LIST")
    assert client("ACL", "SAVE") == Simple(b"OK")

    # Then another server loads the same users, and so does Redis, which refuses some of its own such files
    again = ours(mine).client()
    assert again("ACL", "LIST") == listed
    assert again("ACL", "SETUSER", "alice", "~bar") == Simple(b"OK")
    theirs.write_bytes(mine.read_bytes())
    assert redis.run([(b"ACL", b"LOAD"), (b"ACL", b"LIST")]) == [Simple(b"OK"), listed]


@pytest.mark.peer
def test_selectors_are_saved_as_in_redis(
    redis_with_file: tuple[Connection, Path], tmp_path: Path
) -> None:
    redis, theirs = redis_with_file
    mine = tmp_path / "ours.acl"
    client = ours(mine).client(kind="tcp")
    rules = [b"(~\xff)", b"(~a\\b +get|\xc3\xa9)", b"(&\x01)", b"(~a)b)", b'("~c")']
    for words in ((b"ACL", b"SETUSER", b"alice", *rules), (b"ACL", b"LIST"), (b"ACL", b"SAVE")):
        assert client(*words) == redis.run([words])[0]
    assert mine.read_bytes() == theirs.read_bytes()


SPACED = [b"+select|a b", b"+select|0\nuser evil on nopass ~* &* +@all", b'("+select|a\\tb")']


@pytest.mark.peer
@pytest.mark.parametrize("rule", SPACED)
def test_a_first_argument_with_white_space_is_refused(
    rule: bytes, peer: Callable[..., Peer], tmp_path: Path
) -> None:
    """A line of a file would end or have other rules there. Redis 8.2.3 accepts it and ends at the next ACL LIST."""
    path = tmp_path / "users.acl"
    client = ours(path).client(kind="tcp")
    answer = client("ACL", "SETUSER", "alice", rule)
    assert isinstance(answer, Failure)
    assert answer.text.endswith(b": Syntax error")
    assert client("ACL", "USERS") == [b"default"]

    redis = Connection(peer("redis-8.2"))
    assert redis.run([(b"ACL", b"SETUSER", b"alice", rule)]) == [Simple(b"OK")]
    with pytest.raises(AssertionError, match="the server closed the connection"):
        redis.run([(b"ACL", b"LIST")])
    redis.close()


def test_a_file_is_replaced_as_a_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "users.acl"
    client = ours(path).client()
    path.chmod(0o640)
    assert client("ACL", "SAVE") == Simple(b"OK")
    assert path.stat().st_mode & 0o777 == 0o640
    path.unlink()
    assert client("ACL", "SAVE") == Simple(b"OK")
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_save_or_load_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "there" / "users.acl"
    path.parent.mkdir()
    client = ours(path).client()
    client("ACL", "SETUSER", "alice")
    path.unlink()
    path.parent.rmdir()
    for words, text in ((("ACL", "SAVE"), b"trying to save"), (("ACL", "LOAD"), b"opening file")):
        answer = client(*words)
        assert isinstance(answer, Failure)
        assert text in answer.text
    assert client("ACL", "USERS") == [b"alice", b"default"]


WRONG = {
    "user alice on nosuch": "user 'alice': 'nosuch': Syntax error",
    "user alice +nosuch": "Unknown command or category name in ACL",
    "user alice on\nuser alice off": "is defined twice",
    "user default on\nuser default on": "Duplicate user: it is defined twice",
    "user alice (+get": "is not closed",
    'user "a b" on': "must not contain spaces",
    "user alice <secret": "'<(redacted)': The password you are trying to remove",
    "aclfile {file}\nuser alice on": "in one place only",
    "aclfile {file}x": "Error loading ACLs, opening file",
}


@pytest.mark.parametrize("text", WRONG)
def test_invalid_users_are_an_error_at_the_start(text: str, tmp_path: Path) -> None:
    (tmp_path / "users.acl").touch()
    path = tmp_path / "headwater.conf"
    path.write_text(text.format(file=tmp_path / "users.acl"))
    with pytest.raises(ConfigError, match=WRONG[text].replace("(", r"\(").replace(")", r"\)")):
        AccessControl(load(file=path, environ={}))


def test_the_error_of_an_aclfile_names_the_line_and_no_password(tmp_path: Path) -> None:
    path = tmp_path / "users.acl"
    path.write_bytes(b"user alice on >secret\nuser bob #hunter2\n")
    with pytest.raises(ConfigError, match=r"users\.acl:2: The password hash must be") as caught:
        AccessControl(Config(aclfile=str(path)))
    assert "hunter2" not in str(caught.value)


@pytest.fixture
def configured(start: Start, tmp_path: Path) -> Iterator[tuple[ServerThread, Path]]:
    """A server with users in its configuration file."""
    path = tmp_path / "headwater.conf"
    path.write_text(
        'port 0\nappendonly no\nsave ""\nrequirepass first\n'
        "user alice on >secret ~a* +@all (+get ~b)\n"
        "# mine\n"
        "user bob off nopass\n"
    )
    with server_thread(load(file=path, environ={})) as server:
        yield server, path


def test_users_of_the_configuration_are_applied_and_rewritten(
    configured: tuple[ServerThread, Path],
) -> None:
    server, path = configured
    with connected(server.port) as wire:
        # Given users defined in a configuration file
        assert wire.ask("PING") == b"-NOAUTH Authentication required.\r\n"
        assert wire.ask("AUTH", "alice", "secret") == b"+OK\r\n"
        assert wire.ask("AUTH", "bob", "") == (
            b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
        )
        # When they change and CONFIG REWRITE runs
        assert wire.ask("AUTH", "first") == b"+OK\r\n"
        assert wire.ask("ACL", "SETUSER", "carol", "on", ">new", '~with"quote') == b"+OK\r\n"
        assert wire.ask("ACL", "DELUSER", "bob") == b":1\r\n"
        listed = wire.ask("ACL", "LIST")
        assert wire.ask("CONFIG", "REWRITE") == b"+OK\r\n"
    # Then the file defines the new users, with hashes instead of passwords
    text = path.read_text()
    again = AccessControl(load(file=path, environ={}))
    assert all(user.line() in listed for user in again.sorted())
    assert [user.name for user in again.sorted()] == [b"alice", b"carol", b"default"]
    assert "secret" not in text
    assert "# mine" in text
    assert text.count("\nuser ") == 3


def test_no_users_are_written_while_requirepass_describes_them_all(tmp_path: Path) -> None:
    path = tmp_path / "headwater.conf"
    path.write_text("requirepass first\n")
    config = load(file=path, environ={})
    access = AccessControl(config)
    assert access.lines(config.requirepass) == []
    access.set_default_password("second")
    assert len(access.lines(config.requirepass)) == 1


def test_users_can_be_given_as_flags(tmp_path: Path) -> None:
    config = load(flags=[("user", "alice on >x +@all"), ("user", "bob")], environ={})
    assert sorted(AccessControl(config).users) == [b"alice", b"bob", b"default"]
    assert "x" not in repr(config.users) or "users" not in repr(config)


def test_a_user_of_a_flag_replaces_the_one_of_the_file_even_after_a_rewrite(tmp_path: Path) -> None:
    # Given users in a file, one of which a flag defines again
    path = tmp_path / "headwater.conf"
    path.write_text("user alice on ~a\nuser bob on ~b\n")
    flag = ("user", ["alice", "on", "~c"])
    config = load(file=path, environ={}, flags=[flag])
    access = AccessControl(config)
    keys = [access.users[name].root.describe_keys() for name in (b"alice", b"bob")]
    assert keys == [b"~c", b"~b"]

    # When CONFIG REWRITE writes them to the file
    path.write_bytes(rewritten(config, users=access.lines("")))

    # Then the next start with the same flag has the same users
    again = load(file=path, environ={}, flags=[flag])
    assert AccessControl(again).lines("") == access.lines("")


def test_a_relative_aclfile_is_in_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given users of the same file name in the data directory and in the current one
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "u.acl").write_bytes(b"user alice on\n")
    (tmp_path / "u.acl").write_bytes(b"user bob on\n")
    monkeypatch.chdir(tmp_path)

    # When a store is opened with it, and the users are changed, saved and loaded
    config = Config(dir="data", aclfile="u.acl")
    client = LocalStore(config=config, journaled=False).client(kind="tcp")
    assert client("ACL", "USERS") == [b"alice", b"default"]
    client("ACL", "SETUSER", "carol", "on")
    client("ACL", "SAVE")
    client("ACL", "LOAD")

    # Then that happened in the data directory
    assert client("CONFIG", "GET", "aclfile") == [b"aclfile", b"u.acl"]
    assert b"carol" in (tmp_path / "data" / "u.acl").read_bytes()
    assert (tmp_path / "u.acl").read_bytes() == b"user bob on\n"
