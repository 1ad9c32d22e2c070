"""Reads Spark's tables with Arrow, for the reconciliation and for the report's plots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headwater.demo.data import Key


class Tables(NamedTuple):
    """Contents of Spark's tables. ``hourly`` and ``carriers`` are the sums of flights in the tables so named."""

    flights: Counter[Key]
    hourly: int
    carriers: int


class Delays(NamedTuple):
    """Mean departure delays in minutes: by scheduled hour of the day, and by airline."""

    by_hour: Sequence[tuple[int, float]]
    by_airline: Sequence[tuple[str, float]]


def read_tables(directory: Path) -> Tables:
    """Return the keys in the table of flights, and the sums of flights in the two summaries."""
    import pyarrow as pa
    from pyarrow import dataset

    table = dataset.dataset(directory / "flights", format="parquet", partitioning="hive").to_table(
        columns=["carrier", "flight", "time_hour", "origin"]
    )
    seconds = table["time_hour"].cast(pa.timestamp("s", tz="UTC")).cast(pa.int64())
    columns = [table["carrier"], table["flight"], seconds, table["origin"]]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return Tables(
        Counter(Key(*row) for row in rows),
        _flights(directory, "hourly"),
        _flights(directory, "carriers"),
    )


def read_delays(directory: Path) -> Delays:
    """Return the mean departure delays, from the tables hourly and carriers."""
    by_hour: dict[int, tuple[float, int]] = {}
    hourly = _columns(directory, "hourly", "hour", "departed", "mean_dep_delay")
    for hour, departed, mean in hourly:
        if departed:
            minutes, flights = by_hour.get(hour, (0.0, 0))
            by_hour[hour] = (minutes + mean * departed, flights + departed)
    carriers = _columns(directory, "carriers", "name", "carrier", "mean_dep_delay")
    return Delays(
        [(hour, minutes / flights) for hour, (minutes, flights) in sorted(by_hour.items())],
        [(name or code, mean) for name, code, mean in carriers if mean is not None],
    )


def _columns(directory: Path, name: str, *columns: str) -> list[tuple[Any, ...]]:
    from pyarrow import dataset

    table = dataset.dataset(directory / name, format="parquet").to_table(columns=[*columns])
    return list(zip(*(table[column].to_pylist() for column in columns), strict=True))


def _flights(directory: Path, name: str) -> int:
    return sum(row[0] for row in _columns(directory, name, "flights"))
