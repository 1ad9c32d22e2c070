"""The section ``[table.NAME]``: a table that a pipeline makes, its sink and its expectations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, get_args

from headwater.errors import DeclarationError
from headwater.spark.core import option_values
from headwater.spark.pipeline.declaration.model import Action, Expectation, Table, Target, Watermark
from headwater.spark.pipeline.declaration.problems import NAME, Problems
from headwater.spark.pipeline.declaration.sql import tables_read
from headwater.spark.pipeline.sinks.registry import SINKS, Mode, SinkKind

_OWN_KEYS: Final = ("mode", "sql", "sink", "watermark", "expect", "quarantine")
_SINK_KEYS: Final = ("path", "url", "stream", "partition_by", "key", "checkpoint", "options")
_DELAY: Final = re.compile(r"\d+\s*(ms|s|m|h|d)")


def read_table(problems: Problems, name: str, values: dict[str, Any]) -> Table:
    """Read a table: its SQL, its mode, its sink and its expectations."""
    key = f"table.{name}"
    mode: Any = problems.one_of(f"{key}.mode", values.get("mode"), get_args(Mode)) or "append"
    sink = problems.one_of(f"{key}.sink", values.get("sink", "parquet"), tuple(SINKS)) or "parquet"
    kind = SINKS[sink]
    known = [*_OWN_KEYS, *(k for k in _SINK_KEYS if k in (*kind.required, *kind.optional))]
    for word in values:
        if word in _SINK_KEYS and word not in known:
            others = [one for one, k in SINKS.items() if word in (*k.required, *k.optional)]
            problems.add(
                f"{key}.{word}", f"is not a key of the sink {sink}, but of {', '.join(others)}"
            )
        elif word not in known:
            problems.unknown(f"{key}.{word}", word, known)
    _check_mode(problems, key, mode, sink, values)
    sql = values.get("sql")
    if not isinstance(sql, str) or not sql.strip():
        problems.add(f"{key}.sql", "expected an SQL query: SELECT … FROM …")
        sql = ""
    target = _target(problems, key, name, values, sink=sink, kind=kind)
    expectations = _expectations(problems, key, values.get("expect", []))
    return Table(
        name=name,
        mode=mode,
        sql=sql,
        target=target,
        partition_by=_columns(problems, f"{key}.partition_by", values.get("partition_by", [])),
        reads=tuple(tables_read(sql)),
        watermarks=_watermarks(problems, key, mode, values.get("watermark", [])),
        expectations=expectations,
        quarantine=_quarantine(problems, key, name, values, target.path, expectations),
    )


def _check_mode(
    problems: Problems, key: str, mode: Mode, sink: str, values: dict[str, Any]
) -> None:
    if mode not in SINKS[sink].modes:
        able = [one for one, kind in SINKS.items() if mode in kind.modes]
        problems.add(
            f"{key}.mode",
            f"{mode!r} is not one of {', '.join(SINKS[sink].modes)}, the modes of the sink {sink}; "
            f"sinks that support it: {', '.join(able)}",
        )
    elif mode == "update" and not values.get("key"):
        problems.add(f"{key}.key", "is missing; expected the columns that identify a row")
    elif mode != "update" and "key" in values:
        problems.add(f"{key}.key", f"is for mode update; mode {mode} does not use it. Remove it.")
    if mode == "complete" and "checkpoint" in values:
        problems.add(f"{key}.checkpoint", "mode complete has no checkpoint; remove it")


def _target(
    problems: Problems, key: str, name: str, values: dict[str, Any], *, sink: str, kind: SinkKind
) -> Target:
    def path(word: str) -> Path | None:
        return problems.path(f"{key}.{word}", values.get(word))

    url = stream = None
    if "url" in kind.required:
        text = problems.text(f"{key}.url", values.get("url"), "a url like 'redis://localhost:6379'")
        try:
            url = option_values.url("url", problems.expand(f"{key}.url", text)) if text else None
        except DeclarationError as error:
            problems.add(key, str(error))
    if "stream" in kind.required:
        stream = problems.text(f"{key}.stream", values.get("stream"), "a stream's name")
        stream = problems.expand(f"{key}.stream", stream)
    checkpoint = path("checkpoint") if "checkpoint" in values else None
    if checkpoint is None and "checkpoint" in kind.required:
        checkpoint = problems.base / "checkpoints" / name
    return Target(
        sink=sink,
        path=path("path") or problems.base if "path" in kind.required else None,
        url=url,
        stream=stream,
        key=_columns(problems, f"{key}.key", values.get("key", [])),
        checkpoint=checkpoint,
        options=problems.options(f"{key}.options", values.get("options")),
    )


def _columns(problems: Problems, key: str, value: object) -> tuple[str, ...]:
    return problems.names(key, value, "a list of columns")


def _watermarks(problems: Problems, key: str, mode: Mode, value: object) -> tuple[Watermark, ...]:
    """Read one watermark, or a list of watermarks."""
    listed = value if isinstance(value, list) else [value]
    if listed and mode == "complete":
        problems.add(f"{key}.watermark", "is for streams, but mode complete reads none; remove it")
    made = []
    for one in listed:
        place = f"{key}.watermark"
        values = problems.table(place, one)
        problems.keys(place, values, ("column", "delay", "of"))
        delay = values.get("delay")
        if not isinstance(delay, str) or not _DELAY.fullmatch(delay.strip()):
            problems.add(f"{place}.delay", f"{delay!r} is not a duration like '30s', '10m', '2h'")
            delay = "0s"
        of = values.get("of")
        if of is not None:
            of = problems.text(f"{place}.of", of, "the name of a source or table")
        made.append(
            Watermark(
                column=problems.text(f"{place}.column", values.get("column"), "a timestamp column"),
                delay=_interval(delay),
                of=of,
            )
        )
    return tuple(made)


def _interval(delay: str) -> str:
    """Return a duration in the form of Spark's intervals, in which ``10m`` is ambiguous."""
    units = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    found = re.fullmatch(r"(\d+)\s*(\w+)", delay.strip())
    assert found is not None, delay
    return f"{found[1]} {units[found[2]]}"


def _expectations(problems: Problems, key: str, value: object) -> tuple[Expectation, ...]:
    if not isinstance(value, list):
        problems.add(
            f"{key}.expect", f"expected a list of tables ([[{key}.expect]]), got {value!r}"
        )
        return ()
    made: dict[str, Expectation] = {}
    for number, one in enumerate(value):
        values = problems.table(f"{key}.expect", one)
        name = values.get("name")
        place = f"{key}.expect.{name if isinstance(name, str) else number}"
        problems.keys(place, values, ("name", "predicate", "action"))
        if not isinstance(name, str) or not NAME.fullmatch(name):
            problems.add(f"{place}.name", "expected letters, digits and underscores")
            continue
        if name in made:
            problems.add(
                f"{place}.name", "another expectation of the table has the same name; rename one"
            )
        predicate = problems.text(
            f"{place}.predicate", values.get("predicate"), "SQL that is true for a valid row"
        )
        action: Any = problems.one_of(f"{place}.action", values.get("action"), get_args(Action))
        made[name] = Expectation(name, predicate, action or "keep")
    return tuple(made.values())


def _quarantine(
    problems: Problems,
    key: str,
    name: str,
    values: dict[str, Any],
    path: Path | None,
    expectations: Sequence[Expectation],
) -> Path | None:
    """Return the quarantine's directory (default: next to the table, or in ``quarantine``); None if not needed."""
    asked = any(expectation.action == "quarantine" for expectation in expectations)
    if "quarantine" in values:
        if not asked:
            problems.add(
                f"{key}.quarantine",
                "no expectation has the action quarantine; set it, or remove this key",
            )
        return problems.path(f"{key}.quarantine", values["quarantine"])
    if not asked:
        return None
    if path is None:
        return problems.base / "quarantine" / name
    return path.with_name(f"{path.name}.quarantine")
