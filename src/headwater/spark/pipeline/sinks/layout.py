"""The layout of a table's files: the schema of all its batches, and the directories of partitions.

Rule 1. A time in the name of a directory is in UTC, regardless of the session's zone: other readers, and other
        sessions, must find the same moments.
Rule 2. A value that a file or the name of a directory cannot represent exactly is refused before the batch is
        written, because readers would get another value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headwater.errors import PipelineError
from headwater.spark.core.causes import root_cause

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

_IN_UTC: Final = {"timeZone": "UTC"}
"""Spark's option for the zone of times in directory names. Spark's default is the session's zone."""


_GLOB: Final = re.compile(r"[*?\[\]{}\\]")
"""The characters for which Spark takes a path for a pattern."""

_UNSHREDDED: Final = {"spark.sql.variant.writeShredding.enabled": "false"}
"""Spark's setting for variants in one piece. Only Spark reads the pieces, and Delta has another feature for them."""

_MICROS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Spark's setting for the type of times. Its default, INT96, overflows in pyarrow and pandas before the year 1678
and after 2261, and Delta does not have it."""

_LONGEST_NAME: Final = 255
"""Maximum length of a file's name in bytes, on all usual file systems."""

_ESCAPED: Final = "".join(map(chr, range(1, 32))) + "\"#%'*/:=?\\\x7f{[]^"
"""The characters for each of which Spark writes three, like %2F, in the names of directories."""

_REFUSAL: Final = re.compile(
    r".*?(the partition column .*?)\.?( SQLSTATE: .*)?( \(Task failed .*)?"
)


def write_files(
    frame: DataFrame, partition_by: tuple[str, ...], place: Path, *, micros: bool = True
) -> None:
    """Write ``frame`` with Spark as Parquet files to the directory ``place``.

    If ``micros`` is false, times have the type INT96, as in tables of earlier versions. Raises `PipelineError` for a
    partition value that the name of a directory cannot represent.
    """
    schema = frame.schema
    for name in partition_by:
        frame = frame.withColumn(name, _checked(schema[name]))
    writer = frame.write.mode("overwrite").options(**_IN_UTC)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    try:
        with _settings(frame.sparkSession, _UNSHREDDED | (_MICROS if micros else {})):
            writer.parquet(str(place))
    except Exception as error:
        refused = _REFUSAL.fullmatch(root_cause(error))
        if refused is None:
            raise
        raise PipelineError(refused[1]) from None


@contextmanager
def _settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set Spark's settings during the block."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _checked(field: StructField) -> Column:
    """Return the column, which raises an error in Spark for a value that the name of a directory cannot represent."""
    from pyspark.sql import functions as F  # noqa: N812 - the name in Spark's documentation

    column = F.col(f"`{field.name}`")
    found = column
    for wrong, what in _unnameable(column, field):
        said = f"the partition column {field.name!r} has {what}"
        found = F.when(wrong, F.raise_error(F.lit(said))).otherwise(found)
    return found


def _unnameable(column: Column, field: StructField) -> Iterator[tuple[Column, str]]:
    """Yield conditions for values that the name of a directory cannot represent, each with a description and a remedy."""
    from pyspark.sql import functions as F  # noqa: N812 - the name in Spark's documentation
    from pyspark.sql import types

    if isinstance(field.dataType, (types.DateType, types.TimestampType, types.TimestampNTZType)):
        kind = field.dataType.typeName()
        zone = "Z" if isinstance(field.dataType, types.TimestampType) else ""
        first, last = ("0001-01-01", "+10000-01-01")
        if not isinstance(field.dataType, types.DateType):
            first, last = (f"{day} 00:00:00{zone}" for day in (first, last))
        outside = (column < F.expr(f"{kind}'{first}'")) | (column >= F.expr(f"{kind}'{last}'"))
        yield (
            outside,
            "a value outside of the years 1 to 9999, which readers cannot parse: omit such rows",
        )
    if not isinstance(field.dataType, types.StringType):
        return
    null = "which would become NULL in the name of a directory"
    yield column == "", f"an empty text, {null}: write NULL (nullif) or another text"
    yield column == _NULL, f"the text {_NULL}, {null}: write another text"
    yield ~F.is_valid_utf8(column), "a text that is not UTF-8: write it in another form (hex)"
    yield F.contains(column, F.lit("\0")), "a text with the character NUL: remove it (replace)"
    escapes = F.length(column) - F.length(F.translate(column, _ESCAPED, ""))
    room = _LONGEST_NAME - len(f"{field.name}=".encode())
    size = F.octet_length(column)
    # Almost all texts are so short that the escapes need not be counted.
    yield (
        (size * 3 > room) & (size + escapes * 2 > room),
        f"a text that is too long for the name of a directory ({_LONGEST_NAME} bytes): shorten it (left)",
    )


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
    return reader.parquet(*map(literal, files)).select(*(f"`{column}`" for column in schema.names))


def literal(path: str) -> str:
    """Return Spark's pattern that matches only ``path``.

    >>> literal("tables/a[1]")
    'tables/a\\\\[1\\\\]'
    """
    return _GLOB.sub(r"\\\g<0>", path)


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
    # Delta has its own form for binary values, which Spark does not write, and Arrow does not parse intervals.
    unnamed = (*nested, types.NullType, types.BinaryType, types.DayTimeIntervalType)
    for name in partition_by:
        if isinstance(kinds[name], unnamed):
            return "partition_by", (
                f"a directory cannot be named after {name!r}, which is {_kind(kinds[name])}: name a column of a simple type"
            )
        if key and isinstance(kinds[name], types.DecimalType):
            return "partition_by", (
                f"delta-rs, which merges rows, writes the negative values of {name!r}, which is {_kind(kinds[name])}, in a "
                f"form that no reader can parse: CAST({name} AS string)"
            )
    if partition_by and len(partition_by) == len(kinds):
        return "partition_by", "names all columns, so the files would have none: leave one out"
    fault = _wrong_part(schema, sink, "")
    return None if fault is None else ("sql", fault)


def _wrong_part(kind: DataType, sink: str, place: str) -> str | None:
    """Return the fault of a column, or of a part of one, that files cannot have. ``place`` is the dotted name of ``kind``."""
    from pyspark.sql import types

    if isinstance(kind, _no_types(sink)):
        column = place.partition(".")[0]
        return (
            f"the column {place!r} is {_kind(kind)}, which {sink} tables cannot have: "
            f"CAST({column} AS string)"
        )
    parts: list[tuple[str, DataType]] = []
    if isinstance(kind, types.ArrayType):
        parts = [("element", kind.elementType)]
    elif isinstance(kind, types.MapType):
        parts = [("key", kind.keyType), ("value", kind.valueType)]
    elif isinstance(kind, types.StructType):
        parts = [(field.name, field.dataType) for field in kind.fields]
    seen = set[str]()
    for name, type_ in parts:
        inner = f"{place}.{name}" if place else name
        if "\0" in name or ("`" in name and not place):
            what = "the character NUL" if "\0" in name else "a backtick"
            return f"the column {inner!r} has {what} in its name, which {sink} tables cannot have: rename it with AS"
        if name.lower() in seen:
            return f"two columns are named {inner!r}: rename one with AS"
        seen.add(name.lower())
        fault = _wrong_part(type_, sink, inner)
        if fault is not None:
            return fault
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


def check_partition_names(path: Path, partition_by: tuple[str, ...]) -> None:
    """Raise `PipelineError` if readers that list the directory ``path`` would skip the directories of partitions."""
    for name in partition_by:
        if name.startswith((".", "_")):
            raise PipelineError(
                f"{path}: the partition column {name!r} begins with {name[0]!r}, and readers of Parquet skip such "
                "directories: rename the column with AS"
            )


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
