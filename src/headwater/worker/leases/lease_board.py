"""Lets the supervisor renew the leases of a worker process while the process itself cannot.

    worker process: LeaseSlot.renewed ──▶ shared memory ◀── SupervisorRenewer, in the supervisor
                                                            │ overdue, and the process runs: renews for it
                                                            │ overdue, and it is stopped: reports it alive

A handler that holds the interpreter's lock (GIL) stops every thread of its process, including the one that renews
leases. The process is alive, so it must keep its entries.

Rule 1. The memory holds only times. The store knows which entries a consumer owns. So a message costs no write,
        and the entries of a reply that the process has not read yet are renewed too.
Rule 2. The supervisor renews for a process that runs: /proc shows that it is not stopped, and that its threads use
        the processor or wait in turns (a thread that waits for the lock wakes every few milliseconds).
Rule 3. Entries of a process that is stopped or frozen are not renewed, and others claim them after ``claim_after``.
        Before that the supervisor records that their owner has not died (`reading.poison.heard`).
Rule 4. A process whose handlers all have a ``timeout`` is killed if the lock is held for longer than the longest of
        them, because its own event loop cannot notice the timeout.
Rule 5. Without /proc (not on Linux) the supervisor renews nothing.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import signal
import struct
import tempfile
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headwater.common.stacks import context_switches
from headwater.groups.membership.member import Member
from headwater.groups.protocol.capabilities import probe
from headwater.groups.protocol.operation import Operation, perform
from headwater.groups.reading.claiming import owned
from headwater.groups.reading.ordered import is_reader, keep_reader_key
from headwater.groups.reading.poison import heard
from headwater.groups.settling.settling import renew
from headwater.worker.store.connections import Connections, deadline_s

if TYPE_CHECKING:
    import redis.asyncio

log = logging.getLogger("headwater.worker")

SLOTS: Final = 4_096
"""Maximum number of consumers in the memory of one process. Memory that is never written is not allocated."""

TICKS: Final = SLOTS - 1
"""The slot in which the process writes the time when its threads last ran."""

OVERDUE_SECONDS = 3.0
"""Time for which the lock may be held beyond the longest timeout, in seconds: a busy machine may stop all threads."""

SAID_SECONDS = 1.0
"""Minimum silence that is logged, in seconds. On a busy machine, shorter silences are normal."""

LOOKS, LOOK_SECONDS = 4, 0.02
"""Number of checks whether a process does anything, and the interval between checks, in seconds."""

_TIMES = struct.Struct("dd")
"""The times of the last renewals by the process and by its supervisor, by the monotonic clock that they share."""


class LeaseReport(NamedTuple):
    """A consumer of a worker process, as the process reports it to the supervisor."""

    slot: int
    stream: str
    group: str
    consumer: str
    claim_after_ms: int
    lease_ms: int
    ordered: bool
    longest_ms: int | None
    """Maximum time to hold the interpreter's lock: the handlers' timeout, 0 in pool processes, None for no limit."""


class Board:
    """The shared memory of one worker process and its supervisor."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SLOTS * _TIMES.size)

    def times(self, slot: int) -> tuple[float, float]:
        """Return the times when the process and the supervisor last renewed this consumer's leases."""
        by_process, by_supervisor = _TIMES.unpack_from(self._memory, slot * _TIMES.size)
        return by_process, by_supervisor

    def renewed(self, slot: int, at: float, *, by_supervisor: bool = False) -> None:
        """Record a renewal that was sent at ``at``."""
        place = slot * _TIMES.size + 8 * by_supervisor
        struct.pack_into("d", self._memory, place, at)

    def close(self) -> None:
        self._memory.close()


def board_file() -> int:
    """Return the descriptor of an empty file in memory, for a `Board`.

    The file is not on a disk. If the disk were full, a write to a new page would end the process (SIGBUS).
    """
    if not hasattr(os, "memfd_create"):  # not on Linux, where nothing is renewed (rule 5)
        with tempfile.TemporaryFile() as file:
            file.write(bytes(SLOTS * _TIMES.size))
            file.flush()
            return os.dup(file.fileno())
    descriptor = os.memfd_create("headwater-leases")
    os.ftruncate(descriptor, SLOTS * _TIMES.size)
    return descriptor


class LeaseSlot:
    """One consumer's place in the memory. Until it is taken, nothing is written."""

    def __init__(self) -> None:
        self._board: Board | None = None
        self.number: int | None = None
        """The place in the memory; None until it is taken."""

    def take(self, board: Board, number: int, at: float) -> None:
        """Take the place ``number`` for a consumer that starts at ``at``."""
        board.renewed(number, at)
        self._board, self.number = board, number

    def renewed(self, at: float) -> None:
        """Record that this process renewed, by a command that was sent at ``at``."""
        if self._board is not None and self.number is not None:
            self._board.renewed(self.number, at)

    def by_supervisor(self) -> float:
        """Return the time when the supervisor last renewed for this process; 0 if it never did."""
        if self._board is None or self.number is None:
            return 0.0
        return self._board.times(self.number)[1]


NO_SLOT = LeaseSlot()


class Told(Protocol):
    """The reports of a worker process to its supervisor."""

    board: Board
    url: str | None
    """The address of the worker's store; None while it is unknown."""
    silence: str
    """Reason why the worker process does not report; empty while it reports."""
    leases: dict[int, LeaseReport]
    held: asyncio.Event
    """Set when `leases` has another consumer."""


class SupervisorRenewer:
    """Renews for one worker process, ``name`` in the log. With ``alone``, the process handles only suspects."""

    def __init__(self, pid: int, told: Told, *, name: str, alone: bool) -> None:
        self._pid = pid
        self._told = told
        self._board = told.board
        self._name = name
        self._alone = alone
        self._client: redis.asyncio.Redis | None = None
        self._members: dict[int, Member] = {}
        self._said: dict[int, set[tuple[bytes, int]]] = {}
        """Slot → deliveries for which the store already has a record that their stopped owner is alive."""
        self._silent = False

    async def run(self) -> None:
        """Check the leases until cancelled, and renew or kill as necessary."""
        try:
            # Import this now, because the import takes longer than a short lease.
            await asyncio.to_thread(import_module, "redis.asyncio")
            while True:
                self._told.held.clear()
                leases = [one.lease_ms / 1000 for one in self._told.leases.values()]
                with suppress(TimeoutError):
                    # A consumer that starts may have a shorter lease than those before.
                    async with asyncio.timeout(max(0.02, min(1.0, min(leases, default=6.0) / 6))):
                        await self._told.held.wait()
                try:
                    await self._look()
                except Exception as error:  # the process tries this too, and reports the error
                    log.debug("the leases of %s cannot be renewed: %s", self._name, error)
                    await self._close()
        finally:
            await self._close()

    async def _close(self) -> None:
        client, self._client = self._client, None
        self._members.clear()
        if client is not None:
            with suppress(Exception):
                await client.aclose()

    async def _look(self) -> None:
        url, now = self._told.url, time.monotonic()
        leases = self._told.leases.values()
        if self._overdue(now) and await self._runs():
            log.error(
                "%s is killed: a handler has held the interpreter's lock (GIL) for longer than the longest timeout of "
                "this worker's handlers. With executor=\"process\" only the handler's own process ends.",
                self._name,
            )
            os.kill(self._pid, signal.SIGKILL)
            return
        overdue = [one for one in leases if self._silence(one, now) > 2 * one.lease_ms / 3000]
        if not overdue or url is None:
            if self._silent or self._client is not None:
                self._silent = False
                self._said.clear()
                await self._close()
            return
        runs = await self._runs()
        if runs is None:
            return
        for one in overdue:
            if now - self._board.times(one.slot)[1] < one.lease_ms / 3000:
                continue  # the supervisor has just renewed
            member = await self._member(one, url)
            began = time.monotonic()
            if not runs:
                await self._say_alive(one, member)
            elif await self._ask(_renewed(one, member)):
                self._board.renewed(one.slot, began, by_supervisor=True)
        silence = max(self._silence(one, now) for one in overdue)
        if not self._silent and silence >= SAID_SECONDS:
            self._silent = True
            self._log(silence, runs=runs)

    def _overdue(self, now: float) -> bool:
        """Return whether the lock has been held for longer than any handler may run (rule 4)."""
        limits = [one.longest_ms for one in self._told.leases.values()]
        longest = max((one for one in limits if one is not None), default=0)
        ticked_at = self._board.times(TICKS)[0]
        may = longest > 0 and ticked_at > 0 and None not in limits
        return may and now - ticked_at > longest / 1000 + OVERDUE_SECONDS

    def _silence(self, one: LeaseReport, now: float) -> float:
        """Return the seconds since the process renewed these leases itself."""
        return now - self._board.times(one.slot)[0]

    async def _runs(self) -> bool | None:
        """Return whether the process runs (rule 2); None if it has ended or nothing is known."""
        before = None
        for _ in range(LOOKS):
            life = _life(self._pid)
            if life is None or life.stopped:
                return None if life is None else False
            if life.ready or (before is not None and before.marks != life.marks):
                return True
            before = life
            await asyncio.sleep(LOOK_SECONDS)
        return False

    def _log(self, seconds: float, *, runs: bool) -> None:
        what = (
            "though it runs: a handler holds the interpreter's lock (GIL), or its connection is broken; the "
            "supervisor renews them"
        )
        if not runs:
            what = (
                "because it is stopped (SIGSTOP, a debugger or a freezer): others claim its entries after "
                "claim_after"
            )
        log.warning("%s has not renewed its leases for %.1f s, %s", self._name, seconds, what)
        self._told.silence = self._told.silence or (
            "a handler holds the interpreter's lock (GIL)" if runs else "it is stopped"
        )

    async def _ask(self, operation: Operation[bool]) -> bool:
        assert self._client is not None, "`_member` opens it"
        return await perform(self._client, operation)

    async def _member(self, one: LeaseReport, url: str) -> Member:
        if self._client is None:
            self._client = Connections(url).asynchronous(deadline_s=deadline_s(one.lease_ms))
        if one.slot not in self._members:
            able = await perform(self._client, probe())
            self._members[one.slot] = Member(
                one.stream, one.group, one.consumer, one.claim_after_ms, able
            )
        return self._members[one.slot]

    async def _say_alive(self, one: LeaseReport, member: Member) -> None:
        assert self._client is not None, "`_member` opens it"
        said = self._said.setdefault(one.slot, set())
        rows = [row for row in await perform(self._client, owned(member)) if row not in said]
        await perform(self._client, heard(member, [(*row, self._alone) for row in rows]))
        said.update(rows)


def _renewed(one: LeaseReport, member: Member) -> Operation[bool]:
    """Renew the entries that a consumer owns, and the reader's key if it is ordered. Return False if the
    consumer is not the reader, because it has lost the key or let another process read."""
    reads = True
    if one.ordered:
        # Do not renew the key of another reader, which may have died.
        reads = yield from is_reader(member)
        reads = reads and (yield from keep_reader_key(member, ttl_ms=one.claim_after_ms))
    rows = yield from owned(member)
    yield from renew(member, [row[0] for row in rows])
    return reads


class _Life(NamedTuple):
    """The state of a process in /proc."""

    stopped: bool
    ready: bool
    """True if one of its threads runs, or waits for a processor."""
    marks: int
    """A number that grows while any of its threads does anything."""


def _life(pid: int) -> _Life | None:
    """Return the state of a process; None if it has ended or /proc does not exist. Source: proc(5)."""
    states, marks = "", 0
    try:
        for thread in (Path("/proc") / str(pid) / "task").iterdir():
            fields = (thread / "stat").read_text().rpartition(")")[2].split()
            states += fields[0]
            marks += int(fields[11]) + int(fields[12])  # utime and stime
            marks += context_switches(thread)
    except (OSError, IndexError, ValueError):
        return None
    if not states or set(states) & set("XZ"):
        return None
    return _Life(bool(set(states) & set("Tt")), "R" in states, marks)
