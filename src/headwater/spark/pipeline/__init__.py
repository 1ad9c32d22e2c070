"""Pipelines: streams to tables by a declaration (declaration.py), run by Spark (runner.py).

from headwater.spark import pipeline

made = pipeline.run(pipeline.load("orders.toml"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.spark.pipeline.declaration import Pipeline, load

if TYPE_CHECKING:
    from headwater.spark.pipeline.runner import Made as Made
    from headwater.spark.pipeline.runner import run as run

__all__ = ["Made", "Pipeline", "load", "run"]


def __getattr__(name: str) -> object:
    if name not in {"Made", "run"}:
        raise AttributeError(f"module 'headwater.spark.pipeline' has no attribute {name!r}")
    from headwater.spark.pipeline import runner

    return getattr(runner, name)
