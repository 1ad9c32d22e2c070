"""Which lines of a log are alarms: they tell an operator that something is damaged, lost or unknown.

A healthy store has none after any crash: who reads a false one restores a backup, or learns to read none. So every
test and campaign that crashes or kills a healthy store asserts that there are none. What breaks a disk or flips bits
does not.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ALARMING: Final = re.compile(
    r"damage|\blost\b|\brestore|unknown|\bmissing\b|corrupt|cannot be read|internal error|Traceback",
    re.IGNORECASE,
)
"""What a line says that is an alarm."""

_ORDINARY = re.compile(r"\S+ \S+ (?:DEBUG|INFO) ")
"""How a line of a server's log begins that is not a warning."""


def alarms_in(log: str) -> list[str]:
    """Return the alarms in the log of a server, the text of its standard error."""
    return [
        line for line in log.splitlines() if not _ORDINARY.match(line) and ALARMING.search(line)
    ]


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collect the alarms that stores in this process log while the block runs. Nothing else gets them."""
    heard: list[str] = []
    logger, ear = logging.getLogger("headwater"), _Ear(heard)
    level, propagate, disabled = logger.level, logger.propagate, logger.manager.disable
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    logger.addHandler(ear)
    logging.disable(logging.NOTSET)
    try:
        yield heard
    finally:
        logger.removeHandler(ear)
        logger.setLevel(level)
        logger.propagate = propagate
        logging.disable(disabled)


class _Ear(logging.Handler):
    def __init__(self, heard: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard += alarms_in(self.format(record))
