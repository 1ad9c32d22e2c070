"""The calls of one cluster client: what `sync.cluster` and `aio.cluster` have in common.

redis-py's own cluster client sends a command again when its connection is lost, and so adds an entry
twice; it asks the server where the keys of each XREADGROUP are; and it does not say over which
connection CLIENT ID goes. So each node has a client of its own here, and `routing` decides.

Rule 1. A command without a key goes to one node: `keys`, `dbsize` and `scan` see a part of the cluster.
Rule 2. A client made from the url of a single server is as fast as a plain one, until the server
        redirects it.
Rule 3. A call is made again as often as the retry policy says, while nothing has run that must not
        run twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from redis.exceptions import AskError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import AbstractRetry

from headwater.client.attempts import NEVER_AGAIN, may_have_run
from headwater.client.drivers import Procedure, Sleep
from headwater.client.routing import Answer, Part, QueuedCommand, Router, SlotMoved
from headwater.client.server_url import NodeAddress
from headwater.errors import ConfigError

LOST = (RedisConnectionError, RedisTimeoutError, OSError)
"""What the router is given in the place of replies."""


class ClusterCalls:
    """Carries out the calls of a client of a cluster, or of a server that may be a node of one.

    ``open_node`` makes the client of a node. The client itself, whose pool is of the first node, gives
    its own way to run a command there as ``direct``.
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
        """It began with one connection to what may be a single server."""

    @property
    def routed(self) -> bool:
        """Whether commands go to several nodes; false as long as one server seems to be all."""
        return self._router.topology.cluster

    def redirected(
        self, words: Sequence[Any], options: dict[str, Any], error: AskError | None
    ) -> Procedure[Any]:
        """Run a command on the node of its key; ``error`` is the answer of the server that was asked
        directly."""
        queued = [QueuedCommand(words, options)]
        replies = yield from self.run(queued, None if error is None else [error])
        if isinstance(replies[0], Exception):
            raise replies[0]
        return replies[0]

    def run_pipeline(
        self, pipeline: Any, direct: Callable[..., Any], *, raise_on_error: bool
    ) -> Procedure[list[Any]]:
        """Send what ``pipeline`` has queued; the replies, in order. ``direct`` is its `execute`."""
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
        """Have commands run; the replies, errors among them."""
        if self._stays_direct:
            # From now on it would use another connection: not the one that CLIENT ID named, and not the
            # one that watches.
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
        """Carry out what the router says."""
        routing = self._router.route(queued, replies)
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
        """The clients of the nodes, which the caller closes."""
        nodes, self._nodes = self._nodes, {}
        return list(nodes.values())


class OneNodeOnly:
    """The methods of redis-py's clients that need one node; each raises `ConfigError`."""

    def transaction(self, *_args: Any, **_options: Any) -> NoReturn:
        refuse("transaction()")

    def pubsub(self, **_options: Any) -> NoReturn:
        refuse("pubsub()")

    def monitor(self) -> NoReturn:
        refuse("monitor()")


def refuse(what: str) -> NoReturn:
    """Raises `ConfigError`: ``what`` does not work over several nodes."""
    raise ConfigError(f"{what} does not work on a cluster's address: connect to one of its nodes")
