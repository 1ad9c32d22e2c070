"""No change makes a hot command dearer than it may be: `make bench-gate`, as a part of `make slice`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.machine import ROOT, build_kind
from tests import peers

WITHIN_SECONDS = 180


@pytest.mark.slice
@pytest.mark.peer
@pytest.mark.timeout(WITHIN_SECONDS + 20)
def test_hot_commands_cost_no_more_beside_redis_than_they_may() -> None:
    # Given compiled modules and the real Redis
    if not build_kind().startswith("compiled"):
        pytest.skip("speed is what the compiled modules have")
    if peers.path("redis-8.2") is None:
        pytest.skip(str(peers.PeerMissing("redis-8.2")))

    # When the hot commands of both are measured in one run
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gate"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WITHIN_SECONDS,
        check=False,
    )

    # Then each row is at its bound or above it
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
