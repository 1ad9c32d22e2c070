"""Whether the store answers a process, said in two lines: one when it goes away, one when it is back.

Reader, settler, lease renewer and publisher meet the same outage, each many times. Every attempt is
logged at DEBUG; the first trouble of any of them, and the end of the last, at WARNING.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum

from headwater.client.redaction import redacted
from headwater.groups.operation import Refused
from headwater.groups.store_errors import WRITES_REFUSED, Remedy, Step, remedy

log = logging.getLogger("headwater.worker")


class Trouble(Enum):
    """What can be wrong with a store, in the words of the two lines."""

    UNREACHED = ("cannot be reached", "answers")
    """Nobody of this process has reached it yet."""
    AWAY = ("went away", "is back")
    UNWRITABLE = ("takes no writes", "takes writes again")
    REFUSING = ("refuses a command", "accepts what it had refused")


class Availability:
    """Collects the troubles of all that talk to one store; safe among threads."""

    def __init__(self, url: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._url = redacted(url)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._troubled: dict[str, Trouble] = {}
        self._since: dict[Trouble, float] = {}
        self._answered = False

    def troubled(self, who: str, error: BaseException, *, pause: float) -> None:
        """``who`` met ``error`` and tries again in ``pause`` seconds."""
        trouble = _kind(error)
        if trouble is Trouble.AWAY and not self._answered:
            trouble = Trouble.UNREACHED
        with self._lock:
            before = self._troubled.get(who)
            if before is not trouble:
                self._forget(who)
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
        """The store has answered ``who``, or there is nothing more that it wants."""
        self._answered = True
        if who in self._troubled:
            with self._lock:
                self._forget(who)

    def _forget(self, who: str) -> None:
        trouble = self._troubled.pop(who, None)
        if trouble is None or trouble in self._troubled.values():
            return
        seconds = self._monotonic() - self._since.pop(trouble)
        log.warning("the store %s %s after %.1f s", self._url, trouble.value[1], seconds)


def _kind(error: BaseException) -> Trouble:
    if isinstance(error, Refused):
        if error.code in WRITES_REFUSED or error.code == "READONLY":
            return Trouble.UNWRITABLE
        if remedy(error, Step.READ) is Remedy.WAIT:
            return Trouble.REFUSING
    return Trouble.AWAY
