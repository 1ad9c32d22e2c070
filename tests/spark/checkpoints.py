"""Checkpoints of queries, written without Spark."""

from __future__ import annotations

import json
from pathlib import Path


def give_checkpoint(path: Path, query: str = "q1") -> None:
    """Write what Spark writes before a query's first batch."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "metadata").write_text(json.dumps({"id": query}))
