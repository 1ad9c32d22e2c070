"""Opens all connections of a worker.

Reading, settling and renewing have a connection each, so that a blocked read, a long batch and a handler that
blocks the event loop do not delay one another. All consumers of a process share them (`shared_connection`).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from headwater.client.server_url import is_cluster, may_be_node
from headwater.errors import StoreInUse
from headwater.groups.protocol.store_errors import lost_connection
from headwater.worker.store.availability import Availability
from headwater.worker.store.socket_file import served_at

if TYPE_CHECKING:
    import redis
    import redis.asyncio

    from headwater.client.slots import Topology
    from headwater.server.turn.node import Node

__all__ = ["Connections", "Pause", "deadline_s", "lost_connection", "may_have_run", "moved"]

C = TypeVar("C")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between attempts to connect. They double, so that a restarting store is not flooded."""

SHORTEST_DEADLINE, LONGEST_DEADLINE = 1.0, 30.0
"""Bounds of the time within which a reply must arrive, in seconds. With a shorter one, a busy store would count
as dead."""

MEMORY = "headwater://memory"


def deadline_s(lease_ms: int) -> float:
    """Return how long a worker waits for a reply: a third of its lease, so that a connection that died
    silently is replaced before the lease ends.

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
    """Opens clients of one store. The caller closes them.

    ``node`` is a store in this process, made by the caller; then ``url`` is only its name.
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
        """Return a client with a pool, for the running event loop. It raises a broken connection instead of
        repeating the command.

        A reply may take ``deadline_s`` seconds longer than the command blocks. In a cluster, commands without
        a key are sent to the node of the key ``home``. With ``one``, the client has exactly one connection.
        """
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        from headwater.client.aio.connect import connect

        retry = Retry(NoBackoff(), 0)
        if self._topology is not None:
            from headwater.client.aio.connect import open_cluster

            options = self._followed(self._topology, deadline_s)
            return open_cluster(**options, home=home, stays=one, retry=retry)
        single: dict[str, Any] = {"single_connection_client": True} if one else {}
        return self._open(lambda where: connect(retry=retry, **where, **single), deadline_s)

    def reading(self, *, deadline_s: float | None = None, home: str = "") -> redis.asyncio.Redis:
        """Return a client with exactly one connection, so that CLIENT ID identifies its blocked read."""
        return self.asynchronous(deadline_s=deadline_s, home=home, one=True)

    def synchronous(self, *, deadline_s: float | None = None) -> redis.Redis:
        """Return a client for code without an event loop. It is thread-safe."""
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        from headwater.client.sync.connect import connect

        retry = Retry(NoBackoff(), 0)
        if self._topology is not None:
            from headwater.client.sync.connect import open_cluster

            return open_cluster(**self._followed(self._topology, deadline_s), retry=retry)
        return self._open(lambda where: connect(retry=retry, **where), deadline_s)

    async def locate(self) -> None:
        """Ask a cluster which node owns which slot, unless that is known. Raises a broken connection."""
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
        """Return the node of a cluster that owns a stream, as far as it is known; None without a cluster."""
        slot = self.slot_of(stream)
        return None if slot is None or self._topology is None else self._topology.owner(slot)

    def _followed(self, topology: Topology, deadline_s: float | None) -> dict[str, Any]:
        """Return the options of a client that follows a server into its cluster."""
        timeout = {} if deadline_s is None else {"socket_timeout": deadline_s}
        return {"url": self.url, "topology": topology, **timeout}

    def place(self) -> str:
        """Return the address that a new client would use. For a directory it differs if another process
        serves it."""
        served = None
        if self._node is None and self._directory is not None:
            served = served_at(self._directory)
        return served or self._place

    def _open(self, make: Callable[[dict[str, Any]], C], deadline_s: float | None) -> C:
        """Make a client. If another process serves the directory, it is a client of that server."""
        directory = self._directory
        if self._node is not None or directory is None:
            return make(self._where(deadline_s))
        served = served_at(directory)
        if served is None:
            try:
                return make(self._where(deadline_s))
            except StoreInUse:
                # Another process may have just begun to serve it.
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
        """Keep a client of a store in memory, because the store is gone when its last client closes."""
        from headwater.client.sync.connect import connect

        with self._lock:
            if self._anchor is None:
                self._anchor = connect(self._place)


async def close_client(client: redis.asyncio.Redis) -> None:
    """Close a client. An unreachable store is not an error here."""
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
