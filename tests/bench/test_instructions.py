"""Instructions are counted per operation, and a change that makes a hot command slower is found."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import compare, counted, instructions
from benchmarks.machine import ROOT

needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is missing")


@pytest.mark.parametrize("row", counted.ROWS, ids=lambda row: row.name)
def test_no_step_of_a_row_fails(row: counted.Counted, tmp_path: Path) -> None:
    """No reply is an error or empty."""
    from headwater.config.config import Config
    from headwater.server.opening import open_node

    small = row._replace(steps=5)
    node = open_node(Config(port=0, dir=str(tmp_path), appendonly=False, save=()))
    session = node.connect(kind="embedded", address="")
    for data in row.before():
        counted.answer(node, session, data)
    for number in range(counted.done(small.steps)):
        counted.answer(node, session, row.step(number))
    node.close()


def test_a_row_whose_commands_fail_is_not_counted(tmp_path: Path) -> None:
    wrong = counted.Counted("XLEN", 1, 5, lambda _number: counted.request(b"XLEN"))
    with pytest.raises(counted.Refused, match="wrong number of arguments"):
        counted.run(wrong, tmp_path / "store")


def test_without_valgrind_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a machine without valgrind
    monkeypatch.setenv("PATH", "/nonexistent")
    # When instructions are counted, alone or compared with another commit
    statuses = [instructions.main([]), compare.main(["HEAD"])]
    # Then both say what to install
    assert statuses == [1, 1]
    assert capsys.readouterr().err.count("apt-get install valgrind") == 2


def test_the_error_for_an_unknown_row_lists_the_rows() -> None:
    with pytest.raises(instructions.CannotCount, match="no row matches XFOO; rows: XADD, "):
        instructions.chosen(["XFOO"])


@pytest.mark.parametrize(("most", "above"), [(1.05, []), (1.04, ["XADD"])])
def test_a_row_above_the_bound_fails_the_comparison(
    most: float,
    above: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Given an XADD that costs 4.5 % more than at the other commit, and an XACK that costs less
    def per_operation(_rows: object, *, sources: Path | None = None) -> dict[str, float]:
        theirs = {"XADD": 1000.0, "XACK of 1": 1000.0}
        return theirs if sources else {"XADD": 1045.0, "XACK of 1": 900.0}

    monkeypatch.setattr(instructions, "per_operation", per_operation)
    # When they are compared
    ratios, found = compare.counts(Path("elsewhere"), (), most)
    # Then a row fails only if its ratio is above the bound, and the output says so
    assert found == above
    assert ratios["XACK of 1"] == pytest.approx(0.9)
    assert ("FAIL" in capsys.readouterr().out) is bool(above)


@needs_valgrind
@pytest.mark.slice
@pytest.mark.timeout(600)
def test_counts_are_written_and_reproducible_and_a_slower_operation_has_a_higher_one(
    tmp_path: Path,
) -> None:
    # Given what the program counts, prints and writes for a row, and sources with more work in each operation
    (row,) = instructions.chosen(["XADD, pipeline of 16"])
    written = tmp_path / "counts.json"
    words = [sys.executable, "-m", "benchmarks.instructions"]
    words += ["--rows", row.name, "--output", str(written)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert row.name in done.stdout
    counts = json.loads(written.read_text())["instructions_per_operation"]
    assert counts.keys() == {row.name}
    dearer = tmp_path / "src"
    shutil.copytree(ROOT / "src", dearer, ignore=shutil.ignore_patterns("__pycache__"))
    opening = dearer / "headwater" / "server" / "opening.py"
    opening.write_text(opening.read_text() + DEARER)
    # When this commit is counted again, and the dearer sources are
    again = instructions.per_operation([row])[row.name]
    more = instructions.per_operation([row], sources=dearer)[row.name]
    # Then a count is reproducible, and the difference is above the bound
    assert counts[row.name] / again == pytest.approx(1, abs=0.001)
    assert more / again > compare.MOST


DEARER = """

class _Dearer:
    def __init__(self, node):
        self.node, self.connect, self.close = node, node.connect, node.close

    def exchange(self, session, requests):
        sum(range(200))
        return self.node.exchange(session, requests)


_plain = open_node


def open_node(config):
    return _Dearer(_plain(config))
"""
