"""Checks of a declaration's keys and values, each of which can say what is wrong and what is right.

A `Problems` collects them: whoever wrote the file learns of all its mistakes at once.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headwater.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
NAME: Final = re.compile(r"[A-Za-z_]\w*")


class Problems:
    """What is wrong with one file. ``add`` takes the key, dotted, and the sentence.

    ``secrets`` collects what came out of the environment: no message may show it.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.base = file.resolve().parent
        self.lines: list[str] = []
        self.secrets: set[str] = set()

    def add(self, key: str, sentence: str) -> None:
        self.lines.append(f"{key}: {sentence}")

    def raise_any(self) -> None:
        """Raise `PipelineError` when there are any."""
        if len(self.lines) == 1:
            raise PipelineError(f"{self.file}: {self.lines[0]}")
        if self.lines:
            raise PipelineError(
                f"{self.file}: {len(self.lines)} mistakes\n  " + "\n  ".join(self.lines)
            )

    def unknown(self, key: str, word: str, known: Iterable[str]) -> None:
        """``word`` is none of ``known``: say which it may have been meant for."""
        names = list(known)
        near = get_close_matches(word.lower(), [name.lower() for name in names], n=1)
        if near:
            right = next(name for name in names if name.lower() == near[0])
            self.add(key, f"unknown key. Did you mean {right!r}?")
        else:
            self.add(key, f"unknown key. Keys here are {', '.join(names)}.")

    def table(self, key: str, value: object) -> dict[str, Any]:
        """``value`` as a TOML table; an empty one, and a problem, when it is none."""
        if isinstance(value, dict):
            return value
        self.add(key, f"a table is expected ([{key}]), not {value!r}")
        return {}

    def value(self, key: str, value: object, kind: Any, expected: str) -> Any:
        """``value`` when it is of ``kind``, else None and a problem."""
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            self.add(key, f"{value!r} is not {expected}")
            return None

    def keys(self, place: str, values: Mapping[str, Any], known: Sequence[str]) -> None:
        """Each key of ``values`` is one of ``known``."""
        for key in values:
            if key not in known:
                self.unknown(f"{place}.{key}", key, known)

    def one_of(self, key: str, value: object, words: Sequence[str]) -> Any:
        """``value`` when it is one of ``words``, else None and a problem."""
        if value in words:
            return value
        if value is None:
            self.add(key, f"is missing; one of {', '.join(words)}")
        else:
            self.add(key, f"{value!r} is none of {', '.join(words)}")
        return None

    def text(self, key: str, value: object, expected: str) -> str:
        """``value`` as a text that says something, else "" and a problem with ``expected``."""
        if isinstance(value, str) and value.strip():
            return value
        self.add(key, f"{expected} is expected" + ("" if value is None else f", not {value!r}"))
        return ""

    def path(self, key: str, value: object) -> Path | None:
        """A path, relative to the file."""
        if not isinstance(value, str) or not value:
            self.add(key, "is missing; a path, relative to this file")
            return None
        text = self.expand(key, value, secret=False)
        if "://" in text:
            # What is shown is what the file says: the environment may hold a url with a password.
            self.add(
                key, f"{value!r} is a url; a path on a file system of this machine is expected"
            )
            return None
        return self.base / Path(text).expanduser()

    def schema(self, key: str, value: object) -> StructType | None:
        """Columns, as Spark's DDL spells them."""
        if value is None:
            return None
        if not isinstance(value, str):
            self.add(key, "a text is expected, like 'order_id bigint, item string'")
            return None
        from headwater.spark.core.ddl import parse_schema

        try:
            return parse_schema(value)
        except ValueError as error:
            self.add(key, str(error))
            return None

    def seconds(self, key: str, value: object) -> float | None:
        """A duration in seconds, from ``'500ms'``, ``'10s'``, ``'5m'``, ``'2h'``, ``'1d'``."""
        found = _DURATION.fullmatch(str(value).strip())
        if found is None:
            self.add(key, f"{value!r} is no duration like '500ms', '10s', '5m'")
            return None
        return float(found[1]) * _UNITS[found[2]]

    def options(self, place: str, values: object) -> dict[str, str]:
        """A TOML table as the texts that Spark's options are."""
        made: dict[str, str] = {}
        for key, value in self.table(place, {} if values is None else values).items():
            text = as_option(value)
            if text is None:
                self.add(f"{place}.{key}", f"{value!r} cannot be an option's value")
            else:
                made[key] = self.expand(f"{place}.{key}", text)
        return made

    def expand(self, key: str, text: str, *, secret: bool = True) -> str:
        """``text`` with each ``${NAME}`` taken from the environment."""

        def look_up(found: re.Match[str]) -> str:
            value = os.environ.get(found[1])
            if value is None:
                self.add(key, f"the environment has no {found[1]}; set it, or write the value here")
                return ""
            if secret:
                self.secrets.add(value)
            return value

        return _VARIABLE.sub(look_up, text)


def as_option(value: object) -> str | None:
    """A TOML value as the text that Spark's options are; None for what cannot be one."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, dict)):
        try:
            return json.dumps(value)
        except TypeError:
            return None
    return None


def override(document: dict[str, Any], setting: str) -> None:
    """Put ``a.b.c=value`` into ``document``. The value is TOML, or else the text it is.

    >>> document = {}
    >>> override(document, "source.orders.maxEntriesPerTrigger=1000"); document
    {'source': {'orders': {'maxEntriesPerTrigger': 1000}}}
    """
    key, equals, text = setting.partition("=")
    steps = [step.strip() for step in key.split(".")]
    if not equals or not all(steps):
        raise PipelineError(f"--set {setting!r} is no key=value, like source.orders.url=redis://…")
    # Names of Spark's settings have dots of their own.
    if steps[:2] == ["spark", "conf"]:
        steps[2:] = [".".join(steps[2:])]
    place: Any = document
    for step in steps[:-1]:
        place = place.setdefault(step, {})
        if not isinstance(place, dict):
            raise PipelineError(f"--set {setting!r}: {step} is a value in the file, not a table")
    try:
        place[steps[-1]] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        place[steps[-1]] = text


def nearest(word: str, words: Iterable[str]) -> str:
    """``" Did you mean 'x'?"``, or nothing."""
    near = get_close_matches(word.lower(), list(words), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def flattened(conf: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted names: TOML makes a table of ``spark.sql.ansi.enabled = true``."""
    flat: dict[str, Any] = {}
    for name, value in conf.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
