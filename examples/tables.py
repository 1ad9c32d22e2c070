"""What the reports read: tables that a pipeline made, by Arrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyarrow import dataset


def rows(path: Path, *columns: str) -> list[dict[str, Any]]:
    """The rows of the table at ``path``; none where it has not been made yet."""
    if not path.exists():
        return []
    found = dataset.dataset(path, format="parquet", partitioning="hive")
    if not found.files:
        return []
    made: list[dict[str, Any]] = found.to_table(columns=list(columns) or None).to_pylist()
    return made
