"""Renews what a batch holds, so that no worker takes it while Spark is at work on it.

Rule 1. What is held is renewed from the moment it is known until it is settled, every third of the
        time after which others claim, by a thread with a connection of its own: the process's only
        other thread waits for Spark.
Rule 2. It ends with `end`, with the process, and when the process's parent is gone: Spark's driver
        starts this process, and a driver that was killed must not go on holding entries. They are
        neither settled nor released then; their leases run out.
Rule 3. What the server says is another's is held no more. The batch is not stopped for it: the entry
        is handled twice then, which the group allows, and settled by one.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from headwater.errors import HeadwaterError
from headwater.groups.member import Member
from headwater.groups.operation import GroupVanished, Refused, run
from headwater.groups.settling import renew
from headwater.spark.group_mode.holder import Holder

if TYPE_CHECKING:
    import redis

_log = logging.getLogger("headwater.spark")

CHUNK: Final = 1_000
"""Entries renewed by one command: a few milliseconds of the server's time at most, in Lua."""


class Keeper:
    """Keeps leases; `hold` and `forget` say of what. ``connect`` opens its connection."""

    def __init__(self, connect: Callable[[], redis.Redis], holder: Holder) -> None:
        self._connect = connect
        self._holder = holder
        self._seconds = holder.seconds / 3
        self._held: dict[str, tuple[Member, dict[bytes, None]]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._parent = os.getppid()
        self._thread = threading.Thread(target=self._keep, name="headwater-leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Renew nothing more."""
        self._ended = True
        self._wake.set()

    def join(self) -> None:
        """Return when the thread has closed its connection, or is stuck in a command."""
        if self._thread.ident is not None:
            self._thread.join(1.0)

    def expect(self, claim_after_ms: int) -> None:
        """Something will be held that others claim after that time."""
        if claim_after_ms / 3000 < self._seconds:
            self._seconds = claim_after_ms / 3000
            self._wake.set()

    def hold(self, member: Member, ids: Iterable[bytes]) -> None:
        """Hold ``ids`` of the member's stream as well."""
        with self._lock:
            self._held.setdefault(member.stream, (member, {}))[1].update(dict.fromkeys(ids))

    def forget(self, stream: str) -> None:
        """Hold nothing of ``stream`` any more: it is settled."""
        with self._lock:
            self._held.pop(stream, None)

    def held(self, stream: str) -> int:
        """How many entries of ``stream`` are held."""
        with self._lock:
            return len(self._held[stream][1]) if stream in self._held else 0

    # --- the thread -------------------------------------------------------------------------------

    def _keep(self) -> None:
        from redis.exceptions import RedisError

        client: redis.Redis | None = None
        while True:
            self._wake.wait(self._seconds)
            self._wake.clear()
            if self._ended or os.getppid() != self._parent:
                break
            try:
                if client is None:
                    client = self._connect()
                self._beat(client)
            except (RedisError, OSError, HeadwaterError) as error:
                _log.warning("leases could not be renewed, trying again: %s", error)
            except Exception:
                _log.exception("renewing leases failed")
        if client is not None:
            client.close()

    def _beat(self, client: redis.Redis) -> None:
        self._holder.renew(client)
        with self._lock:
            held = [(member, list(ids)) for member, ids in self._held.values()]
        for member, ids in held:
            try:
                self._renew(client, member, ids)
            except GroupVanished:
                # Made again when the next batch is taken, from what is not settled then.
                _log.debug("group %s of %s is gone", member.group, member.stream)
            except Refused as error:
                _log.warning("leases on %s could not be renewed: %s", member.stream, error)

    def _renew(self, client: redis.Redis, member: Member, ids: list[bytes]) -> None:
        lost: list[bytes] = []
        for first in range(0, len(ids), CHUNK):
            if self._ended:
                return
            part = ids[first : first + CHUNK]
            flags = run(client, renew(member, part))
            lost += [one for one, kept in zip(part, flags, strict=True) if not kept]
        if not lost:
            return
        with self._lock:
            mine = self._held.get(member.stream, (member, {}))[1]
            gone = [one for one in lost if mine.pop(one, 1) is None]
        if gone:
            _log.warning(
                "%d entries of stream %r (%s …) are not held any more while a batch reads them: "
                "another member of group %r may handle them too",
                len(gone),
                member.stream,
                gone[0].decode(),
                member.group,
            )
