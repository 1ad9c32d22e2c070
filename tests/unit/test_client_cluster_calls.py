"""The calls of a cluster's client, with simulated nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import AskError, MovedError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from headwater.client.aio.cluster import AsyncClusterClient
from headwater.client.attempts import say_may_have_run
from headwater.client.cluster_calls import ClusterCalls
from headwater.client.drivers import run
from headwater.client.routing import QueuedCommand, Router, SlotMoved
from headwater.client.server_url import NodeAddress
from headwater.client.slots import Topology
from headwater.client.sync.cluster import ClusterClient

A, B = NodeAddress("a", 1), NodeAddress("b", 2)

SLOTS = [[0, 16383, [b"b", 2]]]
"""The second node owns all slots."""


class Nodes:
    """The clients of two nodes. They answer CLUSTER SLOTS, and other commands with ``answers``."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.received: list[tuple[NodeAddress, tuple[Any, ...]]] = []
        self.opened: list[NodeAddress] = []

    def open(self, node: NodeAddress) -> _Node:
        self.opened.append(node)
        return _Node(self, node)

    def calls(self, *, cluster: bool = True, stays: bool = False, retries: int = 2) -> ClusterCalls:
        router = Router(Topology([A, B], cluster=cluster), stays=stays)
        return ClusterCalls(router, self.open, retry=Retry(NoBackoff(), retries))


class _Node:
    def __init__(self, nodes: Nodes, address: NodeAddress) -> None:
        self.nodes, self.address = nodes, address
        self.queued: list[tuple[Any, ...]] = []

    def execute_command(self, *words: Any, **_options: Any) -> Any:
        if words[0] == b"CLUSTER":
            return SLOTS
        self.nodes.received.append((self.address, words))
        answer = self.nodes.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pipeline(self, *, transaction: bool) -> _Pipeline:
        assert not transaction
        return _Pipeline(self)


class _Pipeline:
    def __init__(self, node: _Node) -> None:
        self.node = node
        self.queued: list[tuple[Any, ...]] = []

    def execute_command(self, *words: Any, **_options: Any) -> None:
        self.queued.append(words)

    def execute(self, *, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        found: list[Any] = []
        for words in self.queued:
            try:
                found.append(self.node.execute_command(*words))
            except ResponseError as error:
                found.append(error)
        return found


XLEN = QueuedCommand(("XLEN", "orders"))
XADD = QueuedCommand(("XADD", "orders", "*", "a", "1"))


def test_a_command_goes_to_the_node_of_its_key() -> None:
    nodes = Nodes(3)
    assert run(nodes.calls().redirected(("XLEN", "orders"), {}, None)) == 3
    assert nodes.received == [(B, ("XLEN", "orders"))]


def test_an_error_reply_is_raised() -> None:
    nodes = Nodes(ResponseError("WRONGTYPE"))
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        run(nodes.calls().redirected(("XLEN", "orders"), {}, None))


def test_a_single_server_that_redirects_is_followed() -> None:
    nodes = Nodes(3)
    calls = nodes.calls(cluster=False)
    assert not calls.routed
    moved = MovedError("1 b:2")
    assert run(calls.redirected(("XLEN", "orders"), {}, moved)) == 3
    assert calls.routed


def test_a_client_with_a_dedicated_connection_does_not_follow() -> None:
    nodes = Nodes()
    calls = nodes.calls(cluster=False, stays=True)
    with pytest.raises(SlotMoved):
        run(calls.redirected(("XLEN", "orders"), {}, MovedError("1 b:2")))
    assert calls.routed
    assert nodes.opened == []


def test_a_call_is_repeated_if_none_of_it_may_have_run() -> None:
    nodes = Nodes(RedisConnectionError("1"), RedisConnectionError("2"), 3)
    assert run(nodes.calls().run([XLEN])) == [3]


def test_the_retry_policy_bounds_the_attempts() -> None:
    nodes = Nodes(*[RedisConnectionError(str(n)) for n in range(1, 9)])
    with pytest.raises(RedisConnectionError, match="3"):
        run(nodes.calls().run([XLEN]))


def test_a_command_that_may_have_run_is_not_sent_again() -> None:
    error = RedisConnectionError("lost")
    say_may_have_run(error)
    nodes = Nodes(error, "1-1")
    with pytest.raises(RedisConnectionError, match="lost"):
        run(nodes.calls().run([XADD]))
    assert len(nodes.received) == 1


def test_the_client_of_a_node_is_opened_once_and_handed_over_to_be_closed() -> None:
    nodes = Nodes(1, 2)
    calls = nodes.calls()
    run(calls.run([XLEN]))
    run(calls.run([XLEN]))
    assert nodes.opened == [A, B]
    assert [one.address for one in calls.take_nodes()] == [A, B]
    assert calls.take_nodes() == []


class Queue:
    """redis-py's pipeline of a client."""

    def __init__(self, *replies: Any) -> None:
        self.command_stack = [(one.words, one.options) for one in (XLEN, XADD)]
        self.replies = list(replies)
        self.calls: list[str] = []
        self.raised: list[Any] = []

    def execute(self, *, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        self.calls.append("execute")
        return self.replies

    def reset(self) -> None:
        self.calls.append("reset")

    def raise_first_error(self, commands: list[Any], replies: list[Any]) -> None:
        self.raised = [commands, replies]


def test_a_pipeline_on_a_single_server_is_redis_pys_own() -> None:
    queue = Queue(1, b"1-1")
    found = run(
        Nodes().calls(cluster=False).run_pipeline(queue, queue.execute, raise_on_error=True)
    )
    assert found == [1, b"1-1"]
    assert queue.calls == ["execute", "reset"]
    assert queue.raised == [[(XLEN.words, {}), (XADD.words, {})], [1, b"1-1"]]


def test_only_redirected_commands_of_a_pipeline_are_sent_again() -> None:
    queue = Queue(1, AskError("1 b:2"))
    nodes = Nodes(b"OK", b"1-1")
    calls = nodes.calls(cluster=False)
    assert run(calls.run_pipeline(queue, queue.execute, raise_on_error=False)) == [1, b"1-1"]
    assert nodes.received == [(B, (b"ASKING",)), (B, XADD.words)]
    assert queue.raised == []


def test_a_pipeline_on_a_cluster_goes_to_its_nodes() -> None:
    queue = Queue()
    nodes = Nodes(1, b"1-1")
    assert run(nodes.calls().run_pipeline(queue, queue.execute, raise_on_error=True)) == [1, b"1-1"]
    assert queue.calls == ["reset"]


class _Closing:
    """The client of a node that is gone if ``fails``."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.closed = False

    def close(self) -> None:
        self.closed = True
        if self.fails:
            raise RedisConnectionError("the node is gone")

    async def aclose(self) -> None:
        self.close()


def closing_nodes() -> tuple[ClusterCalls, list[_Closing]]:
    nodes = [_Closing(fails=True), _Closing(fails=False), _Closing(fails=True)]
    router = Router(Topology([A, B], cluster=True), stays=False)
    left = iter(nodes)
    calls = ClusterCalls(router, lambda _node: next(left), retry=Retry(NoBackoff(), 0))
    for number in range(len(nodes)):
        calls.client_of(NodeAddress("n", number))
    return calls, nodes


def test_a_node_that_is_gone_does_not_keep_the_others_open() -> None:
    calls, nodes = closing_nodes()

    with pytest.raises(RedisConnectionError, match="the node is gone"):
        ClusterClient(redis.ConnectionPool(), calls).close()

    assert all(node.closed for node in nodes)


def test_a_node_that_is_gone_does_not_keep_the_others_open_for_asyncio() -> None:
    async def close() -> None:
        await AsyncClusterClient(redis.asyncio.ConnectionPool(), calls).aclose()

    calls, nodes = closing_nodes()

    with pytest.raises(RedisConnectionError, match="the node is gone"):
        asyncio.run(close())

    assert all(node.closed for node in nodes)
