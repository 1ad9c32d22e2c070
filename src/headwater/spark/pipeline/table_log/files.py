"""The rows of a table's Parquet files as record batches with the table's columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headwater.spark.pipeline.table_log.logs import AddedFile

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 16_384
"""Rows of a record batch: as many as Spark's own Parquet reader has in a few of its batches."""


def rows_of(file: AddedFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``file`` with the columns of ``schema``.

    A column that an older batch did not have is null. Names are compared without case, as Spark does.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = {name.lower(): text for name, text in file.values.items()}
    # Spark writes times as INT96 by default, whose nanoseconds would not reach beyond the year 2262.
    with pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as parquet:
        there = {name.lower(): name for name in parquet.schema_arrow.names}
        wanted = [there[name.lower()] for name in schema.names if name.lower() in there]
        for batch in parquet.iter_batches(batch_size=_ROWS, columns=wanted):
            columns: list[pa.Array] = []
            for field in schema:
                name = field.name.lower()
                if name in values:
                    columns.append(_repeated(values[name], field.type, batch.num_rows))
                elif name in there:
                    columns.append(batch.column(there[name]).cast(field.type))
                else:
                    columns.append(pa.nulls(batch.num_rows, field.type))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


@lru_cache(64)
def _scalar(text: str, type_: pa.DataType) -> pa.Scalar:
    """Return the value of a partition, which is written as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(type_) and type_.tz is not None:
        value = pa.scalar(text.removesuffix("Z").removesuffix("+00:00")).cast(pa.timestamp("us"))
        return pc.assume_timezone(value, "UTC").cast(type_)
    return pa.scalar(text).cast(type_)


def _repeated(text: str | None, type_: pa.DataType, rows: int) -> pa.Array:
    import pyarrow as pa

    if text is None:
        return pa.nulls(rows, type_)
    return pa.repeat(_scalar(text, type_), rows)
