"""Logs an outage of the store in two lines: one when it begins, one when it ends.

Reader, settler, lease renewer and publisher meet the same outage, each many times. Every attempt is logged at
DEBUG; the first error of any of them, and the recovery of the last one, at WARNING.

Rule. The second line says what the store has done: it has answered. A part that stops using the store, or meets
      another error, does not show that; then there is no second line.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum

from headwater.client.redaction import redacted
from headwater.groups.protocol.operation import Refused
from headwater.groups.protocol.store_errors import WRITES_REFUSED, Remedy, Step, remedy

log = logging.getLogger("headwater.worker")


class Trouble(Enum):
    """The kinds of outages, with the texts of the two lines."""

    UNREACHED = ("cannot be reached", "answers")
    """This process has not reached the store yet."""
    AWAY = ("does not answer", "answers again")
    UNWRITABLE = ("refuses writes", "accepts writes again")
    REFUSING = ("refuses a command", "accepts it again")


_SILENT = (Trouble.UNREACHED, Trouble.AWAY)
"""The kinds that end with any answer, also with a refusal."""


class Availability:
    """Collects the errors of all parts of a process that use one store. Thread-safe."""

    def __init__(self, url: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._url = redacted(url)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._troubled: dict[str, Trouble] = {}
        self._since: dict[Trouble, float] = {}
        self._answered = False
        self.local_cause: Callable[[], str | None] = lambda: None
        """Returns why answers may be late although the store answers: this process did not run a moment ago
        (`ProcessDelays`), or something large fills the link."""

    def troubled(self, who: str, error: BaseException, *, pause: float) -> None:
        """Record that ``who`` met ``error`` and tries again in ``pause`` seconds."""
        trouble = _kind(error)
        if trouble is Trouble.AWAY and not self._answered:
            trouble = Trouble.UNREACHED
        if trouble in _SILENT and not self._troubled and (cause := self.local_cause()):
            log.debug("%s: trying again in %.2f s, because %s: %s", who, pause, cause, error)
            return
        with self._lock:
            before = self._troubled.get(who)
            if before in _SILENT and trouble in _SILENT:
                trouble = (
                    before  # still the same outage, also if another part was answered meanwhile
                )
            elif before is not trouble:
                self._forget(who, ended=before in _SILENT)
                self._troubled[who] = trouble
            first = trouble not in self._since
            if first:
                self._since[trouble] = self._monotonic()
        if first:
            log.warning(
                "the store %s %s (%s): %s; trying again until it %s",
                self._url,
                trouble.value[0],
                who,
                str(error).rstrip(". "),
                trouble.value[1],
            )
        else:
            log.debug("%s: trying again in %.2f s: %s", who, pause, error)

    def well(self, who: str) -> None:
        """Record that the store has done what ``who`` asked."""
        self._answered = True
        if who in self._troubled:
            with self._lock:
                self._forget(who, ended=True)

    def left(self, who: str) -> None:
        """Record that ``who`` does not use the store any more, or not now."""
        if who in self._troubled:
            with self._lock:
                self._forget(who, ended=False)

    def _forget(self, who: str, *, ended: bool) -> None:
        trouble = self._troubled.pop(who, None)
        if trouble is None or trouble in self._troubled.values():
            return
        seconds = self._monotonic() - self._since.pop(trouble)
        if ended:
            log.warning("the store %s %s after %.1f s", self._url, trouble.value[1], seconds)


def _kind(error: BaseException) -> Trouble:
    if isinstance(error, Refused):
        if error.code in WRITES_REFUSED or error.code == "READONLY":
            return Trouble.UNWRITABLE
        if remedy(error, Step.READ) is Remedy.WAIT:
            return Trouble.REFUSING
    return Trouble.AWAY
