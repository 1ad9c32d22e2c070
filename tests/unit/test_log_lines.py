"""A record is one line in either format, the log file can be replaced, and a full disk is harmless."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headwater.common.limits import MAX_LOG_MESSAGE
from headwater.config.config import Config
from headwater.errors import ConfigError
from headwater.server.log import (
    JsonFormatter,
    LogHandler,
    TextFormatter,
    configure_logging,
    reopen_log,
)
from headwater.testing.node import LocalStore

FORGED = (
    "\n2026-01-01 00:00:00,000 CRITICAL the disk is gone\r\x1b[2J\x00\x7f\x85\u2028\u202e\udcff"
)
TEXT_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO|WARNING|ERROR) .*")


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """Headwater's logger. Restores it after the test."""
    found = logging.getLogger("headwater")
    before = list(found.handlers), found.level, found.propagate
    yield found
    for handler in [each for each in found.handlers if each not in before[0]]:
        found.removeHandler(handler)
        handler.close()
    found.setLevel(before[1])
    found.propagate = before[2]


def record(message: str, *arguments: object, error: BaseException | None = None) -> Any:
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord(
        "headwater.server", logging.WARNING, __file__, 1, message, arguments, info
    )


def failure(text: str) -> BaseException:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# --- the format of a line -------------------------------------------------------------------------------


def test_a_client_can_neither_break_nor_forge_a_text_line() -> None:
    line = TextFormatter().format(record("client %s said %s", 7, FORGED))
    assert TEXT_LINE.fullmatch(line)
    assert line.isprintable()
    assert "\\n2026-01-01" in line
    assert line.endswith(r"\r\x1b[2J\x00\x7f\xc2\x85\xe2\x80\xa8\xe2\x80\xae\xff")


def test_the_lines_of_a_traceback_are_indented_and_escaped() -> None:
    lines = TextFormatter().format(record("failed", error=failure(FORGED))).split("\n")
    assert TEXT_LINE.fullmatch(lines[0])
    assert len(lines) > 3
    assert all(line.startswith("    ") and line.isprintable() for line in lines[1:])


def test_a_json_record_has_its_fields_and_is_one_line() -> None:
    line = JsonFormatter().format(record("client %s said %s", 7, FORGED))
    assert line.isascii()
    assert line.isprintable()
    said = json.loads(line)
    assert said.keys() == {"time", "level", "logger", "pid", "message"}
    assert (said["level"], said["logger"], said["pid"]) == (
        "WARNING",
        "headwater.server",
        os.getpid(),
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", said["time"])
    assert abs(datetime.fromisoformat(said["time"]).timestamp() - record("").created) < 60
    assert said["message"].isprintable()


def test_a_json_record_contains_the_traceback() -> None:
    line = JsonFormatter().format(record("failed", error=failure("bad\x1bthing")))
    said = json.loads(line)
    assert "\n" not in line
    assert said["exception"].splitlines()[-1] == r"ValueError: bad\x1bthing"


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_a_message_of_ten_megabytes_is_cut(formatter: logging.Formatter) -> None:
    line = formatter.format(record("%s", "x" * 10_000_000))
    assert len(line) < MAX_LOG_MESSAGE + 300
    assert "(10000000 characters)" in line


# --- the log file ---------------------------------------------------------------------------------------


def test_log_format_can_be_changed_while_the_server_runs(
    logger: logging.Logger, tmp_path: Path
) -> None:
    # Given a server that logs text
    path = tmp_path / "log"
    configure_logging(Config(logfile=str(path)))
    logger.warning("first")
    # When CONFIG SET sets JSON, and then text again
    client = LocalStore(journaled=False).client()
    client("CONFIG", "SET", "log-format", "json")
    logger.warning("second")
    client("CONFIG", "SET", "log-format", "text", "loglevel", "nothing")
    logger.critical("unsaid")
    # Then later lines have that format
    first, second = path.read_text().splitlines()
    assert first.endswith(" WARNING first")
    assert json.loads(second)["message"] == "second"
    client("CONFIG", "SET", "loglevel", "notice")


def test_a_renamed_log_file_is_created_again(logger: logging.Logger, tmp_path: Path) -> None:
    # Given a log file that logrotate has renamed
    path, old = tmp_path / "log", tmp_path / "log.1"
    configure_logging(Config(logfile=str(path)))
    logger.warning("before")
    path.rename(old)
    logger.warning("still the old file")
    # When it is opened again
    reopen_log("SIGHUP")
    logger.warning("after")
    # Then later lines go to a new file
    assert [line.partition(" WARNING ")[2] for line in old.read_text().splitlines()] == [
        "before",
        "still the old file",
    ]
    assert [line.split(" ", 3)[3] for line in path.read_text().splitlines()] == [
        "SIGHUP: the log file was reopened",
        "after",
    ]


@pytest.mark.parametrize("made", ["directory", "fifo"])
def test_the_old_log_file_stays_in_use_if_the_new_one_cannot_be_opened(
    logger: logging.Logger, tmp_path: Path, made: str
) -> None:
    path, old = tmp_path / "log", tmp_path / "log.1"
    configure_logging(Config(logfile=str(path)))
    path.rename(old)
    path.mkdir() if made == "directory" else os.mkfifo(path)
    open_before = open_files()
    for _ in range(1000):
        reopen_log("SIGUSR1")
    logger.warning("after")
    lines = old.read_text().splitlines()
    assert f"ERROR SIGUSR1: logfile '{path}' cannot be reopened: " in lines[0]
    assert lines[0].endswith("the old file remains in use")
    assert lines[-1].endswith("WARNING after")
    assert open_files() == open_before


def test_a_log_file_that_cannot_be_opened_is_an_error_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "log"
    with pytest.raises(ConfigError) as caught:
        configure_logging(Config(logfile=str(path)))
    assert str(caught.value) == (
        f"logfile {str(path)!r} cannot be opened: No such file or directory; correct the path or its "
        "permissions"
    )


def test_lines_lost_to_a_full_disk_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a log on a full disk
    path = tmp_path / "log"
    path.symlink_to("/dev/full")
    handler = LogHandler(str(path))
    handler.setFormatter(TextFormatter())
    for number in range(50):
        handler.handle(record("line %d", number))

    # When there is space again
    path.unlink()
    handler.reopen()
    handler.handle(record("written"))
    handler.close()

    # Then the log says how many lines are missing, and standard error is empty
    lost, written = path.read_text().splitlines()
    assert lost.endswith("ERROR 50 log lines were lost: [Errno 28] No space left on device")
    assert written.endswith("WARNING written")
    assert capsys.readouterr().err == ""


def test_a_partly_written_line_does_not_damage_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a disk that is full after ten bytes of a line
    path = tmp_path / "log"
    handler = LogHandler(str(path))
    handler.setFormatter(JsonFormatter())
    real, room = os.write, 10

    def full(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        done = real(descriptor, data[:room])
        room -= done
        return done

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        handler.handle(record("torn"))
        handler.handle(record("lost"))
    # When there is space again
    handler.handle(record("whole"))
    handler.close()
    # Then the next lines are complete
    torn, *lines = path.read_text().splitlines()
    assert torn == '{"time": "'
    assert [json.loads(line)["message"] for line in lines] == [
        "2 log lines were lost: [Errno 28] No space left on device",
        "whole",
    ]


def test_a_line_that_cannot_be_formatted_is_reported(tmp_path: Path) -> None:
    handler = LogHandler(str(tmp_path / "log"))
    handler.setFormatter(TextFormatter())
    handler.handle(record("%d is not a number", "seven"))
    handler.close()
    assert "a log line cannot be formatted: '%d is not a number'" in (tmp_path / "log").read_text()


def test_without_standard_error_lines_go_to_dev_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    handler = LogHandler("")
    handler.setFormatter(TextFormatter())
    handler.handle(record("into nothing"))
    assert os.path.samestat(os.fstat(handler._descriptor), Path(os.devnull).stat())
    handler.close()
