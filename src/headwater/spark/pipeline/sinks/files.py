"""The Parquet files of a table, and their rows with the partition values, which the files do not contain."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 16_384
"""Maximum number of rows in a record batch: a few times as many as in a batch of Spark's own Parquet reader."""


class TableFile(NamedTuple):
    """A Parquet file with its partition values. ``rows`` is None if the number of rows is not recorded."""

    path: str
    values: dict[str, str | None]
    rows: int | None


def rows_of(file: TableFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``file`` with the columns of ``schema``.

    A column that an older batch did not have is null. Names are compared without case, as Spark does. Raises
    `PipelineError` for a column whose values are stored in more fields than its type has.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = {name.lower(): text for name, text in file.values.items()}
    # As nanoseconds, INT96 times could not exceed the year 2262.
    with pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as parquet:
        there = {field.name.lower(): field for field in parquet.schema_arrow}
        wanted = []
        for field in schema:
            found = there.get(field.name.lower())
            if found is not None:
                wanted.append(found.name)
                if _drops_fields(found.type, field.type):
                    raise PipelineError(
                        f"{file.path}: the variant column {field.name!r} is shredded, as earlier versions of Headwater "
                        "wrote it, and only Spark can read it. Rebuild the table, or read its sources instead"
                    )
        for batch in parquet.iter_batches(batch_size=_ROWS, columns=wanted):
            columns: list[pa.Array] = []
            for field in schema:
                name = field.name.lower()
                if name in values:
                    columns.append(_repeated(values[name], field.type, batch.num_rows))
                elif name in there:
                    columns.append(batch.column(there[name].name).cast(field.type))
                else:
                    columns.append(pa.nulls(batch.num_rows, field.type))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _drops_fields(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast from ``there`` to ``wanted`` drops a field of a struct, and so a part of the values."""
    import pyarrow as pa

    if pa.types.is_struct(there) and pa.types.is_struct(wanted):
        kept = {field.name: field.type for field in wanted}
        return any(
            field.name not in kept or _drops_fields(field.type, kept[field.name]) for field in there
        )
    if pa.types.is_map(there) and pa.types.is_map(wanted):
        return _drops_fields(there.key_type, wanted.key_type) or _drops_fields(
            there.item_type, wanted.item_type
        )
    if pa.types.is_list(there) and pa.types.is_list(wanted):
        return _drops_fields(there.value_type, wanted.value_type)
    return False


@lru_cache(64)
def _scalar(text: str, type_: pa.DataType) -> pa.Scalar:
    """Return the value of a partition, which ``text`` represents, in the type ``type_``."""
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
