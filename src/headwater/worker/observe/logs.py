"""Logging of ``headwater work`` and of its worker processes: lines on standard error.

    2026-11-22 20:05:53,123 INFO [4711] headwater.worker: bill reads orders     --log-format text
    {"time": "2026-11-22T20:05:53.123Z", "level": "INFO", "pid": 4711, …}       --log-format json

The app's own log lines go there too, unless the app configures logging itself. Then Headwater's lines go where the
app's configuration sends them.
"""

from __future__ import annotations

import logging
from enum import StrEnum

from headwater.server.log import JsonFormatter, LogHandler, TextFormatter


class LogLevel(StrEnum):
    """The lowest level of lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The format of a line."""

    TEXT = "text"
    JSON = "json"


class WorkerTextFormatter(TextFormatter):
    """Formats time, level, process, logger and message. The process is shown because several processes write to one
    standard error."""

    def head(self, record: logging.LogRecord) -> str:
        return f"{super().head(record)} [{record.process}] {record.name}:"


def configure_logging(level: LogLevel = LogLevel.INFO, form: LogFormat = LogFormat.TEXT) -> None:
    """Write the lines of all loggers in this process that have at least ``level`` to standard error."""
    global _configured
    _configured = (level, form)
    handler = LogHandler("")
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else WorkerTextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def enable_loggers() -> None:
    """Enable Headwater's loggers again, if `configure_logging` was called in this process.

    `logging.config` disables all loggers that exist when the app's code calls it, unless it is told not to. Levels and
    handlers stay as the app has set them.
    """
    if _configured is None:
        return
    for name, found in list(logging.root.manager.loggerDict.items()):
        if isinstance(found, logging.Logger) and name.partition(".")[0] == "headwater":
            found.disabled = False


_configured: tuple[LogLevel, LogFormat] | None = None


def configured() -> tuple[LogLevel, LogFormat] | None:
    """Return the arguments of `configure_logging` in this process, for pool processes; None if it was not called."""
    return _configured
