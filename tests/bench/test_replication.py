"""`make bench-replication`: tiny real measurements of Headwater with a replica."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.replication import copies, lag, pairs
from benchmarks.replication.__main__ import PARTS
from benchmarks.rows import OURS
from benchmarks.storage.sizes import Sizes
from benchmarks.stores import HEADWATER

TINY = Sizes(rounds=1, seconds=0.2, entries=20_000)


@pytest.fixture(autouse=True)
def headwater_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (pairs, copies):
        monkeypatch.setattr(module, "available", lambda: [HEADWATER])
    monkeypatch.setattr(copies, "LEAST_COVERED", 0.0)
    monkeypatch.setattr(lag, "LEAST_SHARE", 0.01)
    mine = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, mine)


@pytest.mark.slow
@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("part", PARTS)
def test_a_part_measures_each_of_its_rows(part: str, tmp_path: Path) -> None:
    rows = list(PARTS[part].measure(TINY, tmp_path))
    assert [row.name for row in rows] == list(PARTS[part].names)
    assert all(row.of(OURS).median > 0 for row in rows)
