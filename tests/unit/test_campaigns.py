"""Campaigns record their runs, with new seeds each time, and the page summarizes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import campaigns
from tests.campaigns import Outcome
from tests.conformance.campaign import outcome_of
from tests.crash import campaign as crash
from tools import reliability


def test_a_run_is_one_line_with_date_commit_seeds_trials_and_failures(tmp_path: Path) -> None:
    campaigns.record(
        "crash", Outcome("journal", (5, 8), 900, "crashes", ["lost"], 1.23), directory=tmp_path
    )
    (line,) = (json.loads(text) for text in (tmp_path / "crash.jsonl").read_text().splitlines())
    assert (line["part"], line["seeds"], line["trials"], line["failures"]) == (
        "journal",
        [5, 8],
        900,
        ["lost"],
    )
    assert {"date", "commit", "build", "unit", "seconds"} < line.keys()


@pytest.mark.slow
def test_each_run_uses_new_seeds_of_its_part(tmp_path: Path) -> None:
    assert campaigns.next_seed("crash", "journal", directory=tmp_path, first=100) == 100
    for seeds in ((100, 120), (121, 130), (3, 4)):
        campaigns.record(
            "crash", Outcome("journal", seeds, 1, "crashes", [], 1), directory=tmp_path
        )
    assert campaigns.next_seed("crash", "journal", directory=tmp_path, first=100) == 131
    assert campaigns.next_seed("crash", "kills", directory=tmp_path) == 1


def test_the_page_summarizes_runs_and_names_failures(tmp_path: Path) -> None:
    campaigns.record("crash", Outcome("kills", (1, 2), 100, "kills", [], 1), directory=tmp_path)
    campaigns.record(
        "crash",
        Outcome("kills", (3, 9), 350, "kills", ["seed 4: s1 is lost"], 1),
        directory=tmp_path,
    )
    page = reliability.page(tmp_path)
    assert "| kills | 2 | 450 kills | 1 | 1 to 9 |" in page
    assert "kills: 1 failed, first: `seed 4: s1 is lost`" in page


def test_the_page_shows_the_longest_time_of_all_runs(tmp_path: Path) -> None:
    for seed, milliseconds in ((1, 189), (2, 104), (3, 1_130)):
        waited = Outcome("waits", (seed, seed), milliseconds, "milliseconds of audit, 99 %", [], 1)
        campaigns.record("deploy", waited, directory=tmp_path)
    assert "| waits | 3 | at most 1,130 ms | 0 | 1 to 3 |" in reliability.page(tmp_path)


def test_the_outcome_of_conform_has_seeds_counts_and_failures() -> None:
    found = {
        "first_seed": 7,
        "last_seed": 9,
        "commands": 3000,
        "failures": [{"seed": 8, "what": "unlike"}],
    }
    assert outcome_of("streams", found, 2.0)[1:5] == ((7, 9), 3000, "commands", ["8 unlike"])
    assert outcome_of("odd", {"requests": 5, "failures": []}, 2.0)[1:4] == (None, 5, "requests")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["journal", "errors"])
def test_the_crash_campaign_counts_its_trials(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash, "POLICIES", ("no",))
    monkeypatch.setattr(crash, "TURNS", 5)
    outcome = crash.run(part, 1, seeds=1)
    assert outcome.trials > 10
    assert outcome.failures == []


@pytest.mark.slow
def test_a_repeated_seed_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash, "POLICIES", ("no",))
    monkeypatch.setattr(crash, "TURNS", 3)
    recorded: list[str] = []
    monkeypatch.setattr(campaigns, "record", lambda name, outcome: recorded.append(name))
    for words, count in ((["--seed", "7"], 0), ([], 1)):
        monkeypatch.setattr("sys.argv", ["campaign", "--only", "journal", "--seeds", "1", *words])
        assert crash.main() == 0
        assert len(recorded) == count
