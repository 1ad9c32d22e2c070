"""Limits log lines that a client or a disk can cause repeatedly.

    log = LimitedLog(logging.getLogger("headwater.server"), monotonic=clock.monotonic)
    log.warning("client %d (%s) is disconnected: %s", client.id, client.address, error)
    ...
    log.report()        # once a second: writes the counts of lines that were left out

Rule 1. Each message template is written `LIMITED_LOG_LINES` times in `LIMITED_LOG_SECONDS`. Further
        lines of that template are counted, not written.
Rule 2. A count is written as one line when its period is over.
Rule 3. Time is monotonic: setting the wall clock changes nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from headwater.common.limits import LIMITED_LOG_LINES, LIMITED_LOG_SECONDS


@dataclass
class _Window:
    """The lines of one template since ``began``."""

    began: float
    level: int
    lines: int = 0
    left_out: int = 0


class LimitedLog:
    """A logger that limits the number of lines of each template.

    >>> logger = logging.getLogger("headwater.example")
    >>> logger.setLevel(logging.INFO)
    >>> log = LimitedLog(logger, monotonic=lambda: 0.0)
    >>> for number in range(LIMITED_LOG_LINES + 5):
    ...     log.info("client %d is disconnected", number)
    >>> log.left_out("client %d is disconnected")
    5

    Templates are constants of the program. Values that vary belong in the arguments.
    """

    def __init__(self, logger: logging.Logger, *, monotonic: Callable[[], float]) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._windows: dict[str, _Window] = {}
        self._lock = threading.Lock()

    def info(self, template: str, *arguments: object) -> None:
        """Log at INFO."""
        self._log(logging.INFO, template, arguments)

    def warning(self, template: str, *arguments: object) -> None:
        """Log at WARNING."""
        self._log(logging.WARNING, template, arguments)

    def error(self, template: str, *arguments: object, error: BaseException) -> None:
        """Log at ERROR, with the traceback of ``error``."""
        self._log(logging.ERROR, template, arguments, error)

    def left_out(self, template: str) -> int:
        """Return the number of lines of this template that were left out and are not yet reported."""
        window = self._windows.get(template)
        return 0 if window is None else window.left_out

    def report(self) -> None:
        """Write the counts whose period is over."""
        if self._windows:
            now = self._monotonic()
            with self._lock:
                over = [
                    (template, window)
                    for template, window in self._windows.items()
                    if now - window.began >= LIMITED_LOG_SECONDS
                ]
                for template, _window in over:
                    del self._windows[template]
            for template, window in over:
                self._report(template, window)

    def _log(
        self,
        level: int,
        template: str,
        arguments: tuple[object, ...],
        error: BaseException | None = None,
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        self.report()
        with self._lock:
            window = self._windows.get(template)
            if window is None:
                window = self._windows[template] = _Window(self._monotonic(), level)
            passes = window.lines < LIMITED_LOG_LINES
            if passes:
                window.lines += 1
            else:
                window.left_out += 1
        if passes:
            self._logger.log(level, template, *arguments, exc_info=error)

    def _report(self, template: str, window: _Window) -> None:
        if window.left_out:
            self._logger.log(
                window.level,
                "%d more lines like this one were left out within %d seconds: %s",
                window.left_out,
                LIMITED_LOG_SECONDS,
                template,
            )
