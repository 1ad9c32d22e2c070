"""The demo reports about a worker only what the server showed while nothing changed."""

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


def test_a_consumers_name_contains_its_process_id() -> None:
    assert faults.pid_of(unique_name()) == os.getpid()


def test_a_process_without_a_consumer_is_not_a_worker() -> None:
    assert faults.alive(os.getpid())
    assert not faults.is_worker(os.getpid())


def test_a_changing_value_is_read_until_it_is_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "BETWEEN_SECONDS", 0.0)
    answers = chain([1, 1, 2, 2, 2], repeat(3))
    assert faults.stable(lambda: next(answers)) == 3


def test_a_value_that_keeps_changing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "BETWEEN_SECONDS", 0.0)
    monkeypatch.setattr(faults, "WITHIN_SECONDS", 0.01)
    with pytest.raises(ChildFailed, match="keep changing"):
        faults.stable(object)


def test_a_timeout_names_the_awaited_event() -> None:
    with pytest.raises(ChildFailed, match="the worker ends: this did not happen within 0 seconds"):
        faults.until(lambda: None, what="the worker ends", within=0)


def test_a_process_is_paused_only_inside_the_block() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    try:
        with pytest.raises(KeyboardInterrupt), faults.paused([process.pid]):
            faults.until(lambda: stat(process.pid)[:1] == ["T"], what="it stands still")
            raise KeyboardInterrupt
        faults.until(lambda: stat(process.pid)[:1] != ["T"], what="it goes on")
    finally:
        process.kill()
        process.communicate()
    assert not faults.alive(process.pid)
