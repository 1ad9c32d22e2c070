"""What may change in a pipeline's file between two runs, and what is refused."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from headwater.errors import PipelineError
from headwater.spark.pipeline import load
from headwater.spark.pipeline.checkpoints import Checkpoint
from headwater.spark.pipeline.stores import Stores

ONLY_COMPLETE = """
[input.items]
path = "items.csv"
[table.kinds]
mode = "complete"
sql = "SELECT DISTINCT category FROM items"
path = "tables/kinds"
"""


def test_sources_keep_their_number_and_order_and_may_change_their_names(tmp_path: Path) -> None:
    # Spark knows a query's sources by their place: exchanged, each would begin where the other stood.
    checkpoint = Checkpoint(tmp_path / "c")
    checkpoint.note_sources(["a", "b"])
    checkpoint.note_sources(["b", "a"])  # nothing was read yet
    checkpoint.note_sources(["a", "b"])
    (checkpoint.path / "offsets").mkdir()
    (checkpoint.path / "offsets" / "0").write_text("v1\n{}\n{}\n{}")

    for names in (["b", "a"], ["a"], ["a", "c", "b"], ["c", "a"]):
        with pytest.raises(PipelineError, match="is of a, b: they stay as they are, and in that"):
            checkpoint.note_sources(names)
    checkpoint.note_sources(["a", "new"])

    assert checkpoint.sources() == ["a", "new"]


def test_two_runs_at_once_make_no_complete_table_together(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("item,category\ntea,drinks\n")
    file = tmp_path / "kinds.toml"
    file.write_text(ONLY_COMPLETE)

    with ExitStack() as first:
        Stores(load(file)).prepare(first)
        with (
            ExitStack() as second,
            pytest.raises(PipelineError, match=r"kinds: .*being written by"),
        ):
            Stores(load(file)).prepare(second)
    with ExitStack() as third:
        Stores(load(file)).prepare(third)
