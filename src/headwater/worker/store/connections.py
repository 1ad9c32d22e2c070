"""Opens all connections of a worker.

Reading, settling and renewing use separate connections, so that a blocked read, a long batch and a handler that
blocks the event loop do not delay one another. All consumers of a process share them (`shared_connection`).
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from headwater.client.redaction import redacted
from headwater.client.server_url import is_cluster, may_be_node
from headwater.errors import StoreInUse
from headwater.groups.protocol.operation import Refused
from headwater.groups.protocol.store_errors import (
    WRITES_REFUSED,
    Remedy,
    Step,
    lost_connection,
    remedy,
)
from headwater.worker.store.socket_file import served_at

if TYPE_CHECKING:
    import redis
    import redis.asyncio

    from headwater.client.slots import Topology
    from headwater.server.turn.node import Node


__all__ = ["Connections", "Pause", "deadline_s", "lost_connection", "may_have_run", "moved"]

C = TypeVar("C")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Shortest and longest pause between attempts to connect, in seconds. The pause doubles with each attempt."""

SHORTEST_DEADLINE, LONGEST_DEADLINE = 1.0, 30.0
"""Bounds of the time within which a reply must arrive, in seconds. With a shorter time, a busy store would count as
dead."""

MEMORY = "headwater://memory"


def deadline_s(lease_ms: int) -> float:
    """Return the seconds for which a worker waits for a reply: a third of its lease, within 1 to 30. So a
    connection that died silently is replaced before the lease ends, unless the lease is very short.

    >>> deadline_s(10_000), deadline_s(100)
    (3.3333333333333335, 1.0)
    """
    return max(SHORTEST_DEADLINE, min(LONGEST_DEADLINE, lease_ms / 3000))


class Pause:
    """The pauses between attempts of one task, in seconds."""

    def __init__(self) -> None:
        self._seconds = FIRST_PAUSE

    def next(self) -> float:
        """Return the next pause. Each is twice as long as the one before, up to `LONGEST_PAUSE`."""
        seconds = self._seconds
        self._seconds = min(2 * seconds, LONGEST_PAUSE)
        return seconds

    def reset(self) -> None:
        """Begin with the shortest pause again, after a success."""
        self._seconds = FIRST_PAUSE


class Connections:
    """Opens clients of one store. The caller must close them.

    ``node`` is a store in this process that the caller has made, if any. With ``node``, ``url`` is only a name.
    """

    def __init__(self, url: str, *, node: Node | None = None) -> None:
        self.url = url
        self.availability = Availability(url)
        self._node = node
        self._place = url
        parts = urlsplit(url)
        self._directory: str | None = None
        if parts.scheme == "headwater" and not parts.netloc:
            self._directory = unquote(parts.path)
        if url == MEMORY:
            # Without a name, each connection would open another store.
            self._place = f"{MEMORY}/app-{secrets.token_hex(8)}"
        self._topology: Topology | None = None
        if node is None and (is_cluster(url) or may_be_node(url)):
            from headwater.client.slots import topology_of

            self._topology = topology_of(url)
        self._anchor: redis.Redis | None = None
        self._lock = threading.Lock()

    def asynchronous(
        self, *, deadline_s: float | None = None, home: str = "", one: bool = False
    ) -> redis.asyncio.Redis:
        """Return a client with a pool, for the running event loop. If a connection breaks, the client raises the
        error instead of repeating the command.

        A reply may take ``deadline_s`` seconds longer than the command blocks. In a cluster, commands without
        a key are sent to the node of the key ``home``. With ``one``, the client has exactly one connection.
        """
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        from headwater.client.aio.connect import CLASSES, connect

        retry = Retry(NoBackoff(), 0)
        if self._topology is not None:
            from headwater.client.opening import open_cluster

            options = self._followed(self._topology, deadline_s)
            return open_cluster(CLASSES, **options, home=home, stays=one, retry=retry)
        single: dict[str, Any] = {"single_connection_client": True} if one else {}
        return self._open(lambda where: connect(retry=retry, **where, **single), deadline_s)

    def reading(self, *, deadline_s: float | None = None, home: str = "") -> redis.asyncio.Redis:
        """Return a client with exactly one connection, so that CLIENT ID identifies its blocked read."""
        return self.asynchronous(deadline_s=deadline_s, home=home, one=True)

    def synchronous(self, *, deadline_s: float | None = None) -> redis.Redis:
        """Return a client for code without an event loop. It is thread-safe."""
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        from headwater.client.sync.connect import CLASSES, connect

        retry = Retry(NoBackoff(), 0)
        if self._topology is not None:
            from headwater.client.opening import open_cluster

            return open_cluster(CLASSES, **self._followed(self._topology, deadline_s), retry=retry)
        return self._open(lambda where: connect(retry=retry, **where), deadline_s)

    async def locate(self) -> None:
        """Ask a cluster for the owners of its slots, unless they are known. Raises the error of a broken connection."""
        topology = self._topology
        if topology is None or not topology.cluster or topology.owners():
            return
        from headwater.client.drivers import perform

        client: Any = self.asynchronous(deadline_s=LONGEST_DEADLINE)
        try:
            await perform(client.calls.primaries())
        finally:
            await client.aclose()

    def slot_of(self, stream: str) -> int | None:
        """Return the slot of a stream in the cluster; None without a cluster."""
        if self._topology is None or not self._topology.cluster:
            return None
        from headwater.client.slots import slot_of

        return slot_of(stream)

    def node_of(self, stream: str) -> object:
        """Return the node of a cluster that owns a stream; None if the node is unknown, or without a cluster."""
        slot = self.slot_of(stream)
        return None if slot is None or self._topology is None else self._topology.owner(slot)

    def _followed(self, topology: Topology, deadline_s: float | None) -> dict[str, Any]:
        """Return the options of a client that follows a server into its cluster."""
        timeout = {} if deadline_s is None else {"socket_timeout": deadline_s}
        return {"url": self.url, "topology": topology, **timeout}

    def place(self) -> str:
        """Return the address that a new client would use. For a directory that another process serves, it is
        the address of that server."""
        served = None
        if self._node is None and self._directory is not None:
            served = served_at(self._directory)
        return served or self._place

    def _open(self, make: Callable[[dict[str, Any]], C], deadline_s: float | None) -> C:
        """Make a client, of the store's server if another process serves the directory."""
        directory = self._directory
        if self._node is not None or directory is None:
            return make(self._where(deadline_s))
        served = served_at(directory)
        if served is None:
            try:
                return make(self._where(deadline_s))
            except StoreInUse:
                # Another process may have just begun to serve the directory.
                served = served_at(directory)
                if served is None:
                    raise
        timeout = {} if deadline_s is None else {"socket_timeout": deadline_s}
        return make({"url": served, **timeout})

    def _where(self, deadline_s: float | None) -> dict[str, Any]:
        if self._node is not None:
            return {"node": self._node}
        if self._place.startswith(MEMORY):
            self._hold()
        if deadline_s is None or self._place.startswith("headwater:"):
            return {"url": self._place}  # a store in this process answers or raises
        return {"url": self._place, "socket_timeout": deadline_s}

    def _hold(self) -> None:
        """Keep a client of a store in memory, because the store is lost when its last client closes."""
        from headwater.client.sync.connect import connect

        with self._lock:
            if self._anchor is None:
                self._anchor = connect(self._place)


async def close_client(client: redis.asyncio.Redis) -> None:
    """Close a client. Ignore errors of an unreachable store."""
    try:
        await client.aclose()
    except lost_connection():
        pass


def may_have_run(error: Exception) -> bool:
    """Return whether a connection broke after a command was sent that must not be repeated."""
    from headwater.client import attempts

    return attempts.may_have_run(error)


def moved(error: BaseException) -> bool:
    """Return whether a connection was closed because its slot of the cluster moved to another node."""
    from headwater.client.routing import SlotMoved

    return isinstance(error, SlotMoved)


log = logging.getLogger("headwater.worker")


# --- outages of the store -------------------------------------------------------------------------
#
# Reader, settler, lease renewer and publisher meet the same outage, each many times. Every attempt is logged at
# DEBUG. The first error of any part, and the recovery of the last one, are logged at WARNING. Recovery means that
# the store has answered, not that a part has stopped using the store or has met another error.


class Trouble(Enum):
    """The kinds of outages, with the texts of the two log lines."""

    UNREACHED = ("cannot be reached", "answers")
    """The store cannot be reached, and this process has not reached it yet."""
    AWAY = ("does not answer", "answers again")
    UNWRITABLE = ("refuses writes", "accepts writes again")
    REFUSING = ("refuses a command", "accepts it again")


_SILENT = (Trouble.UNREACHED, Trouble.AWAY)
"""The kinds of outages that end with any answer, even with a refusal."""


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
        """Function that returns why answers may be late although the store answers: this process was just paused
        (`ProcessDelays`), or a large transfer fills the link. It returns None without such a reason."""

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
                    before  # still the same outage, even if another part has got an answer since
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
        """Record that ``who`` no longer uses the store, or does not use it now."""
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
