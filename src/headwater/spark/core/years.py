"""0001-01-01 to 9999-12-31: the years that SQL, Python and Parquet's readers support."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

_US: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_DAYS: Final = (-719_162, 2_932_896)


def in_years(column: pa.Array) -> pa.Array:
    """Return a column of days, or of times in microseconds. Raises `ValueError` for a value outside of these years.

    >>> import datetime, pyarrow as pa
    >>> in_years(pa.array([datetime.date(9999, 12, 31), None])).null_count
    1
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    days = pa.types.is_date32(column.type)
    least, most = _DAYS if days else _US
    bounds = pc.min_max(column.cast(pa.int32() if days else pa.int64()))
    first, last = bounds["min"].as_py(), bounds["max"].as_py()
    if first is not None and (first < least or last > most):
        raise ValueError("not in the years 1 to 9999")
    return column
