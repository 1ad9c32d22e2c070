"""The benchmarks whose bounds no change may break, each beside the real Redis in the same run."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from benchmarks.machine import ROOT, build_kind
from tests import peers

SECONDS: Final = 240
"""How long a gate may take. Its test has some more, so that it can say what the gate printed."""

pytestmark = [pytest.mark.slice, pytest.mark.peer, pytest.mark.timeout(SECONDS + 20)]


def passed(module: str, *arguments: str) -> str:
    """Run a benchmark; what it printed, once it has held its bounds."""
    if not build_kind().startswith("compiled"):
        pytest.skip("speed is what the compiled modules have")
    if peers.path("redis-8.2") is None:
        pytest.skip(str(peers.PeerMissing("redis-8.2")))
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    return done.stdout


def test_hot_commands_cost_no_more_beside_redis_than_they_may() -> None:
    # make bench-gate
    passed("benchmarks.gate")


def test_long_commands_hold_others_up_for_at_most_twice_as_long_as_in_redis() -> None:
    # The short form of make bench-scale
    passed("benchmarks.stalls", "--short")


def test_a_large_dump_and_restore_hold_the_loop_no_longer_than_they_may() -> None:
    printed = passed("benchmarks.stalls_dump")
    assert printed.count("redis-8.2") == 2, printed


def test_a_ping_waits_no_longer_than_on_redis_while_streams_are_created() -> None:
    passed("benchmarks.pauses", "--streams", "50000")
