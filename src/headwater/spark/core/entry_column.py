"""The column that holds an entry's fields exactly, so that the sink writes the same fields that the source reads.

A map of strings is not exact: it drops values that are not UTF-8, and all but one of the fields with one name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

ENTRY_COLUMN: Final = "entry"
ENTRY_TYPE: Final = "array<struct<name: binary, value: binary>>"


def is_entry(name: str, type_: DataType) -> bool:
    """Return whether a column holds whole entries, by its name and type.

    >>> from pyspark.sql.types import StringType
    >>> is_entry("entry", StringType())
    False
    """
    from pyspark.sql.types import ArrayType, BinaryType, StructType

    if name != ENTRY_COLUMN or not isinstance(type_, ArrayType):
        return False
    pair = type_.elementType
    return isinstance(pair, StructType) and [(f.name, f.dataType) for f in pair.fields] == [
        ("name", BinaryType()),
        ("value", BinaryType()),
    ]
