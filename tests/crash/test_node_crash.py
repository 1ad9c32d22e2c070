"""A node survives a crash at any file operation, and the tests of that detect planted faults."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.crash.campaign import calls, crashed_nodes, disks, sample
from tests.crash.node_campaign import NodeCampaign
from tests.crash.node_failures import KINDS, FailingNode
from tests.crash.node_store import tiny_segments
from tests.crash.planted import CHECKS, FAULTS, checked, plant
from tests.samples import sampled


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_crash_of_a_node_loses_what_it_answered(seed: int) -> None:
    done = NodeCampaign(seed).run()
    assert done.failures == []
    assert done.answered == done.done["commands"]
    assert done.trials > 100
    assert done.done["checkpoints"] > 0
    assert done.done["went on"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_crash_of_a_node_loses_entries_that_go_to_disk(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given tiny blocks, which are stored at once, and tiny segments
    tiny_segments(monkeypatch)
    # When the node crashes at any operation of its history
    done = NodeCampaign(seed, cold=True).run()
    # Then nothing is lost
    assert done.failures == []
    assert done.answered == done.done["commands"]
    assert done.stored > 5
    assert done.done["moved bytes"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_failure_of_a_disk_loses_what_a_node_answered(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a disk one of whose operations fails, whichever
    tiny_segments(monkeypatch)
    done = [FailingNode(1, kind, operation).run() for operation in range(0, 280, 9)]
    # When the store starts again, then nothing is lost
    assert [text for one in done for text in one.failures] == []
    # And each kind of file was concerned, and stores that were not poisoned went on
    failed = " ".join(one.failed for one in done)
    for name in ("journal-", "segment-", "image-", "MANIFEST"):
        assert name in failed
    assert any(one.done["commands"] == one.commands for one in done)
    assert any(one.done["failed checkpoints"] for one in done)


@pytest.mark.slice
@pytest.mark.timeout(300)
def test_no_crash_of_many_nodes_loses_what_they_answered() -> None:
    # Given histories with storing, checkpoints and compactions, and new seeds
    done: Counter[str] = Counter()

    def one(seed: int) -> tuple[int, list[str]]:
        both = crashed_nodes(seed, images=2)
        for each in both:
            done.update(each.done, stored=each.stored)
        return sum(each.trials for each in both), [what for each in both for what in each.failures]

    # When each is crashed before every file operation
    outcome = sample("nodes", sampled(3), one)
    # Then nothing is lost, and everything has happened
    assert outcome.failures == []
    assert outcome.trials >= sampled(2000)
    for what in ("checkpoints", "stored", "removed segments", "moved bytes", "jumps", "went on"):
        assert done[what] > 0, what


@pytest.mark.slice
@pytest.mark.timeout(300)
def test_no_failure_of_many_disks_loses_what_nodes_answered() -> None:
    outcome = sample("disks", 1, partial(disks, every=4))
    assert outcome.failures == []
    assert outcome.trials > 100


@pytest.mark.slice
@pytest.mark.timeout(300)
def test_many_restarted_stores_are_as_the_model() -> None:
    outcome = sample("restarts", sampled(60))
    assert outcome.failures == []


@pytest.mark.slice
@pytest.mark.timeout(300)
def test_a_server_killed_before_any_system_call_loses_nothing() -> None:
    # Given a server, its helper, and a new seed
    # When one of them is killed before a random system call, 40 times on the same data
    outcome = sample("calls", 1, partial(calls, trials=sampled(40)))
    # Then nothing is lost
    assert outcome.failures == []
    assert outcome.trials >= sampled(35)


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
