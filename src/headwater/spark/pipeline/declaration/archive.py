"""The section ``[archive]``: the sources to archive, the archive's directory, and the trimming of the streams.

[archive]
path = "archive"
sources = ["orders"]
keep = "7d"
trim = true
forget_queries_after = "30d"
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headwater.errors import DeclarationError
from headwater.spark.core import option_values
from headwater.spark.pipeline.declaration.model import FORGOTTEN_AFTER_MS, Archive, Source
from headwater.spark.pipeline.declaration.problems import Problems

NEVER: Final = "never"
_KEYS: Final = ("path", "sources", "keep", "trim", "forget_queries_after")


def read_archive(
    problems: Problems, values: Mapping[str, Any], sources: Mapping[str, Source]
) -> Archive | None:
    """Read the section and add its mistakes to ``problems``; return None if its path is wrong.

    Without the key ``sources``, the archive covers every source.
    """
    for key in values:
        if key not in _KEYS:
            problems.unknown(f"archive.{key}", key, _KEYS)
    path = _path(problems, values.get("path"))
    names = problems.names(
        "archive.sources", values.get("sources", list(sources)), "a list of sources"
    )
    if values.get("sources") == []:
        problems.add("archive.sources", "names no source; remove the key to archive all sources")
    for name in names:
        if name not in sources:
            problems.add(
                "archive.sources",
                f"there is no [source.{name}]; sources are {', '.join(sources) or 'none'}",
            )
    trim = problems.value("archive.trim", values.get("trim", True), bool, "true or false")
    keep = _duration(problems, "keep", values.get("keep"))
    given = values.get("forget_queries_after")
    forget = None if given == NEVER else _duration(problems, "forget_queries_after", given)
    if trim is False and (keep is not None or forget is not None):
        problems.add(
            "archive.trim", "false trims nothing, so keep and forget_queries_after have no effect"
        )
    if path is None:
        return None
    covered = tuple(sources[name] for name in names if name in sources)
    if given is None:
        forget = FORGOTTEN_AFTER_MS
    return Archive(path, covered, trim is not False, keep or 0, forget)


def _path(problems: Problems, value: object) -> Path | None:
    if not isinstance(value, str) or not value.strip():
        problems.add("archive.path", "is missing; expected a directory, relative to this file")
        return None
    if "://" in problems.expand("archive.path", value):
        problems.add(
            "archive.path",
            f"{value!r} is a url; expected a directory on a file system that all executors share",
        )
        return None
    return problems.path("archive.path", value)


def _duration(problems: Problems, key: str, value: object) -> int | None:
    if value is None:
        return None
    try:
        return option_values.duration_ms(f"archive.{key}", str(value))
    except DeclarationError as error:
        problems.add(f"archive.{key}", str(error).partition(": ")[2])
        return None
