"""A redis-py client of a cluster, on the guarded connections of single servers.

redis-py's own cluster client sends a command again when its connection is lost, and so adds an entry
twice; it asks the server where the keys of each XREADGROUP are; and it does not say over which
connection CLIENT ID goes. So each node has a client of its own here, and `routing` decides.

Rule 1. A command without a key goes to one node: `keys`, `dbsize` and `scan` see a part of the cluster.
Rule 2. A client made from the url of a single server is as fast as a plain one, until the server
        redirects it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import redis
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.connection import ConnectionPool
from redis.exceptions import AskError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from headwater.client.attempts import NEVER_AGAIN, may_have_run
from headwater.client.routing import Answer, Part, QueuedCommand, Router
from headwater.client.server_url import NodeAddress, is_cluster, parse_cluster
from headwater.client.slots import Topology
from headwater.client.sync.connect import Client, connect, default_retry, server_pool
from headwater.errors import ConfigError

LOST = (RedisConnectionError, RedisTimeoutError, OSError)
"""What a driver gives back to the router in the place of replies."""


def topology_of(url: str) -> Topology:
    """What the url of a cluster, or of a server that may belong to one, says of it."""
    return Topology(parse_cluster(url).nodes, cluster=is_cluster(url))


def first_url(url: str) -> str:
    """The url of the first node; that of a single server as it is."""
    address = parse_cluster(url)
    return address.node_url(address.nodes[0]) if is_cluster(url) else url


def may_try_again(error: Exception) -> bool:
    """Whether a call that ended with ``error`` may be made again: nothing has run that must not run
    twice, and no password was refused."""
    return not may_have_run(error) and not isinstance(error, NEVER_AGAIN)


def refuse(what: str) -> NoReturn:
    """Raises `ConfigError`: ``what`` does not work over several nodes."""
    raise ConfigError(f"{what} does not work on a cluster's address: connect to one of its nodes")


class NodePipeline(Pipeline):
    """A pipeline whose commands find their nodes. It is no transaction unless they say MULTI and EXEC."""

    def __init__(self, client: ClusterClient, pool: ConnectionPool) -> None:
        super().__init__(pool, client.response_callbacks, False, None)
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT002  # redis-py's
        """Send what was queued; the replies, in order."""
        queued = [QueuedCommand(words, dict(options)) for words, options in self.command_stack]
        replies: list[Any] | None = None
        if not self._client.router.topology.cluster:
            replies = super().execute(raise_on_error=False)
        self.reset()
        if replies is None or any(isinstance(one, AskError) for one in replies):
            replies = self._client.run_routed(queued, replies)
        if raise_on_error:
            self.raise_first_error([(one.words, one.options) for one in queued], replies)
        return replies


class ClusterClient(Client):
    """A client of a cluster, or of a single server that turns out to belong to one.

    ``pool`` is of the first node; ``make`` makes the client of a node.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        router: Router,
        make: Callable[[NodeAddress], redis.Redis],
        *,
        retry: Retry,
    ) -> None:
        self.router = router
        self._make = make
        self._retry = retry
        self._nodes: dict[NodeAddress, redis.Redis] = {}
        self._lock = threading.Lock()
        super().__init__(connection_pool=pool)
        self.auto_close_connection_pool = True

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command on the node of its key."""
        if not self.router.topology.cluster:
            try:
                return super().execute_command(*args, **options)
            except AskError as error:
                replies: list[Any] = self.run_routed([QueuedCommand(args, options)], [error])
        else:
            replies = self.run_routed([QueuedCommand(args, options)])
        if isinstance(replies[0], Exception):
            raise replies[0]
        return replies[0]

    def run_routed(
        self, queued: Sequence[QueuedCommand], replies: Sequence[Any] | None = None
    ) -> list[Any]:
        """Have commands run; the replies, errors among them. As often as the retry policy says, while
        nothing has run that must not run twice."""
        failures = 0
        while True:
            try:
                return self._once(queued, replies)
            except LOST as error:
                failures += 1
                if failures > self._retry.get_retries() or not may_try_again(error):
                    raise
            time.sleep(self._retry._backoff.compute(failures))  # noqa: SLF001

    def _once(self, queued: Sequence[QueuedCommand], replies: Sequence[Any] | None) -> list[Any]:
        """Carry out what the router says."""
        routing = self.router.route(queued, replies)
        try:
            part = next(routing)
            while True:
                part = routing.send(self._answer(part))
        except StopIteration as finished:
            found: list[Any] = finished.value
            return found

    def _answer(self, part: Part) -> Answer:
        with self._lock:
            client = self._nodes.get(part.node)
            if client is None:
                client = self._nodes[part.node] = self._make(part.node)
        try:
            if len(part.commands) == 1:
                words, options = part.commands[0]
                return [client.execute_command(*words, **options)]
            pipeline = client.pipeline(transaction=False)
            for words, options in part.commands:
                pipeline.execute_command(*words, **options)
            replies: list[Any] = pipeline.execute(raise_on_error=False)
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

    def close(self) -> None:
        """Close the connections to all nodes."""
        nodes, self._nodes = self._nodes, {}
        for client in nodes.values():
            client.close()
        super().close()


def open_cluster(
    url: str, *, topology: Topology | None = None, home: str = "", **options: Any
) -> ClusterClient:
    """A client of the cluster at ``url``, or of the server there, followed where it redirects.

    Clients that share a ``topology`` learn from one another. Commands without a key go to the node of
    the key ``home``.
    """
    # A node's client tries nothing again: another node may have taken its place.
    once = Retry(NoBackoff(), 0)
    retry = options.get("retry", default_retry()) or once
    options["retry"] = once
    address = parse_cluster(url)
    topology = topology or topology_of(url)

    def make(node: NodeAddress) -> redis.Redis:
        return connect(address.node_url(node), **options)

    pool = server_pool(first_url(url), options)
    return ClusterClient(pool, Router(topology, home=home), make, retry=retry)
