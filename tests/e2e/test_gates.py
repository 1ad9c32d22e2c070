"""The benchmarks with bounds that every change must keep, each compared with the real Redis in the same run."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from benchmarks.machine import ROOT, build_kind
from tests import peers

SECONDS: Final = 240
"""How long a gate may take. Its test may take longer, so that it can report the gate's output."""

pytestmark = [pytest.mark.slice, pytest.mark.peer, pytest.mark.timeout(SECONDS + 20)]


def passed(module: str, *arguments: str) -> str:
    """Run a benchmark, check that it passes, and return its output."""
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


def test_hot_commands_are_within_their_bounds() -> None:
    # make bench-gate
    passed("benchmarks.gate")


def test_long_commands_stall_other_clients_at_most_twice_as_long_as_in_redis() -> None:
    # The short form of make bench-scale
    passed("benchmarks.stalls", "--short")


def test_a_large_dump_and_restore_are_within_their_bounds() -> None:
    printed = passed("benchmarks.stalls_dump")
    assert printed.count("redis-8.2") == 2, printed


def test_a_ping_while_streams_are_created_is_within_its_bound() -> None:
    passed("benchmarks.pauses", "--streams", "50000")
