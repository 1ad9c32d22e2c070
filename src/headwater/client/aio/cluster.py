"""The asyncio client of a cluster; `headwater.client.cluster_calls` has the rules."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from redis.asyncio.client import Pipeline
from redis.asyncio.connection import ConnectionPool
from redis.exceptions import AskError

from headwater.client.aio.client import AsyncClient
from headwater.client.cluster_calls import ClusterCalls, OneNodeOnly
from headwater.client.drivers import perform


class AsyncNodePipeline(Pipeline):
    """A pipeline that sends each command to its node. Only commands from MULTI to EXEC are a transaction."""

    def __init__(self, client: AsyncClusterClient, pool: ConnectionPool) -> None:
        super().__init__(pool, client.response_callbacks, False, None)
        self._client = client

    async def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT002  # redis-py's
        """Send the queued commands and return their replies in order."""
        return await perform(
            self._client.calls.run_pipeline(self, super().execute, raise_on_error=raise_on_error)
        )


class AsyncClusterClient(OneNodeOnly, AsyncClient):  # type: ignore[misc]  # redis-py's own bases
    """A client of a cluster, or of a single server that may turn out to belong to one.

    ``pool`` connects to the first node.
    """

    node_pipeline = AsyncNodePipeline

    def __init__(
        self, pool: ConnectionPool, calls: ClusterCalls, *, single_connection_client: bool = False
    ) -> None:
        self.calls = calls
        super().__init__(connection_pool=pool, single_connection_client=single_connection_client)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command on the node of its key."""
        if self.calls.routed:
            return await perform(self.calls.redirected(args, options, None))
        try:
            return await super().execute_command(*args, **options)
        except AskError as error:
            return await perform(self.calls.redirected(args, options, error))

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close the connections to all nodes. If one fails to close, its error is raised after all are closed."""
        async with AsyncExitStack() as closing:
            closing.push_async_callback(super().aclose, close_connection_pool)
            for client in self.calls.take_nodes():
                closing.push_async_callback(client.aclose)
