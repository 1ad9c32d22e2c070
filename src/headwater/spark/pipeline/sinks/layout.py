"""How Spark lays out a table: the schema of all its batches, and the directories of partitions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def nullable_schema(schema: StructType) -> dict[str, Any]:
    """Return Spark's JSON schema, which Delta uses too, with all columns nullable.

    Spark may consider a column nullable in one batch and not in another.
    """

    def nullable(part: Any) -> Any:
        if isinstance(part, dict):
            made = {name: nullable(value) for name, value in part.items() if name != "metadata"}
            for name in ("nullable", "containsNull", "valueContainsNull"):
                if name in made:
                    made[name] = True
            return made | ({"metadata": {}} if "nullable" in made else {})
        return [nullable(one) for one in part] if isinstance(part, list) else part

    made: dict[str, Any] = nullable(schema.jsonValue())
    return made


def partition_values(place: Path) -> dict[str, str | None]:
    """Return the values of partitions from the directory that Spark named after them."""
    pairs = (part.partition("=") for part in place.parts)
    return {
        unquote(name): None if value == _NULL else unquote(value) for name, _equals, value in pairs
    }
