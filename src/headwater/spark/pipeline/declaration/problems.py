"""Checks a declaration's keys and values. The message of a check names the fault and a valid alternative.

A `Problems` collects the mistakes, so that all of them are reported together.
"""

from __future__ import annotations

import errno
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
_LEAST_SECONDS: Final = 0.001
_MOST_SECONDS: Final = 365 * 86400.0
NAME: Final = re.compile(r"[A-Za-z_]\w*")


class Problems:
    """The mistakes in one file. ``add`` takes the dotted key and a sentence.

    ``secrets`` collects values from the environment that messages must not show.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.base = file.resolve().parent
        self.lines: list[str] = []
        self.secrets: set[str] = set()

    def add(self, key: str, sentence: str) -> None:
        self.lines.append(f"{key}: {sentence}")

    def raise_any(self) -> None:
        """Raise `PipelineError` if there are any problems."""
        if len(self.lines) == 1:
            raise PipelineError(f"{self.file}: {self.lines[0]}")
        if self.lines:
            raise PipelineError(
                f"{self.file}: {len(self.lines)} mistakes\n  " + "\n  ".join(self.lines)
            )

    def unknown(self, key: str, word: str, known: Iterable[str]) -> None:
        """Report that ``word`` is not one of ``known``, and suggest the nearest of the known words."""
        names = list(known)
        near = get_close_matches(word.lower(), [name.lower() for name in names], n=1)
        if near:
            right = next(name for name in names if name.lower() == near[0])
            self.add(key, f"unknown key. Did you mean {right!r}?")
        else:
            self.add(key, f"unknown key. Keys here are {', '.join(names)}.")

    def table(self, key: str, value: object) -> dict[str, Any]:
        """Return ``value`` if it is a TOML table; otherwise report a problem and return an empty table."""
        if isinstance(value, dict):
            return value
        self.add(key, f"expected a table ([{key}]), got {value!r}")
        return {}

    def value(self, key: str, value: object, kind: Any, expected: str) -> Any:
        """Return ``value`` if it is of type ``kind``; otherwise report a problem and return None."""
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            self.add(key, f"{value!r} is not {expected}")
            return None

    def keys(self, place: str, values: Mapping[str, Any], known: Sequence[str]) -> None:
        """Report the keys of ``values`` that are not in ``known``."""
        for key in values:
            if key not in known:
                self.unknown(f"{place}.{key}", key, known)

    def one_of(self, key: str, value: object, words: Sequence[str]) -> Any:
        """Return ``value`` if it is one of ``words``; otherwise report a problem and return None."""
        if value in words:
            return value
        if value is None:
            self.add(key, f"is missing; expected one of {', '.join(words)}")
        else:
            self.add(key, f"{value!r} is not one of {', '.join(words)}")
        return None

    def names(self, key: str, value: object, expected: str) -> tuple[str, ...]:
        """Return the strings in the list ``value``, without blank and repeated ones, which are reported."""
        listed = self.value(key, value, list[str], expected) or []
        for name in dict.fromkeys(listed):
            if not name.strip():
                self.add(key, "one of the names is empty")
            elif listed.count(name) > 1:
                self.add(key, f"has {name!r} twice; name it once")
        return tuple(dict.fromkeys(name for name in listed if name.strip()))

    def text(self, key: str, value: object, expected: str) -> str:
        """Return ``value`` if it is a non-blank string; otherwise report ``expected`` and return ""."""
        if isinstance(value, str) and value.strip():
            return value
        self.add(key, f"expected {expected}" + ("" if value is None else f", got {value!r}"))
        return ""

    def path(self, key: str, value: object) -> Path | None:
        """Return ``value`` as a path, relative to the file's directory; None if it is wrong, which is reported."""
        if not isinstance(value, str) or not value.strip():
            self.add(key, "is missing; expected a path, relative to this file")
            return None
        text = self.expand(key, value, secret=False)
        if "://" in text:
            # Show the value as written in the file: the expanded url may contain a password.
            self.add(key, f"{value!r} is a url; expected a path on a file system of this machine")
            return None
        path = None
        try:
            path = self.base / Path(text).expanduser()
            path.lstat()
        except (OSError, RuntimeError, ValueError) as error:
            if path is None or not isinstance(error, OSError) or error.errno == errno.ENAMETOOLONG:
                said = error.strerror if isinstance(error, OSError) else error
                self.add(key, f"{value!r} cannot be a path: {said}")
                return None
        return path

    def schema(self, key: str, value: object) -> StructType | None:
        """Parse columns in Spark's DDL. Returns None for None, and for a wrong value, which is reported."""
        if value is None:
            return None
        if not isinstance(value, str):
            self.add(key, "expected a string like 'order_id bigint, item string'")
            return None
        from headwater.spark.core.ddl import parse_schema

        try:
            return parse_schema(value)
        except ValueError as error:
            self.add(key, str(error))
            return None

    def seconds(self, key: str, value: object) -> float | None:
        """Parse a duration such as ``'500ms'``, ``'10s'``, ``'5m'``, ``'2h'``, ``'1d'``. Returns seconds."""
        found = _DURATION.fullmatch(str(value).strip())
        if found is None:
            self.add(key, f"{value!r} is not a duration like '500ms', '10s', '5m'")
            return None
        seconds = float(found[1]) * _UNITS[found[2]]
        if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
            self.add(key, f"{value!r} is not between 1ms and 365d, like '500ms', '10s', '5m'")
            return None
        return seconds

    def options(self, place: str, values: object) -> dict[str, str]:
        """Return the values of a TOML table as strings for Spark's options."""
        made: dict[str, str] = {}
        for key, value in self.table(place, {} if values is None else values).items():
            text = as_option(value)
            if text is None:
                self.add(f"{place}.{key}", f"{value!r} is not a valid option value")
            else:
                made[key] = self.expand(f"{place}.{key}", text)
        return made

    def expand(self, key: str, text: str, *, secret: bool = True) -> str:
        """Return ``text`` with each ``${NAME}`` replaced from the environment."""

        def look_up(found: re.Match[str]) -> str:
            value = os.environ.get(found[1])
            if value is None:
                self.add(
                    key,
                    f"{found[1]} is not set in the environment; set it, or write the value here",
                )
                return ""
            if secret:
                self.secrets.add(value)
            return value

        return _VARIABLE.sub(look_up, text)


def as_option(value: object) -> str | None:
    """Return a TOML value as a string for Spark's options; None if the value cannot be an option."""
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
    """Set ``a.b.c=value`` in ``document``. A value that is not valid TOML is a string.

    >>> document = {}
    >>> override(document, "source.orders.maxEntriesPerTrigger=1000"); document
    {'source': {'orders': {'maxEntriesPerTrigger': 1000}}}
    """
    key, equals, text = setting.partition("=")
    steps = [step.strip() for step in key.split(".")]
    if not equals or not all(steps):
        raise PipelineError(f"--set {setting!r} is not key=value, like source.orders.url=redis://…")
    # Names of Spark's settings contain dots.
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
    """Return ``" Did you mean 'x'?"``, or an empty string if no word is near."""
    near = get_close_matches(word.lower(), list(words), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def flattened(conf: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as dotted names: TOML parses ``spark.sql.ansi.enabled = true`` as nested."""
    flat: dict[str, Any] = {}
    for name, value in conf.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
