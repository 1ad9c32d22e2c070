"""Room for large answers: kept between them, within what all clients may keep together."""

from __future__ import annotations

import pytest

from headwater.server.session.output_budget import OUTPUT_BUDGET_BYTES
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
    """The client is given a value of ``size`` bytes and takes it."""
    session.feed(b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (size, bytes(size)))
    node.turn([session])
    assert len(session.output.take_bytes()) > size


def test_small_answers_take_nothing_of_it(node: Node) -> None:
    # When a client is given small answers
    session = connect(node)
    answer(node, session, SMALL - 100)
    # Then there is as much room for large ones as before
    assert node.clients.output_budget.free_bytes == OUTPUT_BUDGET_BYTES


def test_a_silent_client_and_one_that_leaves_give_it_back(node: Node) -> None:
    # Given two clients that were given large answers
    silent, leaving = connect(node), connect(node)
    answer(node, silent, LARGE)
    answer(node, leaving, LARGE)
    answer(node, leaving, LARGE - 1)
    taken = OUTPUT_BUDGET_BYTES - node.clients.output_budget.free_bytes
    assert 4 * (LARGE - SMALL) <= taken < 4 * LARGE
    # When one is silent for a while and one leaves
    silent.rest()
    node.close_session(leaving)
    # Then all of it is there again, and who has left takes none
    assert node.clients.output_budget.free_bytes == OUTPUT_BUDGET_BYTES
    leaving.output.released += bytes(LARGE)
    leaving.output.empty_released()
    assert node.clients.output_budget.free_bytes == OUTPUT_BUDGET_BYTES


def test_all_clients_together_keep_no_more_than_there_is(node: Node) -> None:
    # When more clients are given large answers than there is room for
    sessions = [connect(node) for _ in range(12)]
    for session in sessions:
        answer(node, session, LARGE)
    # Then what is kept is within bounds, and everybody was served
    assert 0 <= node.clients.output_budget.free_bytes < 2 * LARGE
    for session in sessions:
        session.rest()
    assert node.clients.output_budget.free_bytes == OUTPUT_BUDGET_BYTES
