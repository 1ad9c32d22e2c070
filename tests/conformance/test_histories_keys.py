"""Random histories of keys and values on Headwater and on real servers; each reply is compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.histories_keys import KeyHistory
from tests.conformance.test_histories import agree
from tests.peers import PEERS, Peer

pytestmark = pytest.mark.peer


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("server", PEERS)
def test_a_random_history_of_keys_gives_the_same_replies(
    server: str, seed: int, shared_peer: Callable[[str], Peer]
) -> None:
    agree(seed, shared_peer(server), 600, of=KeyHistory)


@pytest.mark.slice
@pytest.mark.parametrize("seed", range(100, 110))
@pytest.mark.parametrize("server", PEERS)
def test_thirty_thousand_commands_on_keys_give_the_same_replies(
    server: str, seed: int, shared_peer: Callable[[str], Peer]
) -> None:
    agree(seed, shared_peer(server), 1000, of=KeyHistory)
