"""The layout of a table's files: the schema of all its batches, and the directories of partitions.

Rule. A time in the name of a directory is in UTC, regardless of the session's zone: other readers, and other
      sessions, must find the same moments.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headwater.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

_IN_UTC: Final = {"timeZone": "UTC"}
"""Spark's option for the zone of times in directory names. Spark's default is the session's zone."""


def write_files(frame: DataFrame, partition_by: tuple[str, ...], place: Path) -> None:
    """Write ``frame`` with Spark as Parquet files to the directory ``place``."""
    writer = frame.write.mode("overwrite").options(**_IN_UTC)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.parquet(str(place))


def read_files(
    spark: SparkSession, schema: StructType, files: list[str], base: Path | None = None
) -> DataFrame:
    """Return the rows of files that `write_files` wrote, with the columns of ``schema`` in its order.

    ``base`` is the table's directory; None if ``files`` names it or the table is not partitioned. Without a
    schema, Spark would read the string '01234' in a directory's name as the number 1234.
    """
    reader = spark.read.schema(schema).options(**_IN_UTC)
    if base is not None:
        reader = reader.option("basePath", str(base))
    return reader.parquet(*files).select(*(f"`{column}`" for column in schema.names))


_UTC: Final = re.compile(
    r"(Etc/)?(UTC|UCT|GMT|Zulu|Universal|Greenwich|GMT0)|Z|(UTC|GMT|UT)?[+-]0?0(:?00)?"
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?")


def is_utc(zone: str) -> bool:
    """Return whether Spark's name of a zone means UTC."""
    return _UTC.fullmatch(zone) is not None


def zone_of(name: str) -> tzinfo:
    """Return the zone ``name``, like ``Asia/Kolkata`` or ``+05:30``. Raises `PipelineError` if it is unknown."""
    found = _OFFSET.fullmatch(name)
    if found is not None:
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo("UTC" if is_utc(name) else name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise PipelineError(
            f"{name!r} is not a time zone that this machine knows; name one like 'Asia/Kolkata' or '+05:30'"
        ) from None


def moved_to_utc(text: str, zone: tzinfo) -> tuple[str, bool]:
    """Return a local time of ``zone`` in UTC, in Spark's form, and whether it occurred twice in ``zone``.

    >>> moved_to_utc("2026-10-25 02:30:00.5", zone_of("Europe/Berlin"))
    ('2026-10-25 00:30:00.5', True)
    """
    try:
        first = datetime.fromisoformat(text).replace(tzinfo=zone)
        moment = first.astimezone(UTC)
    except (ValueError, OverflowError):
        raise PipelineError(
            f"the partition value {text!r} is not a time of the years 1 to 9999"
        ) from None
    form = moment.replace(tzinfo=None).isoformat(" ")
    return form.rstrip("0") if "." in form else form, first.utcoffset() != first.replace(
        fold=1
    ).utcoffset()


def wrong_column(
    schema: StructType, *, sink: str, key: tuple[str, ...], partition_by: tuple[str, ...]
) -> tuple[str, str] | None:
    """Return the declaration's key and the fault of a column; None if the sink can write all columns.

    Spark, Arrow and delta-rs would also refuse such a column, but only during the first batch.
    """
    from pyspark.sql import types

    nested = (types.StructType, types.ArrayType, types.MapType, types.VariantType)
    kinds = {field.name: field.dataType for field in schema.fields}
    for name in key:
        kind = kinds[name]
        if isinstance(kind, types.StructType):
            part = f"{name}.{kind.names[0]}" if kind.names else f"to_json({name})"
            return "key", (
                f"rows cannot be compared by {name!r}, which is {_kind(kind)}: take a part of it as the key, like SELECT "
                f"{part} AS {part.rpartition('.')[2] if kind.names else name}, or to_json({name}) AS {name}"
            )
        if isinstance(kind, (*nested, types.NullType)):
            return "key", (
                f"rows cannot be compared by {name!r}, which is {_kind(kind)}: make it a string, like SELECT "
                f"to_json({name}) AS {name}, or name another column"
            )
    if sink not in ("parquet", "delta"):
        return None
    for name in partition_by:
        if isinstance(kinds[name], (*nested, types.NullType)):
            return "partition_by", (
                f"a directory cannot be named after {name!r}, which is {_kind(kinds[name])}: name a column of a simple type"
            )
    if partition_by and len(partition_by) == len(kinds):
        return "partition_by", "names all columns, so the files would have none: leave one out"
    seen = set[str]()
    for field in schema.fields:
        if "`" in field.name:
            return "sql", (
                f"the column {field.name!r} has a backtick in its name, which {sink} tables cannot have: "
                "rename it with AS"
            )
        if field.name.lower() in seen:
            return "sql", f"two columns are named {field.name!r}: rename one with AS"
        seen.add(field.name.lower())
        unwritten = isinstance(field.dataType, _no_types(sink))
        if unwritten:
            return "sql", (
                f"the column {field.name!r} is {_kind(field.dataType)}, which {sink} tables cannot "
                f"have: CAST({field.name} AS string)"
            )
    return None


def _kind(kind: DataType) -> str:
    """Return the name of a type, with its article."""
    name = kind.simpleString()
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _no_types(sink: str) -> tuple[type, ...]:
    """Return the types of columns that a sink with a path cannot write or cannot read back."""
    from pyspark.sql import types

    intervals = (types.YearMonthIntervalType, types.CalendarIntervalType)
    return (*intervals, types.TimeType, *([types.DayTimeIntervalType] if sink == "delta" else []))


def check_directory(path: Path) -> None:
    """Raise `PipelineError` if ``path`` or one of its parents exists and is not a directory."""
    for place in (path, *path.parents):
        if os.path.lexists(place):
            if not place.is_dir():
                what = "a broken link" if place.is_symlink() else "a file"
                raise PipelineError(
                    f"{path}: {place} is {what}, but a directory is needed; name another path"
                )
            return


def has_files(directory: Path) -> bool:
    """Return whether ``directory`` has an entry that readers of tables do not skip."""
    return any(not entry.name.startswith((".", "_")) for entry in directory.iterdir())


class SinkWithoutPath:
    """A sink that does not store its rows in a directory. Only its checkpoint is a directory."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint

    def check(self) -> None:
        """Raise `PipelineError` if the checkpoint cannot be a directory."""
        check_directory(self.checkpoint)

    def prepare(self) -> None:
        """Create the checkpoint's parent directory. Raises as `check` does."""
        self.check()
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)

    def rows(self) -> None:
        """Return None: the rows cannot be counted."""


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
    """Return the partition values, by column, from the directory that Spark named after them."""
    pairs = (part.partition("=") for part in place.parts)
    return {
        unquote(name): None if value == _NULL else unquote(value) for name, _equals, value in pairs
    }
