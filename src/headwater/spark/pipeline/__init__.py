"""Pipelines: streams to tables, declared in a file (declaration/) and run by Spark (runner.py).

from headwater.spark import pipeline

declared = pipeline.load("orders.toml")
made = pipeline.run(declared)

    declaration     reads a file; the contents of a declaration
    sinks           store tables, one module per kind
    table_log       reads a table as a stream of its commits
    checkpoints     reads a query's positions without Spark
    table_sinks     sinks, quarantines and locks of the tables
    expectations    conditions on rows
    views           names and SQL as Spark's frames
    preflight       checks the servers before Spark starts
    spark_session   the session of a run
    runner          runs the streaming queries; recompute makes tables of mode complete
    archiving       archives the sources after a run
    plan, status, backfill, dead_letters    the other commands
    progress, lag, metrics                  the progress of a run
    quality                                 the history of a table's expectations
    errors          turns Spark's errors into one sentence
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from headwater.spark.pipeline.declaration.model import Pipeline

if TYPE_CHECKING:
    from headwater.spark.pipeline.backfill import Filled as Filled
    from headwater.spark.pipeline.declaration.loading import load as load
    from headwater.spark.pipeline.progress import Progress as Progress
    from headwater.spark.pipeline.runner import Made as Made
    from headwater.spark.pipeline.runner import run as run

_LAZY: Final = {
    "Filled": "backfill",
    "Made": "runner",
    "Progress": "progress",
    "load": "declaration.loading",
    "run": "runner",
}

__all__ = ["Filled", "Made", "Pipeline", "Progress", "load", "run"]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'headwater.spark.pipeline' has no attribute {name!r}")
    return getattr(import_module(f"headwater.spark.pipeline.{_LAZY[name]}"), name)
