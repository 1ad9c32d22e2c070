"""Tests that share a server or a Spark session have an xdist_group, and run in the same process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SHARING = """
import os
from pathlib import Path
import pytest

@pytest.mark.xdist_group("shared")
@pytest.mark.parametrize("number", range(8))
def test_one_of_a_group(number):
    Path(__file__).with_name(os.environ["PYTEST_XDIST_WORKER"]).touch()
"""


def test_tests_of_a_group_run_in_one_process(tmp_path: Path) -> None:
    # Given eight tests of one group. pytest 9.2 with xdist 3.8 started a Spark session in every process
    (tmp_path / "test_sharing.py").write_text(SHARING)
    # When two processes run them
    ours = {"PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"}
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    words = ("-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", str(tmp_path))
    subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
    )
    # Then one of the two ran them all
    assert len([*tmp_path.glob("gw*")]) == 1
