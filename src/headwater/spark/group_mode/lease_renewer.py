"""Renews the leases of a batch's entries, so that no worker claims them while Spark works on them.

Rule 1. An entry is renewed from its fetch to its settlement, every third of the idle time after which others
        claim it. A thread with its own connection renews entries, because the process's only other thread
        waits for Spark.
Rule 2. Renewal ends with `end`, with the process, and when the process's parent is gone. Spark's driver
        starts this process, and the entries of a killed driver must not stay leased. Such entries are neither
        settled nor released; their leases expire.
Rule 3. An entry that now belongs to another consumer is no longer renewed. The batch continues. The entry
        is then handled twice, which a group allows, and settled once.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headwater.groups.membership.lease import LeaseThread
from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import GroupVanished, Refused, run
from headwater.groups.settling.settling import renew
from headwater.spark.group_mode.name_lease import NameLease

if TYPE_CHECKING:
    import redis

_log = logging.getLogger("headwater.spark")


class LeaseRenewer:
    """Renews the entries passed to `hold` until `forget`; it is the thread's `groups.membership.lease.Leases`.

    ``connect`` opens the thread's connection.
    """

    def __init__(self, connect: Callable[[], redis.Redis], name_lease: NameLease) -> None:
        self._name_lease = name_lease
        self._seconds = name_lease.seconds / 3
        self._held: dict[str, tuple[Member, dict[bytes, None]]] = {}
        self._lock = threading.Lock()
        self._parent = os.getppid()
        self._thread = LeaseThread(self, connect=connect, first=self._seconds)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop renewing."""
        self._thread.stop()

    def join(self) -> None:
        """Wait until the thread has closed its connection, for at most a second."""
        self._thread.join(1.0)

    def expect(self, claim_after_ms: int) -> None:
        """Renew often enough for entries that others claim after ``claim_after_ms`` of idle time."""
        if claim_after_ms / 3000 < self._seconds:
            self._seconds = claim_after_ms / 3000
            self._thread.hurry()

    def hold(self, member: Member, ids: Iterable[bytes]) -> None:
        """Also renew the entries ``ids`` of the member's stream."""
        with self._lock:
            self._held.setdefault(member.stream, (member, {}))[1].update(dict.fromkeys(ids))

    def forget(self, stream: str) -> None:
        """Stop renewing the entries of ``stream``, which are being settled."""
        with self._lock:
            self._held.pop(stream, None)

    def held(self, stream: str) -> int:
        """Return the number of entries of ``stream`` that are renewed."""
        with self._lock:
            return len(self._held[stream][1]) if stream in self._held else 0

    # --- in the thread ----------------------------------------------------------------------------

    def renew(self, client: redis.Redis) -> None:
        """Renew the consumer's name and all entries."""
        self._name_lease.renew(client)
        with self._lock:
            held = [(member, list(ids)) for member, ids in self._held.values()]
        for member, ids in held:
            if self._thread.stopped:
                return
            try:
                self._renew(client, member, ids)
            except GroupVanished:
                # The next fetch recreates the group with the entries that are not settled by then.
                _log.debug("group %s of %s is gone", member.group, member.stream)
            except Refused as error:
                _log.warning("leases on %s could not be renewed: %s", member.stream, error)

    def renewed(self) -> float:
        return self._seconds

    def missed(self, error: Exception) -> float:
        _log.warning("leases could not be renewed, retrying: %s", error)
        return self._seconds

    def owner_is_gone(self) -> bool:
        """Return whether Spark's driver, which started this process, has ended."""
        return os.getppid() != self._parent

    def ended(self, error: BaseException | None) -> None:
        if error is not None:
            _log.error("leases are no longer renewed: %s", error)

    def _renew(self, client: redis.Redis, member: Member, ids: list[bytes]) -> None:
        flags = run(client, renew(member, ids))
        lost = [one for one, kept in zip(ids, flags, strict=True) if not kept]
        if not lost:
            return
        with self._lock:
            mine = self._held.get(member.stream, (member, {}))[1]
            gone = [one for one in lost if mine.pop(one, 1) is None]
        if gone:
            _log.warning(
                "%d entries of stream %r (%s …) now belong to another consumer while a batch reads "
                "them: that member of group %r may handle them too",
                len(gone),
                member.stream,
                gone[0].decode(),
                member.group,
            )
