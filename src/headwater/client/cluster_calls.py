"""The calls of one cluster client, shared by `sync.cluster` and `aio.cluster`.

redis-py's own cluster client is not used, for three reasons. It sends a command again when its
connection is lost, and so can add an entry twice. It asks the server for the keys of each XREADGROUP.
It does not define which connection CLIENT ID uses. Here each node has its own client, and
`routing` decides which one gets a command.

Rule 1. A command without a key goes to one node, so `keys`, `dbsize` and `scan` see only part of the cluster.
Rule 2. A client made from the url of a single server is as fast as a plain one, until the server
        redirects it.
Rule 3. A call is repeated as often as the retry policy allows, unless a command that must not run twice
        may have run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from redis.exceptions import AskError, MovedError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import AbstractRetry

from headwater.client.attempts import NEVER_AGAIN, may_have_run
from headwater.client.drivers import Procedure, Sleep
from headwater.client.routing import Answer, Part, QueuedCommand, Router, Routing, SlotMoved
from headwater.client.server_url import NodeAddress
from headwater.client.slots import slot_of
from headwater.errors import ConfigError

LOST = (RedisConnectionError, RedisTimeoutError, OSError)
"""Errors of a lost connection; the router receives them instead of replies."""


class ClusterCalls:
    """Runs the calls of a client of a cluster, or of a server that may be a node of one.

    ``open_node`` makes the client of a node. The cluster client's own pool connects to the first node. The
    function that executes a pipeline there is passed to `run_pipeline` as ``direct``.
    """

    def __init__(
        self,
        router: Router,
        open_node: Callable[[NodeAddress], Any],
        *,
        retry: AbstractRetry[Any],
    ) -> None:
        self._router = router
        self._open_node = open_node
        self._retry = retry
        self._nodes: dict[NodeAddress, Any] = {}
        self._lock = threading.Lock()
        self._stays_direct = router.stays and not router.topology.cluster
        """True if the client stays on one connection whose server was not a known node (`routing`, rule 4)."""

    @property
    def routed(self) -> bool:
        """True if commands go to several nodes; False until the server turns out to be a node of a cluster."""
        return self._router.topology.cluster

    def redirected(
        self, words: Sequence[Any], options: dict[str, Any], error: AskError | None
    ) -> Procedure[Any]:
        """Run a command on the node of its key. ``error`` is the redirection with which a server replied
        to the command, if it was sent directly."""
        queued = [QueuedCommand(words, options)]
        replies = yield from self.run(queued, None if error is None else [error])
        if isinstance(replies[0], Exception):
            raise replies[0]
        return replies[0]

    def run_pipeline(
        self, pipeline: Any, direct: Callable[..., Any], *, raise_on_error: bool
    ) -> Procedure[list[Any]]:
        """Send the queued commands of ``pipeline`` and return the replies in order. ``direct`` is redis-py's
        `execute` of the pipeline."""
        queued = [QueuedCommand(words, dict(options)) for words, options in pipeline.command_stack]
        replies: list[Any] | None = None
        if not self.routed:
            replies = yield partial(direct, raise_on_error=False)
        yield pipeline.reset
        if replies is None or any(isinstance(one, AskError) for one in replies):
            replies = yield from self.run(queued, replies)
        if raise_on_error:
            pipeline.raise_first_error([(tuple(one.words), one.options) for one in queued], replies)
        return replies

    def run(
        self, queued: Sequence[QueuedCommand], replies: Sequence[Any] | None = None
    ) -> Procedure[list[Any]]:
        """Run commands and return their replies, errors included."""
        if self._stays_direct:
            # Routing would use a connection other than the one that CLIENT ID named or that watches
            # keys.
            self._router.topology.cluster = True
            raise SlotMoved("the server is a node of a cluster")
        failures = 0
        while True:
            try:
                return (yield from self._run_once(queued, replies))
            except LOST as error:
                failures += 1
                may_repeat = not may_have_run(error) and not isinstance(error, NEVER_AGAIN)
                if failures > self._retry.get_retries() or not may_repeat:
                    raise
            yield Sleep(self._retry._backoff.compute(failures))  # noqa: SLF001

    def _run_once(
        self, queued: Sequence[QueuedCommand], replies: Sequence[Any] | None
    ) -> Procedure[list[Any]]:
        return (yield from self._driven(self._router.route(queued, replies)))

    def primaries(self) -> Procedure[list[tuple[NodeAddress, Any]]]:
        """Ask the cluster for its primaries; return their addresses and clients."""
        found = yield from self._driven(self._router.located())
        return [(node, self._client(node)) for node in found]

    def owner(self, key: Any) -> Procedure[NodeAddress]:
        """Ask the cluster which node owns the slot of ``key``."""
        yield from self._driven(self._router.located())
        node = self._router.topology.owner(slot_of(key))
        if node is None:
            raise RedisConnectionError(f"no node of the cluster owns the slot of {key!r}")
        return node

    def known_owner(self, key: Any) -> Procedure[NodeAddress]:
        """Return the node that owns the slot of ``key``. Asks the cluster only if the owner is in doubt."""
        node = self._router.topology.owner(slot_of(key))
        if node is None or not self._router.topology.fresh:
            node = yield from self.owner(key)
        return node

    def client_of(self, node: NodeAddress) -> Any:
        """Return the client of one node."""
        return self._client(node)

    def moved(self, error: MovedError) -> None:
        """Note a redirection that was received over a connection of a node's client."""
        self._router.topology.moved(error.slot_id, NodeAddress(error.host, error.port))

    def doubt(self, node: NodeAddress) -> None:
        """Note that ``node`` could not be reached."""
        self._router.topology.doubt(node)

    def _driven(self, routing: Routing) -> Procedure[list[Any]]:
        """Send the parts that the router yields; return the replies that it collects."""
        try:
            part = next(routing)
            while True:
                answer = yield from self._answer(part)
                part = routing.send(answer)
        except StopIteration as finished:
            found: list[Any] = finished.value
            return found

    def _answer(self, part: Part) -> Procedure[Answer]:
        client = self._client(part.node)
        try:
            if len(part.commands) == 1:
                words, options = part.commands[0]
                return [(yield partial(client.execute_command, *words, **options))]
            pipeline = client.pipeline(transaction=False)
            for words, options in part.commands:
                pipeline.execute_command(*words, **options)
            replies: list[Any] = yield partial(pipeline.execute, raise_on_error=False)
        except LOST as error:
            return error
        except ResponseError as error:
            return [error]
        return replies

    def _client(self, node: NodeAddress) -> Any:
        with self._lock:
            client = self._nodes.get(node)
            if client is None:
                client = self._nodes[node] = self._open_node(node)
            return client

    def take_nodes(self) -> list[Any]:
        """Return the clients of the nodes, and forget them. The caller must close them."""
        nodes, self._nodes = self._nodes, {}
        return list(nodes.values())


class OneNodeOnly:
    """The methods of redis-py's clients that need a single node. Each raises `ConfigError`, except for pipelines
    that are not transactions."""

    connection_pool: Any
    node_pipeline: Callable[[Any, Any], Any]
    """Function of a client and its pool that returns a pipeline, which sends each command to its node."""

    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> Any:  # noqa: ARG002, FBT002
        """Return a pipeline that sends each command to the node of its key.

        Raises `ConfigError` if ``transaction`` is true.
        """
        if transaction:
            refuse("a pipeline that is a transaction")
        return self.node_pipeline(self, self.connection_pool)

    def transaction(self, *_args: Any, **_options: Any) -> NoReturn:
        refuse("transaction()")

    def pubsub(self, **_options: Any) -> NoReturn:
        refuse("pubsub()")

    def monitor(self) -> NoReturn:
        refuse("monitor()")


def refuse(what: str) -> NoReturn:
    """Raise `ConfigError`, which says that ``what`` does not work over several nodes."""
    raise ConfigError(f"{what} does not work on a cluster's address: connect to one of its nodes")
