"""What is said about a worker is what the server said while nothing moved."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain, repeat

import pytest

from headwater.demo import faults
from headwater.demo.children import ChildFailed
from headwater.worker.running import unique_name
from tests.processes import stat


def test_a_consumers_name_tells_its_process() -> None:
    assert faults.pid_of(unique_name()) == os.getpid()


def test_a_stranger_is_no_worker() -> None:
    assert faults.alive(os.getpid())
    assert not faults.works(os.getpid())


def test_what_still_changes_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "BETWEEN_SECONDS", 0.0)
    answers = chain([1, 1, 2, 2, 2], repeat(3))
    assert faults.still(lambda: next(answers)) == 3


def test_what_never_comes_to_rest_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "BETWEEN_SECONDS", 0.0)
    monkeypatch.setattr(faults, "WITHIN_SECONDS", 0.01)
    with pytest.raises(ChildFailed, match="keeps changing"):
        faults.still(object)


def test_what_does_not_come_in_time_is_named() -> None:
    with pytest.raises(ChildFailed, match="the worker ends: not seen within 0 seconds"):
        faults.until(lambda: None, what="the worker ends", within=0)


def test_a_process_stands_still_inside_the_block_only() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    try:
        with pytest.raises(KeyboardInterrupt), faults.standing_still([process.pid]):
            faults.until(lambda: stat(process.pid)[:1] == ["T"], what="it stands still")
            raise KeyboardInterrupt
        faults.until(lambda: stat(process.pid)[:1] != ["T"], what="it goes on")
    finally:
        process.kill()
        process.communicate()
    assert not faults.alive(process.pid)
