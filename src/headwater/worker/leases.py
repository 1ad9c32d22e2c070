"""Keeps the leases of what a consumer holds, running and buffered alike.

Rule 1. Every third of the lease, everything held is renewed, as long as it is still owned.
Rule 2. In its own thread with its own connection, so that a handler that blocks the event loop
        keeps its lease. In tests, where time stands still between two advances, a task does it.
Rule 3. A lease is lost only when the server says so; a connection that is gone says nothing.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from headwater.groups.member import Member
from headwater.groups.operation import Operation, Refused, perform, run
from headwater.groups.settling import renew
from headwater.worker.clocks import Timers, sleep
from headwater.worker.connections import Connections, lost_connection
from headwater.worker.held import Held

if TYPE_CHECKING:
    import redis

log = logging.getLogger("headwater.worker")

CHUNK = 1_000
"""Entries renewed by one command: a fraction of a millisecond of the server's time."""


Ended = Callable[[str, BaseException | None], None]
"""Called in the event loop if the renewer ends although nothing asked it to."""


class Tenant(Protocol):
    """Whose leases are kept."""

    held: dict[bytes, Held]
    member: Member | None

    def lost(self, entries: Sequence[Held]) -> None:
        """These were not owned any more when they were to be renewed."""


def renew_all(member: Member, entries: Sequence[Held]) -> Operation[list[Held]]:
    """Renew them; those that are not owned any more."""
    lost: list[Held] = []
    for first in range(0, len(entries), CHUNK):
        part = entries[first : first + CHUNK]
        flags = yield from renew(member, [one.id for one in part])
        lost += [one for one, kept in zip(part, flags, strict=True) if not kept]
    return lost


class ThreadKeeper:
    """Renews from a thread."""

    def __init__(
        self,
        tenant: Tenant,
        *,
        lease_ms: int,
        clock: Timers,
        connections: Connections,
        ended: Ended,
    ) -> None:
        self._tenant = tenant
        self._seconds = lease_ms / 3000
        self._clock = clock
        self._connections = connections
        self._ended = ended
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self.renewed_at = clock.monotonic()
        self._thread = threading.Thread(target=self._run, name="headwater-leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        """Renew nothing more."""
        self._stop.set()

    async def close(self) -> None:
        """Return when the thread has closed its connection, or is stuck in a command."""
        self._stop.set()
        if self._thread.ident is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join, 1.0)

    def _run(self) -> None:
        error = None
        try:
            self._keep()
        except BaseException as found:
            error = found
        if not self._stop.is_set():
            self._loop.call_soon_threadsafe(self._ended, "lease renewer", error)

    def _keep(self) -> None:
        client = None
        while not self._stop.wait(self._seconds):
            try:
                if client is None:
                    client = self._connections.synchronous()
                self._beat(client)
            except lost_connection() as error:
                log.warning("leases could not be renewed, trying again: %s", error)
            except Refused as error:
                # A group that is gone is the reader's to make again; anything else it meets too.
                log.debug("leases were not renewed: %s", error)
            except Exception:
                log.exception("renewing leases failed")
        if client is not None:
            client.close()

    def _beat(self, client: redis.Redis) -> None:
        member = self._tenant.member
        entries = list(self._tenant.held.values())
        began = self._clock.monotonic()
        if member is not None and entries:
            lost = run(client, renew_all(member, entries))
            if lost:
                self._loop.call_soon_threadsafe(self._tenant.lost, lost)
        self.renewed_at = began


class TaskKeeper:
    """Renews from a task, on a clock that a test advances."""

    def __init__(
        self,
        tenant: Tenant,
        *,
        lease_ms: int,
        clock: Timers,
        connections: Connections,
        ended: Ended,
    ) -> None:
        self._tenant = tenant
        self._seconds = lease_ms / 3000
        self._clock = clock
        self._connections = connections
        self._ended = ended
        self._stopping = False
        self.renewed_at = clock.monotonic()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep(), name="headwater leases")
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not self._stopping:
            self._ended("lease renewer", None if task.cancelled() else task.exception())

    def cancel(self) -> None:
        self._stopping = True
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self.cancel()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        client = self._connections.asynchronous()
        try:
            while True:
                await sleep(self._clock, self._seconds)
                member = self._tenant.member
                entries = list(self._tenant.held.values())
                self.renewed_at = self._clock.monotonic()
                if member is None or not entries:
                    continue
                try:
                    lost = await perform(client, renew_all(member, entries))
                except Refused as error:
                    log.debug("leases were not renewed: %s", error)
                except lost_connection() as error:
                    log.warning("leases could not be renewed, trying again: %s", error)
                else:
                    self._tenant.lost(lost)
        finally:
            await client.aclose()
