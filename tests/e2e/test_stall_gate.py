"""No long command holds other clients up for more than twice as long as Redis does: the short form of
`make bench-scale`, as a part of `make slice`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.machine import ROOT, build_kind
from tests import peers

WITHIN_SECONDS = 240


@pytest.mark.slice
@pytest.mark.peer
@pytest.mark.timeout(WITHIN_SECONDS + 20)
def test_long_commands_hold_others_up_for_at_most_twice_as_long_as_in_redis() -> None:
    # Given compiled modules and the real Redis
    if not build_kind().startswith("compiled"):
        pytest.skip("speed is what the compiled modules have")
    if peers.path("redis-8.2") is None and not peers.required():
        pytest.skip("redis-8.2 is missing (make peers)")

    # When long commands run on both while another client sends PING
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.stalls", "--short"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WITHIN_SECONDS,
        check=False,
    )

    # Then each stall is within its bound
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
