"""Archives the sources of a pipeline's ``[archive]``, trims them, and reports the archive's state.

Rule 1. Sources of `[archive]` are read from archive and stream together (`archived_options`), so a table
        that is built again also has the rows of entries that were trimmed.
Rule 2. Archiving follows the tables' batches. Trimming comes last.
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
    """Return the options to read ``source``, including ``archive`` if the pipeline archives this source.

    A source with a group is read without the archive: members read the entries that the group has not settled.
    """
    covered = archive is not None and any(one.name == source.name for one in archive.sources)
    if not covered or "group" in source.options or "archive" in source.options:
        return source.options
    assert archive is not None
    return source.options | {"archive": str(archive.path)}


def run_archive(
    spark: SparkSession | None, archive: Archive, report: Report = print
) -> list[Archived]:
    """Archive the current entries of the sources, trim the unneeded ones, and return a result per stream.

    Spark's executors read and write the entries; if ``spark`` is None, this process does. ``report`` is called
    with a line for each stream. Raises `DataLoss` for entries removed before they were archived.
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
    """Return the state of each stream's archive: its end, its size, and the reader that limits trimming.

    Reads manifests and asks the servers; writes nothing.
    """
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
