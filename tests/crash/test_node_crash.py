"""A node survives a crash at any file operation, and the tests of that detect planted faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.node_campaign import NodeCampaign
from tests.crash.planted import CHECKS, FAULTS, checked, plant


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_crash_of_a_node_loses_what_it_answered(seed: int) -> None:
    done = NodeCampaign(seed).run()
    assert done.failures == []
    assert done.answered == done.commands
    assert done.trials > 100


@pytest.mark.slice
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught(name: str, tmp_path: Path) -> None:
    # Given the sources with a fault
    fault = FAULTS[name]
    sources = plant(fault, tmp_path)
    # When the check that should find it runs, with a limited number of histories
    found = checked(fault.check, sources)
    # Then it finds the fault, for the right reason
    assert fault.seen in found, f"{name} was not caught: {found!r}"


@pytest.mark.slice
@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", CHECKS)
def test_without_a_fault_the_checks_find_nothing(check: str, tmp_path: Path) -> None:
    assert checked(check, plant(None, tmp_path)).strip() == ""
