"""No client waits long while others create keys: a part of `make slice`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.machine import ROOT, build_kind

WITHIN_SECONDS = 180


@pytest.mark.slice
@pytest.mark.peer
@pytest.mark.timeout(WITHIN_SECONDS + 20)
def test_a_ping_waits_no_longer_than_on_redis_while_streams_are_created() -> None:
    # Given compiled modules
    if not build_kind().startswith("compiled"):
        pytest.skip("speed is what the compiled modules have")

    # When a client creates streams while another one pings, here and on Redis
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.pauses", "--streams", "50000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WITHIN_SECONDS,
        check=False,
    )

    # Then no PING waited for more than 50 ms, or than on Redis
    assert done.returncode == 0, done.stdout + done.stderr
