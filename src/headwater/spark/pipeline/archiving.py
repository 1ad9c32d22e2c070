"""Archives the sources of a pipeline's ``[archive]``, trims behind it, and says how it stands.

Rule 1. What `[archive]` covers is read from archive and stream as one (`archived_options`): a table
        that is made anew from the beginning has the beginning.
Rule 2. Archiving comes after the tables of a run, so it never delays them; the trim comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.spark.core.options import parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.archive.archiver import Archived, ArchiveState
    from headwater.spark.pipeline.declaration.model import Archive, Source

Report = Callable[[str], None]


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


def archive_status(archive: Archive) -> list[ArchiveState]:
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
