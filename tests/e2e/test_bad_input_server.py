"""Every wrong input gets one clear error, and loses no acknowledged write."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from headwater.testing.server import ServerFailed, ServerProcess, server_process
from tests.conformance.wire import connected, encode, exchange

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory for a server; its path is short enough for a unix socket."""
    return tmp_path


def refused(home: Path, *flags: str, environment: dict[str, str] | None = None) -> str:
    """Start a server that cannot start, check its exit status 1, and return its one line of output."""
    server = ServerProcess(*flags, directory=home, environment=environment)
    with pytest.raises(ServerFailed) as caught:
        server.start()
    assert caught.value.status == 1
    line = caught.value.said
    assert line.startswith("headwater: ")
    assert line.endswith("\n")
    assert line.count("\n") == 1, "one line, no traceback"
    return line.removeprefix("headwater: ").strip()


# --- startup ----------------------------------------------------------------------------------------


def test_a_port_in_use_is_named_and_the_data_is_not_touched(home: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        said = refused(home, "--port", str(port))
    assert said == (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; another server listens there: "
        "choose another --port (0 picks a free one)"
    )
    assert not (home / "data").exists()


def test_an_address_of_another_machine_is_named(home: Path) -> None:
    said = refused(home, "--bind", "192.0.2.1")
    assert re.match(r"cannot listen on 192\.0\.2\.1:\d+: Cannot assign requested address; ", said)


def test_an_optional_address_may_be_missing_but_not_every_one(home: Path) -> None:
    with server_process("--bind", "127.0.0.1 -192.0.2.1", directory=home) as server:
        assert exchange(server.port, encode("PING")) == b"+PONG\r\n"
    assert refused(home, "--bind", "-192.0.2.1").startswith("no address to listen on")
    assert refused(home, "--bind", "").startswith("no address to listen on")


def test_a_directory_in_use_by_another_server_is_named_and_the_other_continues(home: Path) -> None:
    with server_process(directory=home) as first:
        with redis.Redis.from_url(first.url) as client:
            client.xadd("s", {"a": "1"})
            second = home / "second"
            second.mkdir()
            said = refused(second, "--dir", str(first.data))
            assert str(first.data) in said
            assert re.search(r"held|use", said)
            assert client.xlen("s") == 1


def test_a_directory_that_cannot_be_written_is_named(home: Path) -> None:
    (home / "file").write_text("not a directory")
    for directory in (home / "file", home / "file" / "below"):
        assert str(directory) in refused(home, "--dir", str(directory))
    assert (home / "file").read_text() == "not a directory"


def test_a_directory_that_every_user_may_write_is_named(home: Path) -> None:
    (home / "data").mkdir()
    (home / "data").chmod(0o777)
    assert refused(home) == (
        f"the data directory {home / 'data'} can be written by every user (mode 0777), who could "
        f"replace the files in it. Run chmod o-w {home / 'data'}, or choose another directory."
    )
    assert list((home / "data").iterdir()) == []


def test_a_symbolic_link_instead_of_a_data_file_is_named_and_not_followed(home: Path) -> None:
    (home / "data").mkdir(mode=0o700)
    (home / "victim").write_text("precious")
    (home / "data" / "headwater.lock").symlink_to(home / "victim")
    said = refused(home)
    assert said.startswith(f"{home / 'data' / 'headwater.lock'} is a symbolic link; ")
    assert (home / "victim").read_text() == "precious"


def test_a_damaged_journal_is_named_with_file_and_offset_and_not_changed(home: Path) -> None:
    # Given a journal in which a byte in the middle was changed after it was synced
    with server_process("--appendfsync", "always", directory=home) as server:
        with redis.Redis.from_url(server.url) as client:
            for number in range(100):
                client.xadd("s", {"n": number})
    (journal,) = [path for path in server.data.iterdir() if path.name == "journal-000001"]
    whole = bytearray(journal.read_bytes())
    place = whole.index(b"$1\r\nn\r\n$2\r\n50\r\n")
    whole[place] ^= 0xFF
    journal.write_bytes(whole)

    # When a server is started with it
    said = refused(home)

    # Then the error names the place, and the journal is unchanged
    assert "journal-000001" in said
    assert re.search(r"offset \d+|byte \d+|at \d+", said), said
    assert journal.read_bytes() == whole


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "prot 1",
            "line 2: Bad directive or wrong number of arguments: unknown setting 'prot'; did you mean 'port'?",
        ),
        ("port one", "line 2: 'port \"one\"': argument couldn't be parsed into an integer"),
        (
            "databases 32",
            "line 2: 'databases \"32\"': the only value is 16; the number of databases cannot be changed",
        ),
    ],
)
def test_a_wrong_line_of_the_configuration_is_named(home: Path, line: str, said: str) -> None:
    file = home / "headwater.conf"
    file.write_text(f"# first\n{line}\n")
    assert refused(home, "--config", str(file)) == f"{file}, {said}"


def test_wrong_flags_and_variables_are_named(home: Path) -> None:
    assert refused(home, "--maxclient", "5").startswith(
        "flag --maxclient: Bad directive or wrong number of arguments: unknown setting 'maxcl"
    )
    assert refused(home, "--maxclients").startswith(
        "flag --maxclients: 'maxclients': wrong number of arguments; maxclients needs a value"
    )
    assert refused(home, "--port", "x").startswith("flag --port: 'port \"x\"': argument")
    assert refused(home, "serve").endswith(
        'data" "serve"\': wrong number of arguments; dir takes one value: quote it'
    )
    environment = {"HEADWATER_APPENDFSYNC": "sometimes"}
    assert refused(home, environment=environment) == (
        "environment, HEADWATER_APPENDFSYNC: 'appendfsync \"sometimes\"': argument(s) must "
        "be one of the following: everysec, always, no"
    )
    missing = home / "missing.conf"
    assert refused(home, "--config", str(missing)) == (
        f"{missing}: cannot be read: No such file or directory; correct the path or its permissions"
    )


def test_a_unix_socket_in_use_is_named_and_a_stale_one_is_replaced(home: Path) -> None:
    path = home / "socket"
    with server_process("--unixsocket", str(path), directory=home) as first:
        second = home / "second"
        second.mkdir()
        assert refused(second, "--unixsocket", str(path)) == (
            f"cannot listen on unix:{path}: another server uses it; choose another --unixsocket"
        )
        first.kill()
        assert path.exists()
        first.start()
        with redis.Redis.from_url(first.unix_url) as client:
            assert client.ping()
    assert not path.exists()
    path.write_text("a letter")
    assert refused(home, "--unixsocket", str(path)).endswith("the file exists and is not a socket")
    assert path.read_text() == "a letter"
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as another:
        another.bind(str(path))
        assert refused(home, "--unixsocket", str(path)).startswith(
            f"cannot listen on unix:{path}: Protocol wrong type for socket"
        )
    assert path.is_socket()
    too_long = home / ("x" * 120)
    assert "path too long" in refused(home, "--unixsocket", str(too_long))


class FewFiles(ServerProcess):
    """A server that may open only 160 files, 28 more than it needs itself."""

    def command(self) -> list[str]:
        return ["sh", "-c", 'ulimit -n 160 && exec "$@"', "sh", *super().command()]


def test_a_low_limit_of_open_files_lowers_maxclients(home: Path) -> None:
    server = FewFiles(directory=home)
    server.start()
    try:
        assert (
            "maxclients lowered to 28: the system allows this process 160 open files"
            in server.log()
        )
        with ExitStack() as stack:
            for _ in range(28):
                assert stack.enter_context(connected(server.port)).ask("PING") == b"+PONG\r\n"
            too_many = stack.enter_context(connected(server.port))
            assert too_many.reply() == b"-ERR max number of clients reached\r\n"
    finally:
        assert server.stop() == 0


# --- requests ---------------------------------------------------------------------------------------


@pytest.fixture
def server(home: Path) -> Iterator[ServerProcess]:
    with server_process("--appendfsync", "always", directory=home) as started:
        yield started


BAD_REQUESTS = {
    b"*1\r\n$4\r\nNOPE\r\n": b"-ERR unknown command 'NOPE', with args beginning with: \r\n",
    encode("XGROUP", "NOPE", "s"): b"-ERR unknown subcommand 'NOPE'. Try XGROUP HELP.\r\n",
    encode("XADD", "s"): b"-ERR wrong number of arguments for 'xadd' command\r\n",
    encode("XGROUP", "CREATE"): b"-ERR wrong number of arguments for 'xgroup|create' command\r\n",
    encode("XADD", "text", "*", "a", "b"): b"-WRONGTYPE Operation against a key holding the wrong "
    b"kind of value\r\n",
    encode("GET", "s"): b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    encode("XADD", "s", "0-1", "a", "b"): b"-ERR The ID specified in XADD is equal or smaller than "
    b"the target stream top item\r\n",
    encode("SCAN", "1" * 5000): b"-ERR invalid cursor\r\n",
    b"*x\r\n": b"-ERR Protocol error: invalid multibulk length\r\n",
    b"*1\r\n$-7\r\n": b"-ERR Protocol error: invalid bulk length\r\n",
    b"*1\r\nGET\r\n": b"-ERR Protocol error: expected '$', got 'G'\r\n",
    b'XADD "s\r\n': b"-ERR Protocol error: unbalanced quotes in request\r\n",
    b"\x00" * 100_000: b"-ERR Protocol error: too big inline request\r\n",
}


def test_every_bad_request_gets_its_error_and_loses_nothing(server: ServerProcess) -> None:
    # Given a stream, a string and a client
    with redis.Redis.from_url(server.url) as client:
        client.set("text", "kept")
        client.xadd("s", {"n": 0}, id="5-0")

        # When bad requests arrive, each between good ones
        for number, (bad, said) in enumerate(BAD_REQUESTS.items(), 1):
            assert exchange(server.port, encode("PING") + bad) == b"+PONG\r\n" + said
            assert client.xadd("s", {"n": number}) is not None

        # Then nothing is lost, also after a crash
        expected = [b"%d" % number for number in range(len(BAD_REQUESTS) + 1)]
        assert [fields[b"n"] for _, fields in client.xrange("s")] == expected
        server.kill()
        server.start()
        assert [fields[b"n"] for _, fields in client.xrange("s")] == expected
        assert client.get("text") == b"kept"


def test_a_transaction_with_a_bad_command_does_nothing(server: ServerProcess) -> None:
    with connected(server.port) as wire:
        assert wire.ask("MULTI") == b"+OK\r\n"
        assert wire.ask("XADD", "s", "*", "a", "b") == b"+QUEUED\r\n"
        assert wire.ask("XADD", "s").startswith(b"-ERR wrong number of arguments")
        assert wire.ask("EXEC").startswith(b"-EXECABORT ")
        assert wire.ask("EXISTS", "s") == b":0\r\n"


def test_a_refused_multi_or_watch_does_not_abort_the_transaction(server: ServerProcess) -> None:
    with connected(server.port) as wire:
        assert wire.ask("MULTI") == b"+OK\r\n"
        assert wire.ask("MULTI") == b"-ERR MULTI calls can not be nested\r\n"
        assert wire.ask("WATCH", "s") == b"-ERR WATCH inside MULTI is not allowed\r\n"
        assert wire.ask("SET", "s", "v") == b"+QUEUED\r\n"
        assert wire.ask("EXEC") == b"*1\r\n+OK\r\n"


def test_a_counter_at_its_maximum_stays_there(server: ServerProcess) -> None:
    # Given a stream and a group whose counters XSETID and XGROUP have set to the maximum
    most = 2**63 - 1
    with redis.Redis.from_url(server.url) as client:
        client.xadd("s", {"a": "b"}, id="1-0")
        client.execute_command("XSETID", "s", "1-0", "ENTRIESADDED", most)
        client.xgroup_create("s", "g", "1-0", entries_read=most)

        # When another entry is added and read
        client.xadd("s", {"a": "b"}, id="2-0")
        assert client.xreadgroup("g", "c", {"s": ">"})

        # Then the counters stay, also after a crash
        for _ in range(2):
            assert client.xinfo_stream("s")["entries-added"] == most
            (group,) = client.xinfo_groups("s")
            assert (group["entries-read"], group["lag"]) == (most, 0)
            server.kill()
            server.start()


# --- shutdown and recovery --------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(home: Path, number: signal.Signals) -> None:
    with server_process("--appendfsync", "no", directory=home) as server:
        with redis.Redis.from_url(server.url) as client:
            client.xadd("s", {"a": "1"})
            assert server.signal(number) == 0
            server.start()
            assert client.xlen("s") == 1
        assert "cut" not in server.log()


def test_shutdown_ends_it_cleanly_and_closes_the_connection(home: Path) -> None:
    with server_process(directory=home) as server:
        assert exchange(server.port, encode("SET", "k", "v") + encode("SHUTDOWN")) == b"+OK\r\n"
        assert server.wait() == 0
        server.start()
        assert exchange(server.port, encode("GET", "k")) == b"$1\r\nv\r\n"


def test_the_ready_line_has_addresses_and_durability(home: Path) -> None:
    path = home / "socket"
    with server_process("--unixsocket", str(path), directory=home) as server:
        assert re.fullmatch(
            rf"headwater \S+ ready at 127\.0\.0\.1:{server.port} and unix:{re.escape(str(path))}, "
            rf"journal {re.escape(str(server.data))} appendfsync everysec, (plain|compiled)",
            server.ready_line,
        )
        assert exchange(server.port, encode("CONFIG", "GET", "port")).endswith(
            f"{server.port}\r\n".encode()
        )
    with server_process("--appendonly", "no", "--save", "", directory=home / "data") as server:
        assert ', no journal (appendonly no, save ""), nothing is stored, ' in server.ready_line
        assert "WARNING" not in server.log()


def test_a_torn_tail_is_cut_and_reported(home: Path) -> None:
    # Given a server that was killed while it wrote a record
    with server_process("--appendfsync", "no", directory=home) as server:
        with redis.Redis.from_url(server.url) as client:
            first = client.xadd("s", {"n": "1"})
            client.xadd("s", {"n": "torn away"})
            server.kill()
            journal = server.data / "journal-000001"
            data = bytearray(journal.read_bytes())
            place = data.rindex(b"torn away")
            data[place + 4 :] = bytes(len(data) - place - 4)
            journal.write_bytes(data)

            # When it starts again
            server.start()

            # Then the complete entry is there, and the cut is reported
            assert [found for found, _ in client.xrange("s")] == [first]
    assert re.search(
        r"WARNING the journal's tail was torn .* cut \d+ bytes at offset \d+", server.log()
    )


def test_temporary_files_of_a_killed_rewrite_are_removed_at_the_next_start(home: Path) -> None:
    # Given the files that CONFIG REWRITE and ACL SAVE had written when their server was killed
    config, users = home / "headwater.conf", home / "users.acl"
    config.write_text(f"aclfile {users}\n")
    users.write_text("user default on nopass ~* &* +@all\n")
    left = [home / ".headwater.conf.0123456789.new", home / ".users.acl.abcdef0123.new"]
    for path in left:
        path.write_text(
            "user alice on #5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"
        )
    # When a server starts with these files
    with server_process("--config", str(config), directory=home):
        # Then the temporary files are removed
        assert [path for path in left if path.exists()] == []
    assert config.exists()
    assert users.exists()


def test_config_rewrite_makes_a_setting_persistent(home: Path) -> None:
    file = home / "headwater.conf"
    file.write_text("# kept\nmaxclients 50\n")
    with server_process("--config", str(file), directory=home) as server:
        with redis.Redis.from_url(server.url) as client:
            client.config_set("maxclients", 60, "appendfsync", "always")
            client.config_rewrite()
    lines = file.read_text().splitlines()
    assert lines[:2] == ["# kept", "maxclients 60"]
    assert "appendfsync always" in lines
