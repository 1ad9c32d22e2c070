"""A thread that renews leases over a connection of its own.

Workers and Spark's group mode use it: neither may be kept from renewing by what their other threads do.

Rule 1. A lease is lost only when the server says so; a connection that is gone says nothing. It is
        replaced, and renewing is tried again.
Rule 2. It ends when it is stopped, and when its owner is gone without stopping it: what the owner had
        must not be kept from others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from headwater.groups.store_errors import Remedy, Step, lost_connection, remedy

if TYPE_CHECKING:
    import redis

log = logging.getLogger("headwater.groups")


class Leases(Protocol):
    """What a thread renews. All of it is called in that thread."""

    def renew(self, client: redis.Redis) -> None:
        """Renew everything once. Raises what the store answers."""

    def renewed(self) -> float:
        """That succeeded; in how many seconds to do it again."""

    def missed(self, error: Exception) -> float:
        """That failed; in how many seconds to try again."""

    def owner_is_gone(self) -> bool:
        """Whether nobody will ever stop the thread."""

    def ended(self, error: BaseException | None) -> None:
        """The thread ends although nobody stopped it."""


class LeaseThread:
    """Renews ``leases``, the first time after ``first`` seconds. ``connect`` opens its connection."""

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
        """Renew now, and again after what `Leases.renewed` says then."""
        self._wake.set()

    def stop(self) -> None:
        """Renew nothing more."""
        self._stopped = True
        self._wake.set()

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Return when the thread has closed its connection; after ``seconds`` it is stuck in a
        command."""
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
    """Close a client whose connection may be dead."""
    if client is not None:
        try:
            client.close()
        except lost_connection():
            pass
