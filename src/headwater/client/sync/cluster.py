"""The client of a cluster, for threads; `headwater.client.cluster_calls` has the rules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from redis.client import Pipeline
from redis.connection import ConnectionPool
from redis.exceptions import AskError

from headwater.client.cluster_calls import LOST, ClusterCalls, OneNodeOnly
from headwater.client.drivers import run
from headwater.client.sync.client import Client

T = TypeVar("T")


class NodePipeline(Pipeline):
    """A pipeline that sends each command to its node. Only commands from MULTI to EXEC are a transaction."""

    def __init__(self, client: ClusterClient, pool: ConnectionPool) -> None:
        super().__init__(pool, client.response_callbacks, False, None)
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT002  # redis-py's
        """Send the queued commands and return their replies in order."""
        return run(
            self._client.calls.run_pipeline(self, super().execute, raise_on_error=raise_on_error)
        )


class ClusterClient(OneNodeOnly, Client):
    """A client of a cluster, or of a single server that may turn out to belong to one.

    ``pool`` connects to the first node.
    """

    node_pipeline = NodePipeline

    def __init__(self, pool: ConnectionPool, calls: ClusterCalls) -> None:
        self.calls = calls
        super().__init__(connection_pool=pool)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command on the node of its key."""
        if self.calls.routed:
            return run(self.calls.redirected(args, options, None))
        try:
            return super().execute_command(*args, **options)
        except AskError as error:
            return run(self.calls.redirected(args, options, error))

    def each_primary(self, ask: Callable[[Client], T]) -> list[T]:
        """Ask the cluster for its primaries, and return what ``ask`` returns for each.

        Raises redis-py's errors. After a lost connection, the next call asks other nodes first.
        """
        found = []
        for node, client in run(self.calls.primaries()):
            try:
                found.append(ask(client))
            except LOST:
                self.calls.doubt(node)
                raise
        return found

    def close(self) -> None:
        """Close the connections to all nodes. If one fails to close, its error is raised after all are closed."""
        with ExitStack() as closing:
            closing.callback(super().close)
            for client in self.calls.take_nodes():
                closing.callback(client.close)
