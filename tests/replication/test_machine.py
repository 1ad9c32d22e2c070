"""Equal names of states mean equal states, whatever happens to links and members."""

from __future__ import annotations

import pytest

from tests.replication.machine import Machine


@pytest.mark.parametrize("seed", range(6))
def test_members_with_the_same_history_and_offset_are_in_the_same_state(seed: int) -> None:
    # Given three members
    machine = Machine(seed)
    # When commands run, links are cut, members are killed, restarted and promoted
    for _ in range(120):
        machine.step()
    # Then equal names meant equal states, and in the end all have the same
    machine.settle()
