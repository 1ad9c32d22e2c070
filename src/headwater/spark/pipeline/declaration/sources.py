"""The sections ``[source.NAME]``, ``[input.NAME]`` and ``[dead_letters]``: the data that a pipeline reads."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, get_args

from headwater.errors import DeclarationError
from headwater.messages.keys import dead_letter_stream
from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import OPTIONS, SourceOptions, parse_options
from headwater.spark.pipeline.declaration.model import Format, Input, Source, Table, Target
from headwater.spark.pipeline.declaration.problems import Problems, as_option

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DEAD_LETTERS: Final = "dead_letters"
"""The name of the section, and of the table that it makes, in SQL."""

_DEAD_SQL: Final = """
SELECT id, timestamp,
       fields['hw.stream'] AS stream, fields['hw.group'] AS `group`,
       fields['hw.id'] AS entry_id, fields['hw.consumer'] AS consumer,
       CAST(fields['hw.deliveries'] AS bigint) AS deliveries,
       fields['hw.error'] AS error, fields['hw.trace'] AS trace,
       CAST(fields['hw.at'] AS timestamp) AS at,
       map_filter(fields, (name, value) -> NOT startswith(name, 'hw.')) AS fields
FROM {source}
"""


def read_source(problems: Problems, name: str, values: dict[str, Any]) -> Source:
    """Read the declaration of a source: its options and its schema."""
    options: dict[str, str] = {}
    unset = False
    for key, value in values.items():
        place = f"source.{name}.{key}"
        if key == "schema":
            continue
        if key not in OPTIONS:
            problems.unknown(place, key, [*OPTIONS, "schema"])
            continue
        text = as_option(value)
        if key == "stream" and not _are_names(value):
            problems.add(
                place, f"{value!r} is not a name, a list of names, or a pattern like 'orders.*'"
            )
        elif text is None:
            problems.add(place, f"{value!r} is not a valid option value")
        else:
            before = len(problems.lines)
            options[key] = problems.expand(place, text)
            unset |= len(problems.lines) > before
    if "archive" in options:
        path = problems.path(f"source.{name}.archive", options["archive"])
        options["archive"] = str(path or problems.base)
    schema = problems.schema(f"source.{name}.schema", values.get("schema"))
    if not unset:  # otherwise a missing variable would be reported twice
        _check_source(problems, name, options, schema)
    return Source(name, options, schema)


def _are_names(value: object) -> bool:
    """Return whether the value of ``stream`` is a non-blank string, or a non-empty list of them."""
    listed = value if isinstance(value, list) else [value]
    return bool(listed) and all(isinstance(one, str) and one.strip() for one in listed)


def _check_source(
    problems: Problems, name: str, options: dict[str, str], schema: StructType | None
) -> None:
    try:
        parsed = parse_options(options)
    except DeclarationError as error:
        problems.add(f"source.{name}", str(error))
        return
    for key in ("endingId", "endingTimestamp", "pushdown", "inferSchema"):
        if key in options:
            problems.add(
                f"source.{name}.{key}",
                "is for spark.read; a pipeline follows its streams without end. Remove it.",
            )
    if schema is not None:
        from headwater.spark.decoding.columns import RowShape

        try:
            RowShape.of(schema, parsed)
        except DeclarationError as error:
            problems.add(f"source.{name}", str(error))


def read_input(problems: Problems, name: str, values: dict[str, Any]) -> Input:
    """Read a static table: files, or a table or query of a database."""
    place = f"input.{name}"
    schema = problems.schema(f"{place}.schema", values.get("schema"))
    if values.get("format") == "jdbc" or ("url" in values and "path" not in values):
        return Input(name, None, "jdbc", schema, _jdbc(problems, place, values))
    problems.keys(place, values, ("path", "format", "schema", "options"))
    path = problems.path(f"{place}.path", values.get("path"))
    if path is not None and not os.path.exists(path):  # noqa: PTH110 - False for a name that is too long
        problems.add(f"{place}.path", f"{path} does not exist")
    suffix = path.suffix.lstrip(".").lower() if path else "parquet"
    kind: Any = values.get("format", suffix)
    if kind not in get_args(Format):
        problems.add(
            f"{place}.format",
            f"{kind!r} is not one of {', '.join(get_args(Format))}, and the path does not say which",
        )
    options = {"header": "true"} if kind == "csv" else {}
    options |= problems.options(f"{place}.options", values.get("options"))
    return Input(name, path or problems.base, kind, schema, options)


def _jdbc(problems: Problems, place: str, values: dict[str, Any]) -> dict[str, str]:
    problems.keys(place, values, ("format", "url", "table", "query", "options", "schema"))
    if "schema" in values:
        problems.add(f"{place}.schema", "the database defines the columns; remove it")
    options = problems.options(f"{place}.options", values.get("options"))
    url = problems.text(f"{place}.url", values.get("url"), "a url like 'jdbc:postgresql://host/db'")
    options["url"] = problems.expand(f"{place}.url", url)
    if url and not options["url"].startswith("jdbc:"):
        problems.add(f"{place}.url", "expected a url that begins with jdbc:")
    given = [key for key in ("table", "query") if key in values]
    if len(given) != 1:
        problems.add(place, "needs exactly one of table and query")
        return options
    text = problems.text(f"{place}.{given[0]}", values[given[0]], "a string")
    options["dbtable" if given[0] == "table" else "query"] = text
    return options


def read_dead_letters(
    problems: Problems, values: dict[str, Any], sources: Mapping[str, Source]
) -> tuple[dict[str, Source], Table | None]:
    """Return the dead-letter streams of ``sources``, as new sources, and the table made from these streams."""
    problems.keys(DEAD_LETTERS, values, ("path", "streams"))
    path = problems.path(f"{DEAD_LETTERS}.path", values.get("path"))
    streams = list(
        problems.names(f"{DEAD_LETTERS}.streams", values.get("streams", []), "a list of streams")
    )
    by_url: dict[str, list[str]] = {}
    for source in sources.values():
        try:
            parsed = parse_options(source.options)
        except DeclarationError:
            continue  # already reported when the source was read
        try:
            by_url.setdefault(parsed.url, []).extend(streams or dead_streams(parsed))
        except DeclarationError as error:
            problems.add(f"source.{source.name}.streamsPattern", str(error))
    if not by_url:
        problems.add(DEAD_LETTERS, "the file declares no source that could have dead letters")
    made: dict[str, Source] = {}
    for url, names in by_url.items():
        for place in _places(names):
            name = f"{DEAD_LETTERS}_{len(made)}"
            made[name] = Source(
                name, {"url": url, "stream": place} | _DEAD_OPTIONS, _DEAD_SCHEMA, waits=True
            )
    sql = " UNION ALL ".join(_DEAD_SQL.format(source=name) for name in made)
    if path is None:
        return {}, None
    target = Target("parquet", path=path)
    return made, Table(DEAD_LETTERS, "append", sql, target, reads=tuple(made))


_DEAD_OPTIONS: Final = {
    # A record that is replayed or dropped leaves its stream, which is not data loss.
    "failOnDataLoss": "false",
    "ignoreDeletes": "true",
    "includeMetadata": "true",
}

_DEAD_SCHEMA: Final = parse_schema("id string, timestamp timestamp, fields map<string, string>")


def dead_streams(options: SourceOptions) -> list[str]:
    """Return the names of the dead-letter streams of a source's streams; for a glob pattern, a glob pattern.

    Raises `DeclarationError` for a regular expression.
    """
    if options.dead_letter_stream is not None:
        return [options.dead_letter_stream]
    if options.pattern is not None:
        if options.pattern.regular:
            raise DeclarationError(
                f"the dead-letter streams of the streams that {options.asked!r} matches are not known: name one "
                "with deadLetterStream, or name them in dead_letters.streams"
            )
        return [dead_letter_stream(options.pattern.glob)]
    return [dead_letter_stream(stream) for stream in options.streams]


def _places(names: list[str]) -> list[str]:
    """Return the option ``stream`` for each name, as a pattern.

    A dead-letter stream exists only after the first dead letter, but a stream that an option names must exist.

    >>> _places(["{orders}.dead", "late.*"])
    ['{orders}.dea[d]', 'late.*']
    """
    return [
        name if _is_pattern(name) else f"{_escaped(name[:-1])}[{name[-1]}]"
        for name in dict.fromkeys(names)
    ]


def _escaped(name: str) -> str:
    """Escape a name for a pattern. A pattern cannot contain a comma, so ``?`` stands for it."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", name).replace(",", "?")


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")
