"""Reads a pipeline's tables with Arrow, for the reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyarrow import dataset


def rows(path: Path, *columns: str) -> list[dict[str, Any]]:
    """Return the rows of the table at ``path``; none if it does not exist yet."""
    if not path.exists():
        return []
    found = dataset.dataset(path, format="parquet", partitioning="hive")
    if not found.files:
        return []
    made: list[dict[str, Any]] = found.to_table(columns=list(columns) or None).to_pylist()
    return made
