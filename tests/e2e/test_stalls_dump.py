"""DUMP and RESTORE of a large stream hold up nobody: `benchmarks.stalls_dump`, as a part of `make slice`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.machine import ROOT, build_kind
from tests import peers

WITHIN_SECONDS = 150


@pytest.mark.slice
@pytest.mark.peer
@pytest.mark.timeout(WITHIN_SECONDS + 20)
def test_a_large_dump_and_restore_hold_the_loop_no_longer_than_they_may() -> None:
    # Given compiled modules and the real Redis
    if not build_kind().startswith("compiled"):
        pytest.skip("speed is what the compiled modules have")
    if peers.path("redis-8.2") is None and not peers.required():
        pytest.skip("redis-8.2 is not here (make peers)")

    # When a stream of 200,000 entries is moved on both in one run, while another client sends PING
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.stalls_dump"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WITHIN_SECONDS,
        check=False,
    )

    # Then each row is within its bounds
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert done.stdout.count("redis-8.2") == 2, done.stdout
