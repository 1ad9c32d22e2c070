"""Reads a file, section by section. Reading continues after a mistake, which is added to the problems."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headwater.errors import DeclarationError, PipelineError
from headwater.spark.core.options import parse_options
from headwater.spark.pipeline.declaration.archive import read_archive
from headwater.spark.pipeline.declaration.graph import ordered, shared
from headwater.spark.pipeline.declaration.model import Archive, Pipeline, Source, Table
from headwater.spark.pipeline.declaration.problems import (
    NAME,
    Problems,
    as_option,
    flattened,
    override,
)
from headwater.spark.pipeline.declaration.sources import (
    DEAD_LETTERS,
    read_dead_letters,
    read_input,
    read_source,
)
from headwater.spark.pipeline.declaration.tables import read_table
from headwater.spark.pipeline.sinks.registry import SINKS

_SECTIONS: Final = ("source", "input", "table", DEAD_LETTERS, "trigger", "spark", "archive")


def load(file: Path | str, *, overrides: Sequence[str] = ()) -> Pipeline:
    """Read the declaration of a pipeline from a TOML file.

        declared = pipeline.load("orders.toml", overrides=["source.orders.startingId=latest"])

    ``overrides`` are ``key=value`` strings that replace or add keys, as with ``headwater pipeline run --set``.
    Raises `PipelineError`, which names the file and each wrong key with its remedy. See
    docs/guide/pipeline.md.
    """
    path = Path(file)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PipelineError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PipelineError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise PipelineError(f"{path}: invalid TOML: {error}") from error
    for setting in overrides:
        override(document, setting)
    return read(path, document)


def read(file: Path, document: dict[str, Any]) -> Pipeline:
    """Return the pipeline that ``document`` declares. Raises `PipelineError` with all mistakes."""
    problems = Problems(file)
    for key in document:
        if key not in _SECTIONS:
            problems.unknown(key, key, _SECTIONS)
    sources = {n: read_source(problems, n, v) for n, v in _named(problems, document, "source")}
    inputs = {n: read_input(problems, n, v) for n, v in _named(problems, document, "input")}
    tables = {n: read_table(problems, n, v) for n, v in _named(problems, document, "table")}
    _check_names(problems, source=sources, input=inputs, table=tables)
    if not tables and "table" not in document:
        problems.add("table", "the file declares no table: [table.NAME] with mode, sql, path")
    archive = _archive(problems, document, sources)
    if DEAD_LETTERS in document:
        values = problems.table(DEAD_LETTERS, document[DEAD_LETTERS])
        dead, table = read_dead_letters(problems, values, sources)
        sources |= dead
        if table is not None and DEAD_LETTERS in {*tables, *inputs, *sources}:
            problems.add(DEAD_LETTERS, "is a reserved name in SQL; rename the other section")
        elif table is not None:
            tables[DEAD_LETTERS] = table
    _check_paths(problems, tables)
    interval = _trigger(problems, problems.table("trigger", document.get("trigger", {})))
    master, app, conf = _spark(problems, problems.table("spark", document.get("spark", {})))
    tables = _with_declared_names(tables, [*sources, *inputs, *tables])
    unreadable = {name for name, table in tables.items() if not SINKS[table.target.sink].readable}
    order = ordered(tables, sources, inputs, problems, unreadable=unreadable)
    logged = {name for name, table in tables.items() if table.has_log}
    for name, source in sources.items():
        _check_group(problems, name, source, shared(name, tables, logged))
        _check_loops(problems, name, source, [tables[reader] for reader in shared(name, tables)])
    problems.raise_any()
    return Pipeline(
        file=file,
        sources=sources,
        inputs=inputs,
        tables={name: tables[name] for name in order},
        interval=interval,
        master=master,
        app=app,
        conf=conf,
        archive=archive,
        secrets=frozenset(problems.secrets),
    )


def _check_group(problems: Problems, name: str, source: Source, readers: list[str]) -> None:
    """Check that only one query reads a source with a group, whose members share the entries."""
    if "group" in source.options and len(readers) > 1:
        problems.add(
            f"source.{name}.group",
            f"the tables {', '.join(readers)} each read this source with a separate query, but a group "
            "gives each entry to only one of them. Remove group, or let one table of sink parquet or delta "
            "read the source and the others read that table.",
        )


def _check_loops(problems: Problems, name: str, source: Source, readers: Sequence[Table]) -> None:
    """Check that no table is written to a stream from which it is made: it would read its own rows."""
    try:
        options = parse_options(source.options)
    except DeclarationError:
        return  # reported when the source was read
    for table in readers:
        stream = table.target.stream
        if stream is not None and table.target.url == options.url and options.includes(stream):
            problems.add(
                f"table.{table.name}.stream",
                f"{stream!r} is one of the streams of [source.{name}] ({options.asked}), from which this table is made: "
                "it would read its own rows endlessly. Name a stream that the source does not read.",
            )


def _archive(
    problems: Problems, document: dict[str, Any], sources: Mapping[str, Source]
) -> Archive | None:
    if "archive" not in document:
        return None
    values = problems.table("archive", document["archive"])
    return read_archive(problems, values, sources)


def _named(
    problems: Problems, document: dict[str, Any], section: str
) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for name, value in problems.table(section, document.get(section, {})).items():
        key = f"{section}.{name}"
        if not NAME.fullmatch(name):
            problems.add(key, "expected a name that SQL can use: letters, digits and underscores")
        else:
            found.append((name, problems.table(key, value)))
    return found


def _check_names(problems: Problems, **sections: Mapping[str, Any]) -> None:
    seen: dict[str, str] = {}
    for section, names in sections.items():
        for name in names:
            key = f"{section}.{name}"
            if name.lower() in seen:
                problems.add(
                    key, f"{seen[name.lower()]} has that name too; SQL could not distinguish them"
                )
            seen.setdefault(name.lower(), key)


def _check_paths(problems: Problems, tables: Mapping[str, Table]) -> None:
    """Check that no table is in another table's directory or quarantine, and that none share a checkpoint."""
    paths: dict[str, Path] = {}
    for name, table in tables.items():
        place = name if name == DEAD_LETTERS else f"table.{name}"
        if table.target.path is not None and table.target.path != problems.base:
            paths[f"{place}.path"] = table.target.path
        if table.quarantine is not None:
            paths[f"{place}.quarantine"] = table.quarantine
    checkpoints: dict[Path, str] = {}
    for name, table in tables.items():
        if table.target.checkpoint is not None:
            other = checkpoints.setdefault(table.target.checkpoint, name)
            if other != name:
                problems.add(
                    f"table.{name}.checkpoint",
                    f"is the checkpoint of table.{other}; each table needs its own",
                )
    for key, path in paths.items():
        for other, directory in paths.items():
            if other != key and path.is_relative_to(directory):
                problems.add(
                    key,
                    f"is in {other.removesuffix('.path').removesuffix('.quarantine')}'s directory; "
                    "each table needs its own",
                )


def _trigger(problems: Problems, values: dict[str, Any]) -> float | None:
    problems.keys("trigger", values, ("available-now", "interval"))
    interval = values.get("interval")
    if interval is None:
        if values.get("available-now", True) is not True:
            problems.add("trigger.available-now", "expected true, or interval = '10s'")
        return None
    if "available-now" in values:
        problems.add("trigger", "available-now and interval exclude each other")
    return problems.seconds("trigger.interval", interval)


def _spark(problems: Problems, values: dict[str, Any]) -> tuple[str | None, str, dict[str, str]]:
    problems.keys("spark", values, ("master", "app", "conf"))
    texts: dict[str, str] = {}
    for key in ("master", "app"):
        if key in values:
            text = problems.text(f"spark.{key}", values[key], "a string")
            texts[key] = problems.expand(f"spark.{key}", text, secret=False)
    conf: dict[str, str] = {}
    for key, value in flattened(problems.table("spark.conf", values.get("conf", {}))).items():
        place = f"spark.conf.{key}"
        if not key.startswith("spark."):
            problems.add(place, "names of Spark's settings begin with 'spark.'")
        conf[key] = problems.expand(place, as_option(value) or str(value))
    return texts.get("master"), texts.get("app", f"headwater {problems.file.stem}"), conf


def _with_declared_names(tables: dict[str, Table], names: Sequence[str]) -> dict[str, Table]:
    """Spell the names in ``reads`` as they are declared: SQL ignores case, but the graph does not."""
    declared = {name.lower(): name for name in names}
    return {
        name: table._replace(
            reads=tuple(dict.fromkeys(declared.get(read.lower(), read) for read in table.reads))
        )
        for name, table in tables.items()
    }
