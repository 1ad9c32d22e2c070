"""A pipeline's ``[archive]``: which sources are kept for ever, where, and what is trimmed behind.

    [archive]
    path = "archive"
    sources = ["orders"]
    keep = "7d"
    trim = true
    forget_queries_after = "30d"

Rule 1. What `[archive]` covers is read from archive and stream as one (`archived_options`): a table
        that is made anew from the beginning has the beginning.
Rule 2. Archiving comes after the tables of a run, so it never delays them; the trim comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.errors import DeclarationError
from headwater.spark.core import option_values
from headwater.spark.core.options import parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.archive.archiver import Archived, Status
    from headwater.spark.pipeline.checks import Problems
    from headwater.spark.pipeline.declaration import Source

Report = Callable[[str], None]

_KEYS: Final = ("path", "sources", "keep", "trim", "forget_queries_after")


class Archive(NamedTuple):
    """The section. ``keep_ms``: entries younger than that stay in the stream; ``trim`` False: all
    do. ``forget_queries_after_ms``: a query that has not been seen for so long holds nothing back;
    None: each does for ever.
    """

    path: Path
    sources: tuple[Source, ...]
    trim: bool = True
    keep_ms: int = 0
    forget_queries_after_ms: int | None = None


def read_archive(
    problems: Problems, values: Mapping[str, Any], sources: Mapping[str, Source], base: Path
) -> Archive | None:
    """The section ``[archive]``; None, and what is wrong with it in ``problems``, when it is none.

    ``base`` is what its path is relative to. Without ``sources`` it covers every source.
    """
    for key in values:
        if key not in _KEYS:
            problems.unknown(f"archive.{key}", key, _KEYS)
    path = _path(problems, values.get("path"), base)
    names = problems.value(
        "archive.sources", values.get("sources", list(sources)), list[str], "a list of sources"
    )
    for name in names or ():
        if name not in sources:
            problems.add(
                "archive.sources",
                f"there is no [source.{name}]; sources are {', '.join(sources) or 'none'}",
            )
    trim = problems.value("archive.trim", values.get("trim", True), bool, "true or false")
    keep = _duration(problems, "keep", values.get("keep"))
    forget = _duration(problems, "forget_queries_after", values.get("forget_queries_after"))
    if trim is False and (keep is not None or forget is not None):
        problems.add(
            "archive.trim", "false trims nothing, so keep and forget_queries_after do nothing"
        )
    if path is None:
        return None
    covered = tuple(sources[name] for name in dict.fromkeys(names or ()) if name in sources)
    return Archive(path, covered, trim is not False, keep or 0, forget)


def archived_options(archive: Archive | None, source: Source) -> dict[str, str]:
    """The options to read ``source`` with: from archive and stream as one where it is covered.

    A source with a group keeps its own: members of a group take what the group has not settled.
    """
    covered = archive is not None and any(one.name == source.name for one in archive.sources)
    if not covered or "group" in source.options or "archive" in source.options:
        return source.options
    assert archive is not None
    return source.options | {"archive": str(archive.path)}


def run_archive(
    spark: SparkSession | None, archive: Archive, report: Report = print
) -> list[Archived]:
    """Archive what the sources hold now, then trim what nobody needs; a result for each stream.

    Spark's executors read and write; without a session this process does. ``report`` gets a line
    for each stream. Raises `DataLoss` where entries went before they were archived.
    """
    from headwater.spark.archive.archiver import Archiver
    from headwater.spark.archive.trimming import Trimming
    from headwater.spark.embedded import reachable_options

    trimming = Trimming(archive.keep_ms, archive.forget_queries_after_ms) if archive.trim else None
    done: list[Archived] = []
    for source in archive.sources:
        options = reachable_options(source.options, spark) if spark else source.options
        archiver = Archiver(parse_options(options), source.schema, archive.path, trimming)
        for archived in archiver.run(spark):
            report(str(archived))
            done.append(archived)
    return done


def archive_status(archive: Archive) -> list[Status]:
    """Of each stream: how far it is archived, in how much, up to where it may be trimmed, and who
    holds that back. It reads manifests and asks the servers; nothing is written."""
    from headwater.spark.archive.archiver import Archiver
    from headwater.spark.archive.trimming import Trimming

    trimming = Trimming(archive.keep_ms, archive.forget_queries_after_ms) if archive.trim else None
    return [
        status
        for source in archive.sources
        for status in Archiver(
            parse_options(source.options), source.schema, archive.path, trimming
        ).status()
    ]


def _path(problems: Problems, value: object, base: Path) -> Path | None:
    if not isinstance(value, str) or not value:
        problems.add("archive.path", "is missing; a directory, relative to this file")
        return None
    text = problems.expand("archive.path", value)
    if "://" in text:
        problems.add(
            "archive.path",
            f"{text!r} is a url; a directory on a file system that all executors share is expected",
        )
        return None
    return base / Path(text).expanduser()


def _duration(problems: Problems, key: str, value: object) -> int | None:
    if value is None:
        return None
    try:
        return option_values.duration_ms(f"archive.{key}", str(value))
    except DeclarationError as error:
        problems.add(f"archive.{key}", str(error).partition(": ")[2])
        return None
