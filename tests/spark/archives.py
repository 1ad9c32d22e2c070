"""Helpers for tests of archives: archive a shop's streams, read archive and stream together."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from headwater.common.clock import Clock
from headwater.spark.archive.archiver import Archived, Archiver
from headwater.spark.archive.contents import ArchiveFile
from headwater.spark.archive.manifest import Manifest
from headwater.spark.archive.trimming import Trimming
from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import parse_options
from headwater.spark.source import HeadwaterSource
from tests.spark.stores import Shop

TRIM = Trimming()


def archiver(
    shop: Shop,
    path: Path,
    schema: str | None = "n bigint",
    *,
    trimming: Trimming | None = TRIM,
    step_entries: int = 2_000_000,
    clock: Clock | None = None,
    **options: str,
) -> Archiver:
    given = {"url": shop.url, "stream": "s"} | options
    typed = None if schema is None else parse_schema(schema)
    return Archiver(
        parse_options(given), typed, path, trimming, step_entries=step_entries, clock=clock
    )


def archive(shop: Shop, path: Path, schema: str | None = "n bigint", **how: Any) -> list[Archived]:
    return list(archiver(shop, path, schema, **how).run())


def files_of(manifest: Manifest) -> list[ArchiveFile]:
    """Return all files of an archive, in order."""
    return [file for among in manifest.lists() for file in manifest.files(among)]


class Table:
    """A batch read of archive and stream, planned when it is created and read by `rows`."""

    def __init__(self, shop: Shop, path: Path, schema: str = "n bigint", **options: str) -> None:
        given = {"url": shop.url, "stream": "s", "archive": str(path)} | options
        self.reader = HeadwaterSource(given).reader(parse_schema(schema))
        self.parts = self.reader.partitions()

    def rows(self) -> list[dict[str, Any]]:
        executor = pickle.loads(pickle.dumps(self.reader))
        return [
            row
            for part in pickle.loads(pickle.dumps(self.parts))
            for batch in executor.read(part)
            for row in batch.to_pylist()
        ]

    def numbers(self) -> list[int]:
        return [row["n"] for row in self.rows()]
