"""A node survives a crash at any file operation, and the tests of that detect planted faults."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests import campaigns
from tests.blocks import tiny_blocks
from tests.campaigns import Outcome
from tests.crash.call_campaign import CallCampaign
from tests.crash.node_campaign import NodeCampaign
from tests.crash.planted import CHECKS, FAULTS, checked, plant


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_crash_of_a_node_loses_what_it_answered(seed: int) -> None:
    done = NodeCampaign(seed).run()
    assert done.failures == []
    assert done.answered == done.commands
    assert done.trials > 100
    assert done.checkpoints > 0


@pytest.mark.slice
@pytest.mark.timeout(300)
def test_no_crash_of_many_nodes_loses_what_they_answered() -> None:
    # Given histories with checkpoints, and new seeds
    first = random.SystemRandom().randrange(2**31)
    began, trials, failures = time.monotonic(), 0, []
    # When each is crashed before every file operation
    for seed in range(first, first + 10):
        done = NodeCampaign(seed).run()
        trials += done.trials
        failures += done.failures
    # Then nothing is lost, and the run is recorded
    outcome = Outcome(
        "nodes", (first, first + 9), trials, "crashes", failures, time.monotonic() - began
    )
    campaigns.record("crash", outcome, directory=campaigns.SLICE)
    assert failures == []
    assert trials > 3000


@pytest.mark.slice
@pytest.mark.timeout(300)
def test_a_server_killed_before_any_system_call_loses_nothing() -> None:
    # Given a server, its helper, and new seeds
    seed, began = random.SystemRandom().randrange(2**31), time.monotonic()
    # When one of them is killed before a random system call, 150 times on the same data
    done = CallCampaign(seed, 150).run()
    # Then nothing is lost, and the run is recorded
    took = time.monotonic() - began
    outcome = Outcome("calls", (seed, seed), done.servers, "kills", done.wrong, took)
    campaigns.record("crash", outcome, directory=campaigns.SLICE)
    assert done.wrong == []
    assert done.servers >= 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_crash_of_a_node_loses_entries_that_go_to_disk(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given blocks of two entries, which are stored at once
    tiny_blocks(monkeypatch)
    # When the node crashes at any operation of its history
    done = NodeCampaign(seed, cold=True).run()
    # Then nothing is lost
    assert done.failures == []
    assert done.answered == done.commands
    assert done.stored > 5


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
