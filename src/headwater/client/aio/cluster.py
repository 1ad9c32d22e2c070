"""`headwater.client.sync.cluster` for asyncio: the same rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import redis.asyncio
from redis.asyncio.client import Pipeline
from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AskError, ResponseError

from headwater.client.aio.connect import AsyncClient, connect, default_retry, server_pool
from headwater.client.routing import Answer, Part, QueuedCommand, Router, SlotMoved
from headwater.client.server_url import NodeAddress, parse_cluster
from headwater.client.slots import Topology
from headwater.client.sync.cluster import LOST, first_url, may_try_again, refuse, topology_of


class NodePipeline(Pipeline):
    """A pipeline whose commands find their nodes. It is no transaction unless they say MULTI and EXEC."""

    def __init__(self, client: AsyncClusterClient, pool: ConnectionPool) -> None:
        super().__init__(pool, client.response_callbacks, False, None)
        self._client = client

    async def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT002  # redis-py's
        """Send what was queued; the replies, in order."""
        queued = [QueuedCommand(words, dict(options)) for words, options in self.command_stack]
        replies: list[Any] | None = None
        if not self._client.router.topology.cluster:
            replies = await super().execute(raise_on_error=False)
        await self.reset()
        if replies is None or any(isinstance(one, AskError) for one in replies):
            replies = await self._client.run_routed(queued, replies)
        if raise_on_error:
            self.raise_first_error([(tuple(one.words), one.options) for one in queued], replies)
        return replies


class AsyncClusterClient(AsyncClient):
    """A client of a cluster, or of a single server that turns out to belong to one.

    ``pool`` is of the first node; ``make`` makes the client of a node.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        router: Router,
        make: Callable[[NodeAddress], redis.asyncio.Redis],
        *,
        single: bool,
        retry: Retry,
    ) -> None:
        self.router = router
        self._make = make
        self._retry = retry
        self._nodes: dict[NodeAddress, redis.asyncio.Redis] = {}
        self._stays_direct = router.stays and not router.topology.cluster
        """It began with one connection to what may be a single server."""
        super().__init__(connection_pool=pool, single_connection_client=single)
        self.auto_close_connection_pool = True

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command on the node of its key."""
        if not self.router.topology.cluster:
            try:
                return await super().execute_command(*args, **options)
            except AskError as error:
                replies: list[Any] = await self.run_routed([QueuedCommand(args, options)], [error])
        else:
            replies = await self.run_routed([QueuedCommand(args, options)])
        if isinstance(replies[0], Exception):
            raise replies[0]
        return replies[0]

    async def run_routed(
        self, queued: Sequence[QueuedCommand], replies: Sequence[Any] | None = None
    ) -> list[Any]:
        """Have commands run; the replies, errors among them. As often as the retry policy says, while
        nothing has run that must not run twice."""
        if self._stays_direct:
            # From now on it would use another connection: not the one that CLIENT ID named, and not the
            # one that watches.
            self.router.topology.cluster = True
            raise SlotMoved("the server is a node of a cluster")
        failures = 0
        while True:
            try:
                return await self._once(queued, replies)
            except LOST as error:
                failures += 1
                if failures > self._retry.get_retries() or not may_try_again(error):
                    raise
            await asyncio.sleep(self._retry._backoff.compute(failures))  # noqa: SLF001

    async def _once(
        self, queued: Sequence[QueuedCommand], replies: Sequence[Any] | None
    ) -> list[Any]:
        """Carry out what the router says."""
        routing = self.router.route(queued, replies)
        try:
            part = next(routing)
            while True:
                part = routing.send(await self._answer(part))
        except StopIteration as finished:
            found: list[Any] = finished.value
            return found

    async def _answer(self, part: Part) -> Answer:
        client = self._nodes.get(part.node)
        if client is None:
            client = self._nodes[part.node] = self._make(part.node)
        try:
            if len(part.commands) == 1:
                words, options = part.commands[0]
                return [await client.execute_command(*words, **options)]
            pipeline = client.pipeline(transaction=False)
            for words, options in part.commands:
                pipeline.execute_command(*words, **options)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        except LOST as error:
            return error
        except ResponseError as error:
            return [error]
        return replies

    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> Any:  # noqa: ARG002, FBT002
        """A pipeline, its commands each on the node of its key; ``transaction`` must be false."""
        if transaction:
            refuse("a pipeline that is a transaction")
        return NodePipeline(self, self.connection_pool)

    def transaction(self, *_args: Any, **_options: Any) -> NoReturn:
        refuse("transaction()")

    def pubsub(self, **_options: Any) -> NoReturn:
        refuse("pubsub()")

    def monitor(self) -> NoReturn:
        refuse("monitor()")

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close the connections to all nodes."""
        nodes, self._nodes = self._nodes, {}
        try:
            for client in nodes.values():
                await client.aclose()
        finally:
            await super().aclose(close_connection_pool)


def open_cluster(
    url: str,
    *,
    topology: Topology | None = None,
    home: str = "",
    stays: bool = False,
    **options: Any,
) -> AsyncClusterClient:
    """A client of the cluster at ``url``, or of the server there, followed where it redirects.

    Clients that share a ``topology`` learn from one another. Commands without a key go to the node of
    the key ``home``. One that ``stays`` keeps to one connection to one node: see `routing`, rule 4.
    """
    single = stays or bool(options.pop("single_connection_client", False))
    # A node's client tries nothing again: another node may have taken its place.
    once = Retry(NoBackoff(), 0)
    retry = options.get("retry", default_retry()) or once
    options["retry"] = once
    address = parse_cluster(url)
    topology = topology or topology_of(url)

    def make(node: NodeAddress) -> redis.asyncio.Redis:
        return connect(address.node_url(node), single_connection_client=single, **options)

    pool = server_pool(first_url(url), options)
    router = Router(topology, home=home, stays=stays)
    return AsyncClusterClient(pool, router, make, single=single, retry=retry)
