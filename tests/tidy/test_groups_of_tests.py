"""Tests that share a server or a Spark session have an xdist_group, and run in the same process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHARING = """
import os
from pathlib import Path
import pytest

@pytest.mark.xdist_group("shared")
@pytest.mark.parametrize("number", range(8))
def test_one_of_a_group(number):
    Path(__file__).with_name(f"group-{os.environ['PYTEST_XDIST_WORKER']}").touch()

@pytest.mark.parametrize("number", range(40))
def test_one(number):
    Path(__file__).with_name(f"one-{number}").open("x")
    assert number != 20
"""

OURS = """
from tests.scheduling import Scheduling

def pytest_xdist_make_scheduler(config, log):
    return Scheduling(config, log)
"""


@pytest.mark.parametrize("scheduling", ["", OURS], ids=["of xdist", "ours"])
def test_tests_of_a_group_run_in_one_process_and_every_test_runs_once(
    tmp_path: Path, scheduling: str
) -> None:
    # Given eight tests of one group, and others, of which one fails. pytest 9.2 with xdist 3.8 started a Spark
    # session in every process
    (tmp_path / "test_sharing.py").write_text(SHARING)
    (tmp_path / "conftest.py").write_text(scheduling)
    # When two processes run them
    ours = {"PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"}
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    words = ("-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
        capture_output=True,
        text=True,
    )
    # Then one of the two ran all tests of the group, and every other test ran
    assert len([*tmp_path.glob("group-*")]) == 1, done.stdout
    assert len([*tmp_path.glob("one-*")]) == 40
    assert "1 failed, 47 passed" in done.stdout
