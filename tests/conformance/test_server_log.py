"""The log contains what an operator has to know, and clients cannot fill a disk with it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from headwater.common.limits import LIMITED_LOG_LINES, LIMITED_LOG_SECONDS, MAX_RECORD_GROUP_BYTES
from headwater.config.config import Config
from headwater.engine.facts.facts import FactBuffer
from headwater.journal.format.batches import groups_of
from headwater.journal.log.flusher import Flusher
from headwater.journal.log.journal import Journal
from headwater.server.services.records import TurnRecords
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from headwater.testing.server import server_thread
from tests.conformance.wire import connected, encode, exchange

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, "headwater"):
        yield


def test_a_protocol_error_is_logged_with_its_client(caplog: pytest.LogCaptureFixture) -> None:
    # Given a server, and a client that sends invalid bytes
    with server_thread() as server, connected(server.port) as wire:
        address = "{}:{}".format(*wire.socket.getsockname())
        wire.socket.sendall(b"*1\r\nGET\r\n")
        assert wire.reply() == b"-ERR Protocol error: expected '$', got 'G'\r\n"
    # Then the log names the client and the error
    assert f"({address}) is disconnected: Protocol error: expected '$', got 'G'" in caplog.text


def test_hundreds_of_protocol_errors_are_logged_in_a_few_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a client that connects repeatedly and sends invalid bytes
    count = 300
    clock = ManualClock()
    with server_thread(clock=clock) as server:
        for _ in range(count):
            assert exchange(server.port, b"*x\r\n").startswith(b"-ERR Protocol error")
        # Then ten lines are logged
        said = [line for line in caplog.messages if "Protocol error" in line]
        assert len(said) == LIMITED_LOG_LINES
        # And, after a minute, a line with the number of the others
        clock.advance(LIMITED_LOG_SECONDS)
        exchange(server.port, b"*x\r\n")
    left_out = count - LIMITED_LOG_LINES
    assert f"{left_out} more lines like this one were left out" in caplog.text


@pytest.mark.slow
def test_misconf_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a disk with room for one journal file, which is nearly full
    files = CrashableFiles(capacity=64 * MIB)
    with server_thread(Config(port=0), files=files) as server:
        big = encode("XADD", "s", "*", "n", "x" * 20_000_000)
        for _ in range(3):
            exchange(server.port, big)

        # When writes are refused, while small ones between them still fit
        for _ in range(10):
            assert exchange(server.port, big).startswith(b"-MISCONF ")
            assert exchange(server.port, encode("SET", "k", "v")) == b"+OK\r\n"

        # Then one line is logged
        (begins,) = [line for line in caplog.messages if "MISCONF" in line]
        assert begins.startswith("writes are refused with MISCONF from now on: ")
        assert "are needed for the next file" in begins

        # And another one when there is room again
        files.capacity = None
        for _ in range(5):
            assert exchange(server.port, big).startswith(b"$")
        said = [
            (record.levelname, record.getMessage())
            for record in caplog.records
            if record.name == "headwater.server"
            and not record.getMessage().startswith("checkpoint")
        ]
        assert said == [
            ("ERROR", begins),
            ("WARNING", "writes are accepted again: the journal has room"),
        ]


def test_a_write_that_exceeds_a_record_group_is_not_logged_as_misconf(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Facts that exceed the size of a record group are the command's fault, not the disk's.
    journal = Journal.open(CrashableFiles(), policy="always")
    assert list(groups_of(journal.batches())) == []
    records = TurnRecords(FactBuffer())
    records.use(FactBuffer(), journal)
    assert records.admit(MAX_RECORD_GROUP_BYTES + 1) is not None
    journal.close()
    assert caplog.messages == []


class Signal(logging.Handler):
    """Sets an event when a line is logged."""

    def __init__(self, event: threading.Event) -> None:
        super().__init__()
        self.event = event

    def emit(self, record: logging.LogRecord) -> None:
        self.event.set()


def test_a_turn_that_waits_for_a_slow_fsync_is_logged_before_it_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given an fsync that runs until a line has been logged
    clock, files = ManualClock(), CrashableFiles()
    files.create("journal-000001", 100)
    flusher = Flusher(files, clock=clock, on_failure=lambda error: pytest.fail(str(error)))
    began, logged = threading.Event(), threading.Event()

    def hold(line: str) -> None:
        if line.startswith("sync"):
            began.set()
            assert logged.wait(30)

    files.on_operation = hold
    logger, handler = logging.getLogger("headwater.journal"), Signal(logged)
    logger.addHandler(handler)
    flusher.wrote(1, 50, 1)
    thread = threading.Thread(target=flusher.flush_once)
    thread.start()
    assert began.wait(30)

    # When a turn starts two and a half seconds later
    clock.advance(2.5)
    flusher.wait_if_late()
    thread.join()
    logger.removeHandler(handler)

    # Then the log says what the turn waits for
    (said,) = caplog.messages
    assert said == (
        "an fsync of the journal has been running for 2.5 seconds (is the disk busy?): writes wait "
        "until it ends"
    )


def test_shutdown_is_logged_with_its_client(caplog: pytest.LogCaptureFixture) -> None:
    with server_thread() as server, connected(server.port) as wire:
        address = "{}:{}".format(*wire.socket.getsockname())
        wire.socket.sendall(encode("SHUTDOWN", "NOSAVE"))
        assert wire.socket.recv(100) == b""
    assert f"({address}), user default: the server stops" in caplog.text
    assert caplog.messages[0].startswith("SHUTDOWN by client ")
