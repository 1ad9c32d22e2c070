"""Signals to a server process whose journal is being replayed."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
import redis

from headwater.testing.server import ServerProcess, server_process
from tests.conformance.wire import encode, exchange
from tests.e2e.test_service import messages
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def long_journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose journal takes some time to replay: 400,000 small transactions."""
    home = tmp_path_factory.mktemp("long")
    with server_process("--appendfsync", "no", directory=home) as server:
        request = encode("XADD", "s", "*", "n", "1") * 4000
        for _ in range(100):
            exchange(server.port, request)
        server.kill()  # a clean stop would replace the journal by an image
    return server.data


def journal_of(data: Path) -> dict[str, bytes]:
    """Return the content of the journal's files."""
    return {file.name: file.read_bytes() for file in data.glob("journal-*")}


def starting(server: ServerProcess) -> None:
    """Launch a server and return when it has begun to read its journal."""
    server.launch()
    eventually((server.data / "headwater.lock").exists)
    holder = str(server.pid)
    eventually(lambda: (server.data / "headwater.lock").read_text().strip() == holder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_journal_is_replayed_ends_the_server_cleanly(
    tmp_path: Path, long_journal: Path, number: signal.Signals
) -> None:
    # Given a server that replays a long journal
    shutil.copytree(long_journal, tmp_path / "data")
    before = journal_of(tmp_path / "data")
    server = ServerProcess(directory=tmp_path)
    starting(server)

    # When it gets the signal several times
    for _ in range(5):
        os.kill(server.pid, number)
    status = server.wait()

    # Then it stops at once, with status 0 and a log line, and without a traceback
    assert status == 0
    assert messages(server.log()) == [f"INFO {number.name}: the server stops before it is ready"]

    # And the journal is as it was, and the next start finds all entries
    assert journal_of(server.data) == before
    server.start()
    try:
        with redis.Redis.from_url(server.url) as client:
            assert client.xlen("s") == 400_000
    finally:
        assert server.stop() == 0


def test_log_signals_while_the_journal_is_replayed_do_not_end_the_server(
    tmp_path: Path, long_journal: Path
) -> None:
    shutil.copytree(long_journal, tmp_path / "data")
    log = tmp_path / "headwater.log"
    server = ServerProcess("--logfile", str(log), directory=tmp_path)
    starting(server)
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
        os.kill(server.pid, number)
    try:
        eventually(lambda: "INFO started as process" in log.read_text())
        assert "INFO SIGHUP: the log file was reopened" in messages(log.read_text())
    finally:
        assert server.stop() == 0
