"""Spark's garbage collection after every task skips the modules that a process has loaded."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from headwater.spark.decoding import gc_freeze

IN_A_TASK = """
import gc
from pyspark import TaskContext
from headwater.spark.decoding.gc_freeze import freeze_loaded_objects

TaskContext._getOrCreate()
counts = []
for _ in range(4):
    freeze_loaded_objects()
    counts.append(gc.get_freeze_count())
print(counts)
"""


def test_loaded_objects_are_frozen_once_at_a_process_s_second_task() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IN_A_TASK],
        capture_output=True,
        text=True,
        check=True,
    )
    first, *later = (int(count) for count in done.stdout.strip("[]\n ").split(","))

    assert first == 0
    assert len(later) == 3
    assert later[0] > 10_000
    assert later.count(later[0]) == 3


def test_a_process_without_tasks_keeps_its_garbage_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))

    for _ in range(3):
        gc_freeze.freeze_loaded_objects()

    assert not frozen
