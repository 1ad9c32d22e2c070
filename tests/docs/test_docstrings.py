"""The examples in docstrings run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_examples_in_docstrings_run() -> None:
    # When every example in the sources runs, in plain Python and with warnings as errors
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.docstrings"],
        cwd=ROOT,
        env={**os.environ, "HEADWATER_PURE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    # Then they print what the docstrings show
    assert done.returncode == 0, done.stderr
    *failed, summary = done.stdout.splitlines()
    assert failed == [], "\n".join(failed)
    # And there are more than 300
    assert int(summary.split()[0]) > 300
