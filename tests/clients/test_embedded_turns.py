"""Turns that are interrupted by Ctrl-C, an exception or a disk error, and finalizers within a turn."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
import redis

import headwater
from headwater.client.embedded_opening import node_of
from headwater.commands.call import Call
from headwater.common.clock import SystemClock
from headwater.config.config import Config
from headwater.errors import NodePoisoned
from headwater.server.commands import SERVER_FUNCTIONS
from headwater.server.opening import open_node
from headwater.server.session.session import Session
from headwater.server.turn.node import Node
from headwater.testing.files import CrashableFiles
from tests.clients.uniform import blocked

# The function behind `signal.signal`, which itself makes the handler's repr.
set_handler: Callable[..., Any] = importlib.import_module("_signal").signal


class Interrupting(SystemClock):
    """A clock that raises SIGINT when a command reads it."""

    armed = False

    def now_ms(self) -> int:
        if self.armed:
            self.armed = False
            signal.raise_signal(signal.SIGINT)
        return super().now_ms()


def test_ctrl_c_waits_for_the_end_of_the_turn() -> None:
    clock = Interrupting()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with headwater.connect("headwater://memory", clock=clock) as client:
            client.ping()
            clock.armed = True
            with pytest.raises(KeyboardInterrupt):
                client.xadd("orders", {"item": "tea"})
            # The command had begun, so it has run completely
            assert client.xlen("orders") == 1
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_of_another_library_also_waits() -> None:
    # Given a handler that raises, as PySpark's does
    def handler(_number: int, _frame: object) -> None:
        raise RuntimeError("stop")

    clock = Interrupting()
    before = signal.signal(signal.SIGINT, handler)
    try:
        with headwater.connect("headwater://memory", clock=clock) as client:
            client.ping()
            clock.armed = True
            with pytest.raises(RuntimeError, match="stop"):
                client.xadd("orders", {"item": "tea"})
            assert client.xlen("orders") == 1
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


class Unprintable:
    """A handler whose repr must not be made: asyncio's includes that of a task and is expensive."""

    def __call__(self, _number: int, _frame: object) -> None: ...

    def __repr__(self) -> str:
        raise AssertionError("the repr of the handler was made")


def test_a_turn_does_not_make_the_repr_of_the_handler() -> None:
    handler = Unprintable()
    with headwater.connect("headwater://memory") as client:
        before = set_handler(int(signal.SIGINT), handler)
        try:
            assert client.ping()
        finally:
            after = set_handler(int(signal.SIGINT), before)
    assert after is handler


class Failing(SystemClock):
    """A clock that raises an error in the middle of a command."""

    armed = False

    def now_ms(self) -> int:
        if self.armed:
            self.armed = False
            raise RuntimeError("stop")
        return super().now_ms()


def test_a_command_that_fails_before_a_change_does_not_end_the_store() -> None:
    clock = Failing()
    with headwater.connect("headwater://memory", clock=clock) as client:
        client.xadd("orders", {"item": "tea"})
        # Given an error before a command has changed anything
        clock.armed = True
        with pytest.raises(redis.ResponseError, match="internal error"):
            client.xadd("orders", {"item": "milk"})
        # Then the store goes on
        assert client.xlen("orders") == 1
        assert client.xadd("orders", {"item": "milk"})


def fails_in_a_change(call: Call, _session: Session, _node: Node) -> None:
    call.admit(1)
    raise MemoryError


def test_a_store_whose_change_is_interrupted_is_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    with headwater.connect("headwater://memory") as client:
        client.xadd("orders", {"item": "tea"})
        # Given an error in the middle of a change
        monkeypatch.setitem(SERVER_FUNCTIONS, b"PING", fails_in_a_change)
        with pytest.raises(MemoryError):
            client.ping()
        # Then every command is refused
        with pytest.raises(redis.ResponseError, match="MISCONF a turn was aborted"):
            client.xlen("orders")
        assert isinstance(node_of(client).state.poisoned, NodePoisoned)


def test_a_disk_error_has_the_same_result_as_in_a_server() -> None:
    # Given a store whose next fsync fails
    files = CrashableFiles()
    node = open_node(Config(appendfsync="always"), files=files)
    with headwater.connect(node=node) as client:
        client.xadd("orders", {"item": "tea"})
        files.fail("sync")
        # When an entry is added, then there is no reply, and it is not sent again
        with pytest.raises(redis.ConnectionError, match="XADD had been sent and may have run"):
            client.xadd("orders", {"item": "milk"})
        # Then the state cannot be read
        with pytest.raises(redis.ResponseError, match=r"MISCONF .* could not be written"):
            client.xlen("orders")
    node.close()


async def test_a_blocked_client_gets_an_error_when_the_store_becomes_unusable(
    client: redis.Redis, submit: Callable[..., Future[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = submit(client.xread, {"orders": "$"}, block=0)
    await blocked(client)
    node = node_of(client)

    monkeypatch.setitem(SERVER_FUNCTIONS, b"PING", fails_in_a_change)
    with pytest.raises(MemoryError):
        client.ping()
    monkeypatch.undo()
    assert node.state.poisoned
    with pytest.raises(redis.ResponseError, match="MISCONF a turn was aborted by MemoryError"):
        waiting.result(10)


def test_a_client_that_is_garbage_collected_within_a_turn_is_closed_after_it(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a client whose last reference is removed in the middle of another client's turn
    forgotten = [headwater.connect("headwater://memory")]
    session = node_of(forgotten[0]).connect(kind="tcp", address="", on_output=lambda _: None)
    forgotten[0].ping()
    during: list[int] = []
    sessions = node_of(forgotten[0]).clients.sessions

    def forget(call: Call, _session: Session, _node: Node) -> None:
        forgotten.clear()
        during.append(len(sessions))
        call.reply.ok()

    client.ping()
    monkeypatch.setitem(SERVER_FUNCTIONS, b"PING", forget)
    client.ping()
    # Then its session exists within the turn, and not after it
    assert during == [2]
    assert list(sessions) == [session.id]
