"""Reply buffers: a session keeps a large one between replies, within a budget for all clients."""

from __future__ import annotations

import pytest

from headwater.server.session.output import OUTPUT_BUDGET_BYTES
from headwater.server.session.session import Session
from headwater.server.turn.node import Node

SMALL = 16 * 1024
LARGE = 1024 * 1024


@pytest.fixture
def node() -> Node:
    return Node()


def connect(node: Node) -> Session:
    return node.connect(kind="tcp", address="", on_output=lambda session: None)


def answer(node: Node, session: Session, size: int) -> None:
    """Send the client a value of ``size`` bytes, which it reads."""
    session.feed(b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (size, bytes(size)))
    node.turn([session])
    assert len(session.output.take_bytes()) > size


def test_small_replies_do_not_use_the_budget(node: Node) -> None:
    # When a client gets small replies
    session = connect(node)
    answer(node, session, SMALL - 100)
    # Then the budget is unchanged
    assert node.clients.memory.free_bytes == OUTPUT_BUDGET_BYTES


def test_silent_and_disconnected_clients_release_the_budget(node: Node) -> None:
    # Given two clients that got large replies
    silent, leaving = connect(node), connect(node)
    answer(node, silent, LARGE)
    answer(node, leaving, LARGE)
    answer(node, leaving, LARGE - 1)
    taken = OUTPUT_BUDGET_BYTES - node.clients.memory.free_bytes
    assert 4 * (LARGE - SMALL) <= taken < 4 * LARGE
    # When one is silent for a while and one disconnects
    silent.rest()
    node.close_session(leaving)
    # Then the whole budget is free again, and the disconnected one uses nothing
    assert node.clients.memory.free_bytes == OUTPUT_BUDGET_BYTES
    leaving.output.released += bytes(LARGE)
    leaving.output.empty_released()
    assert node.clients.memory.free_bytes == OUTPUT_BUDGET_BYTES


def test_all_clients_together_stay_within_the_budget(node: Node) -> None:
    # When more clients get large replies than the budget covers
    sessions = [connect(node) for _ in range(12)]
    for session in sessions:
        answer(node, session, LARGE)
    # Then the buffers stay within the budget, and all clients were served
    assert 0 <= node.clients.memory.free_bytes < 2 * LARGE
    for session in sessions:
        session.rest()
    assert node.clients.memory.free_bytes == OUTPUT_BUDGET_BYTES
