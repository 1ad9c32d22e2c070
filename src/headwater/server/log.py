"""The log of a server process: its destination, its formats, and reopening its file.

    2026-11-22 20:05:53,123 INFO SIGTERM: the server stops                      log-format text
    {"time": "2026-11-22T20:05:53.123Z", "level": "INFO", "logger": …}          log-format json

Rule 1. One record is one line; in the text format, a traceback follows on indented lines. Control
        characters are escaped, so nothing that a client sends can end a line or forge one.
Rule 2. A line that cannot be written is counted, and no error is raised: a full disk under the log does not
        stop the store. When lines can be written again, a line reports the number of lost ones.
Rule 3. `LogHandler.reopen` puts the new file behind the old descriptor in one step. Reopening is safe in a signal
        handler and in the middle of a line.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from headwater.common.limits import MAX_LOG_MESSAGE
from headwater.common.names import escaped
from headwater.config.process import ProcessConfig
from headwater.errors import ConfigError

LOG_LEVELS = {
    "debug": logging.DEBUG,
    "verbose": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "nothing": logging.CRITICAL + 1,
}

_OPEN_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Flags for opening the log file. With O_NONBLOCK, opening a FIFO without a reader fails instead of waiting."""


def message_of(record: logging.LogRecord) -> str:
    """Return the message of a record, escaped and cut to `MAX_LOG_MESSAGE` characters."""
    text = record.getMessage()
    if len(text) > MAX_LOG_MESSAGE:
        text = f"{text[:MAX_LOG_MESSAGE]}… ({len(text)} characters)"
    return escaped(text)


class TextFormatter(logging.Formatter):
    """Formats time, level and message. A traceback follows on indented lines."""

    def head(self, record: logging.LogRecord) -> str:
        """Return the beginning of a line."""
        return f"{self.formatTime(record)} {record.levelname}"

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.head(record)} {message_of(record)}"
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n    {escaped(part)}" for part in trace.split("\n"))
        return line


class JsonFormatter(logging.Formatter):
    """Formats a JSON object: time (UTC), level, logger, pid, message and any exception."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": message_of(record),
        }
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            fields["exception"] = "\n".join(map(escaped, trace.split("\n")))
        return json.dumps(fields, ensure_ascii=True)


class LogHandler(logging.Handler):
    """Writes lines to a file, or to standard error if ``path`` is empty.

    Raises `OSError` when the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = str(Path(path).absolute()) if path else ""
        self._lost = 0
        self._torn = False
        """True if the file ends with an incomplete line."""
        self._reason = ""
        if self.path:
            self._descriptor = os.open(self.path, _OPEN_FLAGS, 0o666)
        elif sys.stderr is None:  # closed at the start: its descriptor may be another file's now
            self._descriptor = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        else:
            self._descriptor = os.dup(sys.stderr.fileno())

    def reopen(self) -> None:
        """Open the file again. Raises `OSError`; the old file then remains in use."""
        if self.path:
            new = os.open(self.path, _OPEN_FLAGS, 0o666)
            try:
                os.dup2(new, self._descriptor, inheritable=False)
            finally:
                os.close(new)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:
            line = self.format(_note(f"a log line cannot be formatted: {record.msg!r}: {error!r}"))
        if self._lost:
            lost = self.format(_note(f"{self._lost} log lines were lost: {self._reason}"))
            line = f"{lost}\n{line}"
        if self._torn:
            line = f"\n{line}"
        self._write(f"{line}\n".encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        super().close()

    def _write(self, data: bytes) -> None:
        done = 0
        try:
            while done < len(data):
                done += os.write(self._descriptor, data[done:])
        except OSError as error:
            self._lost += 1
            self._torn = self._torn if done == 0 else data[done - 1 : done] != b"\n"
            self._reason = f"[Errno {error.errno}] {error.strerror}"
        else:
            self._lost = 0
            self._torn = False


def _note(text: str) -> logging.LogRecord:
    """Return a record about the log itself."""
    return logging.LogRecord("headwater.log", logging.ERROR, "", 0, text, None, None)


def configure_logging(config: ProcessConfig) -> LogHandler:
    """Send log records of ``loglevel`` and above to ``logfile`` or, if that is empty, to standard error.

    Raises `ConfigError` when the file cannot be opened.
    """
    try:
        handler = LogHandler(config.logfile)
    except OSError as error:
        raise ConfigError(
            f"logfile {config.logfile!r} cannot be opened: {error.strerror}; correct the path or its "
            "permissions"
        ) from None
    logger = logging.getLogger("headwater")
    for old in [each for each in logger.handlers if isinstance(each, LogHandler)]:
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.propagate = False
    apply_loglevel(config)
    apply_log_format(config)
    return handler


def apply_loglevel(config: ProcessConfig) -> None:
    """Apply the setting ``loglevel``."""
    logging.getLogger("headwater").setLevel(LOG_LEVELS[config.loglevel])


def apply_log_format(config: ProcessConfig) -> None:
    """Apply the setting ``log-format``."""
    for handler in logging.getLogger("headwater").handlers:
        if isinstance(handler, LogHandler):
            handler.setFormatter(
                JsonFormatter() if config.log_format == "json" else TextFormatter()
            )


def reopen_log(cause: str) -> None:
    """Reopen the log file. ``cause`` is the name of the signal that requested it."""
    logger = logging.getLogger("headwater")
    log = logging.getLogger("headwater.server")
    for handler in logger.handlers:
        if not isinstance(handler, LogHandler):
            continue
        if not handler.path:
            log.info("%s: the log goes to standard error, so no file is reopened", cause)
            continue
        try:
            handler.reopen()
        except OSError as error:
            log.error(  # noqa: TRY400 - the message has the reason; a traceback adds nothing
                "%s: logfile %r cannot be reopened: %s; the old file remains in use",
                cause,
                handler.path,
                error.strerror,
            )
        else:
            log.info("%s: the log file was reopened", cause)
