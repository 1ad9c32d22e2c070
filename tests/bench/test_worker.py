"""The processes of `make bench-worker`: what they count, and how they are run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from benchmarks import results
from benchmarks.machine import ROOT
from benchmarks.rows import OURS, Row, Target
from benchmarks.worker import delayed, page
from benchmarks.worker.subjects import PEERS, PROGRAMS, RAW
from benchmarks.worker.tally import BODY_BYTES, GROUP, RESULTS, STREAM, Tally, body
from headwater.messages.keys import later_key
from tests.peers import Peer


@pytest.mark.parametrize("number", [0, 17, 49_999, 999_999])
def test_each_message_is_75_bytes_of_json_that_names_its_number(number: int) -> None:
    assert len(body(number)) == BODY_BYTES
    assert json.loads(body(number))["id"] == number


def test_the_first_call_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(1_000)
    assert [tally.add(500), tally.add(499), tally.add(1)] == [False, False, True]
    tally.report()
    found = json.loads(capsys.readouterr().out)
    assert found["messages"] == 500
    assert 0 <= found["cpu_seconds"] <= found["seconds"] + 1


def test_every_peer_has_a_program() -> None:
    assert all((PROGRAMS / f"{peer.name}_program.py").exists() for peer in PEERS)


@pytest.mark.peer
@pytest.mark.parametrize("module", ["raw", "ours"])
@pytest.mark.parametrize("kind", ["plain", "into"])
def test_a_measured_process_settles_every_message(
    module: str, kind: str, shared_peer: Callable[[str], Peer]
) -> None:
    url = shared_peer("redis-8.2").url
    words = [sys.executable, "-m", f"benchmarks.worker.{module}", url, "1200", kind]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["messages"] >= 600
    with redis.Redis.from_url(url) as client:
        summary = client.xpending(STREAM, GROUP)
        assert summary["pending"] == 0
        assert client.xlen(RESULTS) == (1_200 if kind == "into" else 0)


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("kind", ["due", "plain", "after", "dedupe"])
def test_a_measured_process_sends_or_publishes_every_message(
    kind: str, shared_peer: Callable[[str], Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = shared_peer("redis-8.2").url
    monkeypatch.setattr(delayed, "LEAD_SECONDS", 1.0)
    monkeypatch.setattr(sys, "argv", ["delayed", url, "1200", kind])
    delayed.main()
    with redis.Redis.from_url(url) as client:
        waiting = client.xlen(later_key(STREAM))
        assert (client.xlen(STREAM), waiting) == {
            "due": (1_200, 0),
            "plain": (1_201, 0),
            "after": (1, 1_200),
            "dedupe": (1_201, 0),
        }[kind]


def a_report(*rows: Row) -> results.Report:
    """A report of these rows, as `make bench-worker` writes it."""
    report: results.Report = {
        "format": results.FORMAT,
        "date": "2026-11-23T00:00:00+00:00",
        "commit": "0123456789abcdef",
        "rounds": 1,
        "rows": [],
    }
    results.add(report, rows)
    return report


def test_the_page_shows_ratios_to_the_raw_loop(tmp_path: Path) -> None:
    # Given a row of Headwater with a target, and a row of a peer
    ours = Row("worker", "plain handlers", "/s", against=RAW, target=Target(0.6, 0.9))
    theirs = Row("worker", "compared with arq", "/s", against="arq")
    for row in (ours, theirs):
        row.of(RAW).add(100_000.0, cpu_us=5.0)
        row.of(OURS).add(70_000.0, cpu_us=8.0)
    theirs.of("arq").add(1_000.0, cpu_us=400.0)
    results.write(a_report(ours, theirs), tmp_path / "newest.json")

    # Then each has a line with its ratio to the raw loop of the same rounds
    lines = page.section(tmp_path).splitlines()
    assert "| plain handlers | 70,000 | 0% | 8 | 0.7 | 0.6 | 0.9 | required |" in lines
    assert "| arq | 1,000 | 0% | 400 | 0.01 |  |  |  |" in lines


def test_the_page_compares_each_round_with_the_raw_loop_of_the_same_round(tmp_path: Path) -> None:
    # Given a machine that is slower in the first round, and rates that exceed the raw loop's once in three rounds
    row = Row("worker", "batches", "/s", against=RAW, target=Target(0.9, 1.2))
    for ours, raw in ((10.0, 10.0), (30.0, 15.0), (20.0, 20.0)):
        row.of(OURS).add(ours)
        row.of(RAW).add(raw)
    results.write(a_report(row), tmp_path / "newest.json")

    # Then the ratio is the one that the verdict refers to, not that of the medians, which is 1.33
    assert "| 1 | 0.9 | 1.2 | required |" in page.section(tmp_path)


def test_without_results_there_is_no_section(tmp_path: Path) -> None:
    assert page.section(tmp_path / "none") == ""
    assert page.section(tmp_path) == ""
