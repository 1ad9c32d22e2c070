"""The server as a service: signals, its log, and notifications of systemd."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from headwater.testing.server import ServerFailed, ServerProcess, server_process
from tests.conformance.wire import encode, exchange
from tests.e2e.notify import WITHIN, ServiceManager
from tests.waiting import eventually

pytestmark = pytest.mark.slow


def messages(text: str) -> list[str]:
    """Return the lines of a text log without their times."""
    return [line.split(" ", 2)[2] for line in text.splitlines()]


def answers(server: ServerProcess) -> bool:
    return exchange(server.port, encode("PING")) == b"+PONG\r\n"


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServiceManager]:
    made = ServiceManager(tmp_path if request.param == "path" else None)
    yield made
    made.close()


# --- signals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_reopens_the_log_file_and_has_no_other_effect(
    tmp_path: Path, number: signal.Signals
) -> None:
    # Given a server whose log file was renamed
    log, old = tmp_path / "headwater.log", tmp_path / "headwater.log.1"
    with server_process("--logfile", str(log), directory=tmp_path) as server:
        log.rename(old)
        # When it gets the signal
        os.kill(server.pid, number)
        # Then it writes to a new file, and continues to serve
        eventually(log.exists)
        eventually(lambda: "reopened" in log.read_text())
        assert messages(log.read_text()) == [f"INFO {number.name}: the log file was reopened"]
        assert answers(server)
        # And a hundred signals leave no file open
        files = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        for _ in range(100):
            os.kill(server.pid, number)
        assert answers(server)
        eventually(lambda: len(list(Path(f"/proc/{server.pid}/fd").iterdir())) == files)
    assert server.process is not None
    assert server.process.returncode == 0
    assert messages(log.read_text())[-1] == "INFO stopped with exit status 0"
    assert messages(old.read_text())[0].startswith(
        f"INFO started as process {server.pid}: headwater "
    )


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM])
def test_a_signal_does_not_end_a_starting_server(tmp_path: Path, number: signal.Signals) -> None:
    # Given a server whose first import is slow
    begun = tmp_path / "begun"
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'headwater.config.loading':\n"
        f"            open({str(begun)!r}, 'w').close()\n"
        "            time.sleep(0.3)\n"
        "sys.meta_path.insert(0, Slow())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-m", "headwater", "serve", "--port", "0", "--dir", str(tmp_path)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        # When it gets the signal during the import
        eventually(begun.exists)
        os.kill(process.pid, number)
        # Then it becomes ready
        assert process.stdout is not None
        assert process.stdout.readline().startswith("headwater ")
        process.terminate()
    assert process.returncode == 0


@pytest.mark.parametrize("output", ["full", "closed"])
def test_an_unwritable_ready_line_does_not_end_the_server(tmp_path: Path, output: str) -> None:
    # Given a standard output that cannot be written
    log, socket = tmp_path / "headwater.log", tmp_path / "socket"
    if output == "full":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, descriptor = os.pipe()
        os.close(reader)
    # When a server starts, in a directory whose name is not UTF-8
    directory = tmp_path / os.fsdecode(b"\xff")
    directory.mkdir()
    words = ["--port", "0", "--unixsocket", str(socket), "--logfile", str(log)]
    with subprocess.Popen(
        [sys.executable, "-m", "headwater", "serve", "--dir", str(directory), *words],
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        stdout=descriptor,
    ) as process:
        os.close(descriptor)
        eventually(lambda: log.exists() and "cannot be written" in log.read_text())
        # Then it serves, logs the error, and stops normally
        with redis.Redis(unix_socket_path=str(socket)) as client:
            assert client.ping()
        process.terminate()
    assert process.returncode == 0
    assert messages(log.read_text())[-1] == "INFO stopped with exit status 0"


def test_a_log_that_cannot_be_reopened_continues_in_the_old_file(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    with server_process("--logfile", str(logs / "log"), directory=tmp_path) as server:
        logs.rename(tmp_path / "moved")
        os.kill(server.pid, signal.SIGHUP)
        old = tmp_path / "moved" / "log"
        eventually(lambda: "cannot be reopened: No such file or directory" in old.read_text())
        assert answers(server)
    assert messages(old.read_text())[-1] == "INFO stopped with exit status 0"


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGALRM])
def test_other_signals_are_ignored(tmp_path: Path, number: signal.Signals) -> None:
    with server_process(directory=tmp_path) as server:
        os.kill(server.pid, number)
        assert answers(server)
        assert server.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_log_names_the_signal_that_ended_the_server(
    tmp_path: Path, number: signal.Signals
) -> None:
    with server_process(directory=tmp_path) as server:
        assert server.signal(number) == 0
        assert messages(server.log())[1:] == [
            f"INFO {number.name}: the server stops",
            "INFO stopped with exit status 0",
        ]


def test_the_log_names_the_client_that_ended_the_server(tmp_path: Path) -> None:
    with server_process(directory=tmp_path) as server:
        with redis.Redis.from_url(server.url) as client:
            client.acl_setuser("admin", enabled=True, nopass=True, commands=["+shutdown"])
        assert (
            exchange(server.port, encode("AUTH", "admin", "x") + encode("SHUTDOWN")) == b"+OK\r\n"
        )
        assert server.wait() == 0
        assert re.fullmatch(
            r"INFO SHUTDOWN by client \d+ \(127\.0\.0\.1:\d+\), user admin: the server stops",
            messages(server.log())[1],
        )


def test_signals_while_the_loop_closes_print_nothing_and_do_not_change_the_exit_status(
    tmp_path: Path,
) -> None:
    # Given a server whose event loop gets SIGTERM while it closes, and again afterwards
    program = (
        "import asyncio, sys; from tests.closing_loop import ClosingLoops; from headwater.cli.entry import main;"
        "asyncio.set_event_loop_policy(ClosingLoops());"
        "sys.argv[:] = ['headwater', 'serve', '--port', '0', '--dir', sys.argv[1]]; main()"
    )
    log = tmp_path / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "data")], stderr=output, stdout=output
        )
    eventually(lambda: "started as process" in log.read_text())
    # When it stops
    server.send_signal(signal.SIGTERM)
    # Then its exit status is 0, and nothing is printed about the other signals
    assert server.wait(WITHIN) == 0
    assert messages(log.read_text())[-1] == "INFO stopped with exit status 0"


# --- the log ------------------------------------------------------------------------------------------


def test_log_format_json_is_one_object_per_line(tmp_path: Path) -> None:
    with server_process("--log-format", "json", directory=tmp_path) as server:
        exchange(server.port, b"*1\r\n\x1b[2J\r\n")
        assert server.stop() == 0
    said = [json.loads(line) for line in server.log().splitlines()]
    assert [each["level"] for each in said] == ["INFO", "WARNING", "INFO", "INFO"]
    assert {each["pid"] for each in said} == {server.pid}
    assert said[0]["message"].startswith("started as process ")
    assert "is disconnected: Protocol error: expected '$', got '\\x1b'" in said[1]["message"]


def test_a_full_disk_for_the_log_does_not_stop_the_store(tmp_path: Path) -> None:
    with server_process("--logfile", "/dev/full", directory=tmp_path) as server:
        for _ in range(20):
            exchange(server.port, b"*x\r\n")
        assert answers(server)
        assert server.stop() == 0
    assert server.log() == ""


def test_a_log_file_that_cannot_be_opened_is_one_line_on_standard_error(tmp_path: Path) -> None:
    server = ServerProcess("--logfile", str(tmp_path / "missing" / "log"), directory=tmp_path)
    with pytest.raises(ServerFailed) as caught:
        server.start()
    assert caught.value.status == 1
    assert re.fullmatch(
        r"headwater: logfile '.*' cannot be opened: No such file or directory; .*\n",
        caught.value.said,
    )


# --- systemd ------------------------------------------------------------------------------------------


def test_systemd_is_notified_of_start_reload_and_stop(
    tmp_path: Path, manager: ServiceManager
) -> None:
    # Given a service manager that waits for a notification
    environment = {"NOTIFY_SOCKET": manager.address}
    with server_process(directory=tmp_path, environment=environment) as server:
        # Then it is notified when the server is ready, with its process id
        ready = manager.until("READY")
        assert ready["READY"] == "1"
        assert ready["MAINPID"] == str(server.pid)
        assert ready["STATUS"] == server.ready_line
        assert answers(server)
        assert b"process_supervised:systemd" in exchange(server.port, encode("INFO", "server"))

        # And when a reload begins and ends
        os.kill(server.pid, signal.SIGHUP)
        reloading = manager.next()
        assert reloading["RELOADING"] == "1"
        assert int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        assert manager.next() == {"READY": "1"}

        # And before the server stops
        os.kill(server.pid, signal.SIGTERM)
        assert manager.next()["STOPPING"] == "1"
        assert server.wait() == 0


def test_a_blocked_loop_does_not_notify_the_watchdog(
    tmp_path: Path, manager: ServiceManager
) -> None:
    # Given a service manager that expects a watchdog notification every 200 ms
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "400000"}
    flags = ("--enable-debug-command", "local")
    with server_process(*flags, directory=tmp_path, environment=environment) as server:
        manager.until("READY")
        for _ in range(4):
            assert manager.next() == {"WATCHDOG": "1"}

        # When a command blocks the loop
        with redis.Redis.from_url(server.url) as client:
            client.ping()
            manager.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    manager.next()
            client.execute_command("DEBUG", "SLEEP", "2")
            # Then notifications are missing during that time, and continue afterwards
            received = []
            with pytest.raises(BlockingIOError):
                while True:
                    received.append(manager.next())
            assert len(received) <= 5
        manager.socket.settimeout(WITHIN)
        assert manager.next() == {"WATCHDOG": "1"}


def test_the_watchdog_of_another_process_is_ignored(
    tmp_path: Path, manager: ServiceManager
) -> None:
    environment = {
        "NOTIFY_SOCKET": manager.address,
        "WATCHDOG_USEC": "1000",
        "WATCHDOG_PID": "1",
    }
    with server_process(directory=tmp_path, environment=environment) as server:
        manager.until("READY")
        assert answers(server)
        os.kill(server.pid, signal.SIGTERM)
        assert "STOPPING" in manager.next()


def test_a_long_replay_requests_more_time(tmp_path: Path, manager: ServiceManager) -> None:
    received: list[dict[str, str]] = []
    environment = {"NOTIFY_SOCKET": manager.address}
    with server_process(directory=tmp_path, environment=environment):
        manager.until("READY", also=received.append)
    assert int(received[0]["EXTEND_TIMEOUT_USEC"]) >= 10_000_000
    assert received[0]["STATUS"] == "loading the journal"


@pytest.mark.parametrize("address", ["/nowhere/notify", "vsock:2:1234", "relative"])
def test_a_missing_service_manager_is_logged_once_and_does_not_stop_the_server(
    tmp_path: Path, address: str
) -> None:
    environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "10000"}
    with server_process(directory=tmp_path, environment=environment) as server:
        for _ in range(10):
            assert answers(server)
        assert server.stop() == 0
    warnings = [line for line in messages(server.log()) if line.startswith("WARNING")]
    assert len(warnings) == 1
    assert "notified" in warnings[0] or "NOTIFY_SOCKET" in warnings[0]


def test_supervised_no_sends_no_notifications(tmp_path: Path, manager: ServiceManager) -> None:
    environment = {"NOTIFY_SOCKET": manager.address}
    with server_process(
        "--supervised", "no", directory=tmp_path, environment=environment
    ) as server:
        assert b"process_supervised:no" in exchange(server.port, encode("INFO", "server"))
    manager.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.next()


def test_supervised_systemd_without_systemd_is_logged(tmp_path: Path) -> None:
    with server_process("--supervised", "systemd", directory=tmp_path) as server:
        assert messages(server.log())[0].startswith(
            "WARNING supervised is systemd, but NOTIFY_SOCKET is not set"
        )
        assert answers(server)
