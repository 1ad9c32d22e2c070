"""A pipeline's file, ``orders.toml``, read and checked in full before Spark starts.

    [source.orders]
    url = "${ORDERS_URL}"
    stream = "orders"
    schema = "order_id bigint, item string, price decimal(10, 2)"

    [input.items]
    path = "items.csv"

    [table.sales]
    mode = "append"
    sql = "SELECT o.*, i.category FROM orders o LEFT JOIN items i USING (item)"
    path = "tables/sales"
    partition_by = ["category"]

    [table.by_category]
    mode = "complete"
    sql = "SELECT category, sum(price) AS sum FROM sales GROUP BY category"
    path = "tables/by_category"

Rule 1. Every mistake is told at once, each with the key it stands at and what would be right.
Rule 2. ``${NAME}`` is taken from the environment, everywhere but in SQL: a url's password belongs
        in no file.
Rule 3. Paths are relative to the file, so a pipeline runs alike from any directory.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from headwater.errors import DeclarationError, PipelineError
from headwater.spark.options import OPTIONS, parse_options
from headwater.spark.pipeline.checks import NAME, Problems, as_option, flattened, override
from headwater.spark.pipeline.graph import ordered
from headwater.spark.pipeline.sql import tables_read

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Mode = Literal["append", "complete"]
Format = Literal["parquet", "csv"]

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Source(NamedTuple):
    """A stream, with the options of ``spark.readStream.format("headwater")``."""

    name: str
    options: dict[str, str]
    schema: StructType | None

    def __repr__(self) -> str:
        """Without the url, which may hold a password."""
        return f"Source({self.name!r}, stream={self.options.get('stream')!r})"


class Input(NamedTuple):
    """A static table in files; ``options`` are those of Spark's reader of that format."""

    name: str
    path: Path
    format: Format
    schema: StructType | None
    options: dict[str, str]


class Table(NamedTuple):
    """A table that the pipeline makes, kept in Parquet at ``path``; ``reads`` is in its SQL."""

    name: str
    mode: Mode
    sql: str
    path: Path
    partition_by: tuple[str, ...]
    reads: tuple[str, ...]


class Pipeline(NamedTuple):
    """A whole declaration. ``tables`` are in the order in which they can be made.

    ``interval`` is in seconds; None stands for the trigger available-now.
    """

    file: Path
    sources: dict[str, Source]
    inputs: dict[str, Input]
    tables: dict[str, Table]
    interval: float | None
    master: str | None
    app: str
    conf: dict[str, str]


def load(file: Path | str, *, overrides: Sequence[str] = ()) -> Pipeline:
    """The declaration in ``file``, with ``overrides`` (``key=value``) put over what it says.

    Raises `PipelineError` with the file, each key that is wrong, and what would be right.
    """
    path = Path(file)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PipelineError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PipelineError(f"{path}: is no UTF-8: {error.reason} at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise PipelineError(f"{path}: is no TOML: {error}") from error
    for setting in overrides:
        override(document, setting)
    return _Reader(path).read(document)


class _Reader:
    """Reads one document; what it cannot make sense of becomes a problem, and it reads on."""

    _SECTIONS: Final = ("source", "input", "table", "trigger", "spark")

    def __init__(self, file: Path) -> None:
        self._file = file
        self._base = file.resolve().parent
        self._problems = Problems(file)

    def read(self, document: dict[str, Any]) -> Pipeline:
        problems = self._problems
        for key in document:
            if key not in self._SECTIONS:
                problems.unknown(key, key, self._SECTIONS)
        sources = {n: self._source(n, v) for n, v in self._named(document, "source")}
        inputs = {n: self._input(n, v) for n, v in self._named(document, "input")}
        tables = {n: self._table(n, v) for n, v in self._named(document, "table")}
        self._check_names(sources, inputs, tables)
        self._check_paths(tables)
        if not tables and "table" not in document:
            problems.add("table", "the file declares no table: [table.NAME] with mode, sql, path")
        interval = self._trigger(problems.table("trigger", document.get("trigger", {})))
        master, app, conf = self._spark(problems.table("spark", document.get("spark", {})))
        tables = _with_declared_names(tables, [*sources, *inputs, *tables])
        order = ordered(tables, sources, inputs, problems)
        problems.raise_any()
        return Pipeline(
            file=self._file,
            sources=sources,
            inputs=inputs,
            tables={name: tables[name] for name in order},
            interval=interval,
            master=master,
            app=app,
            conf=conf,
        )

    def _named(self, document: dict[str, Any], section: str) -> list[tuple[str, dict[str, Any]]]:
        found: list[tuple[str, dict[str, Any]]] = []
        for name, value in self._problems.table(section, document.get(section, {})).items():
            key = f"{section}.{name}"
            if not NAME.fullmatch(name):
                self._problems.add(
                    key, "a name that SQL can use is expected: letters, digits and underscores"
                )
            else:
                found.append((name, self._problems.table(key, value)))
        return found

    def _check_names(self, *sections: dict[str, Any]) -> None:
        seen: dict[str, str] = {}
        for section, names in zip(self._SECTIONS, sections, strict=False):
            for name in names:
                key = f"{section}.{name}"
                if name.lower() in seen:
                    self._problems.add(
                        key,
                        f"{seen[name.lower()]} has that name too; SQL could not tell them apart",
                    )
                seen.setdefault(name.lower(), key)

    def _check_paths(self, tables: dict[str, Table]) -> None:
        for name, table in tables.items():
            for other in tables.values():
                if (
                    other.name != name
                    and table.path.is_relative_to(other.path)
                    and (table.path != self._base and other.path != self._base)
                ):
                    self._problems.add(
                        f"table.{name}.path",
                        f"lies in table.{other.name}'s directory; each table has its own",
                    )

    # --- sections ---------------------------------------------------------------------------------

    def _source(self, name: str, values: dict[str, Any]) -> Source:
        options: dict[str, str] = {}
        for key, value in values.items():
            place = f"source.{name}.{key}"
            if key == "schema":
                continue
            if key not in OPTIONS:
                self._problems.unknown(place, key, [*OPTIONS, "schema"])
                continue
            text = as_option(value)
            if text is None:
                self._problems.add(place, f"{value!r} cannot be an option's value")
            else:
                options[key] = self._problems.expand(place, text)
        schema = self._schema(f"source.{name}.schema", values.get("schema"))
        self._check_source(name, options, schema)
        return Source(name, options, schema)

    def _check_source(self, name: str, options: dict[str, str], schema: StructType | None) -> None:
        try:
            parsed = parse_options(options)
        except DeclarationError as error:
            self._problems.add(f"source.{name}", str(error))
            return
        if schema is not None:
            from headwater.spark.decoding.columns import Shape

            try:
                Shape.of(schema, parsed)
            except DeclarationError as error:
                self._problems.add(f"source.{name}", str(error))

    def _input(self, name: str, values: dict[str, Any]) -> Input:
        known = ("path", "format", "schema", "options")
        self._check_keys(f"input.{name}", values, known)
        path = self._path(f"input.{name}.path", values.get("path"))
        if path is not None and not path.exists():
            self._problems.add(f"input.{name}.path", f"there is no {path}")
        kind: Any = values.get("format") or (path.suffix.lstrip(".").lower() if path else "parquet")
        if kind not in get_args(Format):
            self._problems.add(
                f"input.{name}.format",
                f"{kind!r} is none of {', '.join(get_args(Format))}, and the path does not say which",
            )
        options = {"header": "true"} if kind == "csv" else {}
        for key, value in self._problems.table(
            f"input.{name}.options", values.get("options", {})
        ).items():
            text = as_option(value)
            if text is None:
                self._problems.add(
                    f"input.{name}.options.{key}", f"{value!r} cannot be an option's value"
                )
            else:
                options[key] = text
        schema = self._schema(f"input.{name}.schema", values.get("schema"))
        return Input(name, path or self._base, kind, schema, options)

    def _table(self, name: str, values: dict[str, Any]) -> Table:
        key = f"table.{name}"
        self._check_keys(key, values, ("mode", "sql", "path", "partition_by", "sink"))
        mode = self._one_of(f"{key}.mode", values.get("mode"), get_args(Mode))
        self._one_of(f"{key}.sink", values.get("sink", "parquet"), ("parquet",))
        sql = values.get("sql")
        if not isinstance(sql, str) or not sql.strip():
            self._problems.add(f"{key}.sql", "an SQL query is expected: SELECT … FROM …")
            sql = ""
        columns = self._problems.value(
            f"{key}.partition_by", values.get("partition_by", []), list[str], "a list of columns"
        )
        return Table(
            name=name,
            mode=mode or "append",
            sql=sql,
            path=self._path(f"{key}.path", values.get("path")) or self._base,
            partition_by=tuple(columns or ()),
            reads=tuple(tables_read(sql)),
        )

    def _trigger(self, values: dict[str, Any]) -> float | None:
        self._check_keys("trigger", values, ("available-now", "interval"))
        interval = values.get("interval")
        if interval is None:
            if values.get("available-now", True) is not True:
                self._problems.add("trigger.available-now", "true is expected, or interval = '10s'")
            return None
        if "available-now" in values:
            self._problems.add("trigger", "available-now and interval exclude each other")
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)", str(interval).strip())
        if found is None:
            self._problems.add(
                "trigger.interval", f"{interval!r} is no duration like '500ms', '10s', '5m'"
            )
            return None
        return float(found[1]) * _UNITS[found[2]]

    def _spark(self, values: dict[str, Any]) -> tuple[str | None, str, dict[str, str]]:
        self._check_keys("spark", values, ("master", "app", "conf"))
        texts: dict[str, str] = {}
        for key in ("master", "app"):
            if key in values:
                text = self._problems.value(f"spark.{key}", values[key], str, "a text")
                texts[key] = self._problems.expand(f"spark.{key}", text or "")
        conf: dict[str, str] = {}
        for key, value in flattened(
            self._problems.table("spark.conf", values.get("conf", {}))
        ).items():
            place = f"spark.conf.{key}"
            if not key.startswith("spark."):
                self._problems.add(place, "names of Spark's settings begin with 'spark.'")
            conf[key] = self._problems.expand(place, as_option(value) or str(value))
        return texts.get("master"), texts.get("app", f"headwater {self._file.stem}"), conf

    # --- values -----------------------------------------------------------------------------------

    def _check_keys(self, place: str, values: dict[str, Any], known: Sequence[str]) -> None:
        for key in values:
            if key not in known:
                self._problems.unknown(f"{place}.{key}", key, known)

    def _one_of(self, key: str, value: object, words: Sequence[str]) -> Any:
        if value in words:
            return value
        if value is None:
            self._problems.add(key, f"is missing; one of {', '.join(words)}")
        else:
            self._problems.add(key, f"{value!r} is none of {', '.join(words)}")
        return None

    def _path(self, key: str, value: object) -> Path | None:
        if not isinstance(value, str) or not value:
            self._problems.add(key, "is missing; a path, relative to this file")
            return None
        text = self._problems.expand(key, value)
        if "://" in text:
            self._problems.add(
                key, f"{text!r} is a url; a path on a file system of this machine is expected"
            )
            return None
        return self._base / Path(text).expanduser()

    def _schema(self, key: str, value: object) -> StructType | None:
        if value is None:
            return None
        if not isinstance(value, str):
            self._problems.add(key, "a text is expected, like 'order_id bigint, item string'")
            return None
        from headwater.spark.ddl import parse_schema

        try:
            return parse_schema(value)
        except ValueError as error:
            self._problems.add(key, str(error))
            return None


def _with_declared_names(tables: dict[str, Table], names: Sequence[str]) -> dict[str, Table]:
    """SQL knows no case; the graph has each name as it was declared."""
    declared = {name.lower(): name for name in names}
    return {
        name: table._replace(
            reads=tuple(dict.fromkeys(declared.get(read.lower(), read) for read in table.reads))
        )
        for name, table in tables.items()
    }
