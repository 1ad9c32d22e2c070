"""A thread that renews leases over its own connection.

Workers and Spark's group mode use it, so that their other threads cannot delay a renewal.

Rule 1. Only a reply of the server can show that a lease is lost. After a broken connection the thread
        connects again and repeats the renewal.
Rule 2. The thread ends when it is stopped, and also when its owner has ended without stopping it, so that
        others can claim the owner's entries.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from headwater.groups.protocol.store_errors import Remedy, Step, lost_connection, remedy

if TYPE_CHECKING:
    import redis

log = logging.getLogger("headwater.groups")


class Leases(Protocol):
    """The leases that a thread renews. The thread calls all methods."""

    def renew(self, client: redis.Redis) -> None:
        """Renew everything once. Raises the store's error."""

    def renewed(self) -> float:
        """Record that a renewal succeeded, and return the seconds until the next one."""

    def missed(self, error: Exception) -> float:
        """Record that a renewal failed with ``error``, and return the seconds until the next attempt."""

    def owner_is_gone(self) -> bool:
        """Return whether the owner has ended, so that nothing will stop the thread."""

    def ended(self, error: BaseException | None) -> None:
        """Record that the thread ended without being stopped: by ``error``, or None if its owner has ended."""


class LeaseThread:
    """Renews ``leases``, for the first time after ``first`` seconds. ``connect`` opens its connection."""

    def __init__(self, leases: Leases, *, connect: Callable[[], redis.Redis], first: float) -> None:
        self._leases = leases
        self._connect = connect
        self._first = first
        self._stopped = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headwater-leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hurry(self) -> None:
        """Renew now. The next renewal follows after the time that `Leases.renewed` returns."""
        self._wake.set()

    def stop(self) -> None:
        """Stop renewing."""
        self._stopped = True
        self._wake.set()

    @property
    def stopped(self) -> bool:
        return self._stopped

    def join(self, seconds: float) -> None:
        """Wait until the thread has closed its connection, at most ``seconds``, because the thread may be
        stuck in a command."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        error = None
        try:
            self._keep()
        except BaseException as found:
            error = found
        if not self._stopped:
            self._leases.ended(error)

    def _keep(self) -> None:
        client: redis.Redis | None = None
        pause = self._first
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            if self._stopped or self._leases.owner_is_gone():
                break
            try:
                if client is None:
                    client = self._connect()
                self._leases.renew(client)
            except Exception as error:
                what = remedy(error, Step.RENEW)
                if what is Remedy.END:
                    log.exception("renewing leases failed")
                if what in (Remedy.RECONNECT, Remedy.END):
                    _close(client)
                    client = None
                pause = self._leases.missed(error)
            else:
                pause = self._leases.renewed()
        _close(client)


def _close(client: redis.Redis | None) -> None:
    """Close a client whose connection may be broken."""
    if client is not None:
        try:
            client.close()
        except lost_connection():
            pass
