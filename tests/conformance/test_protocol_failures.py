"""If the disk or the node fails, no reply is wrong, and the failure is reported."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from headwater.commands import dispatch
from headwater.commands.call import Call
from headwater.config.config import Config
from headwater.resp.arguments import Arguments
from headwater.testing.files import CrashableFiles
from headwater.testing.server import server_thread
from tests.conformance.wire import connected, encode, exchange

pytestmark = pytest.mark.slow

XADD = encode("XADD", "s", "*", "n", "1")


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.WARNING, "headwater"):
        yield


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_is_never_acknowledged_and_later_requests_are_errors(
    operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a server whose disk fails once
    files = CrashableFiles()
    config = Config(port=0, appendfsync="always")
    with server_thread(config, files=files) as server:
        assert exchange(server.port, encode("XADD", "s", "1-1", "n", "1")) == b"$3\r\n1-1\r\n"
        files.fail(operation)

        # Then the command gets no reply, and every later one an error, including reads
        assert exchange(server.port, XADD) == b""
        for request in (XADD, encode("XLEN", "s"), encode("PING")):
            assert exchange(server.port, request).startswith(b"-MISCONF ")

    # And the log gives the reason, once, and the exit status is that of a failure
    assert server.status == 1
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert re.search(r"journal-000001 could not be written: .*Input/output error.*restart", said)

    # And acknowledged writes exist after a restart
    with server_thread(Config(port=0), files=files) as server:
        assert b"1-1" in exchange(server.port, encode("XRANGE", "s", "-", "+"))


def test_a_full_disk_refuses_writes_and_serves_reads(caplog: pytest.LogCaptureFixture) -> None:
    # Given a disk with no room for another journal file, and a journal file that is nearly full
    files = CrashableFiles(capacity=64 * 1024 * 1024)
    with server_thread(Config(port=0), files=files) as server:
        big = encode("XADD", "s", "*", "n", "x" * 20_000_000)
        answers = [exchange(server.port, big) for _ in range(5)]

        # Then writes are refused before they run, reads are served, and no write is incomplete
        accepted = sum(answer.startswith(b"$") for answer in answers)
        assert 1 <= accepted < 5
        assert answers[-1].startswith(b"-MISCONF ")
        assert exchange(server.port, encode("XLEN", "s")) == b":%d\r\n" % accepted

        # And writes are accepted again when there is room
        files.capacity = None
        assert exchange(server.port, big).startswith(b"$")
    assert server.status == 0


def broken(call: Call) -> None:
    raise ZeroDivisionError(f"with {call.arguments.values()}")


def broken_in_a_change(call: Call) -> None:
    call.admit(1)
    broken(call)


def test_an_internal_error_is_the_reply_to_its_command_and_the_server_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a command with an internal error
    monkeypatch.setattr(dispatch.find_command(Arguments.of(b"XLEN", b"s")), "function", broken)
    with server_thread() as server:
        with connected(server.port) as other:
            # Then its client gets an error with an id that the log explains, and others are served
            reply = exchange(server.port, encode("XLEN", "s"))
            found = re.match(rb"-ERR internal error ([0-9a-f]{8}): ", reply)
            assert found
            assert other.ask("PING") == b"+PONG\r\n"
    assert server.status == 0
    (record,) = [one for one in caplog.records if found[1].decode() in one.getMessage()]
    assert record.exc_info


def test_an_internal_error_in_a_change_stops_the_server_without_a_reply(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a command with an internal error in the middle of a change
    xlen = dispatch.find_command(Arguments.of(b"XLEN", b"s"))
    monkeypatch.setattr(xlen, "function", broken_in_a_change)
    with server_thread() as server:
        with connected(server.port) as other:
            assert other.ask("PING") == b"+PONG\r\n"

            # Then it gets no reply, every connection is closed, and the exit status is that of a failure
            assert exchange(server.port, encode("XLEN", "s")) == b""
            assert other.reply() == b""
    assert server.status == 1
    assert any(record.exc_info for record in caplog.records)
