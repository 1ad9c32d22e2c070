"""Reads a streaming query's checkpoint without Spark, and stores Headwater's files in it.

    checkpoint/
      metadata              Spark's: the query's id
      offsets/7             Spark's: the end of batch 7, a line for each source
      commits/7             Spark's: batch 7 is in the sink
      headwater/
        sources.json        the names of the sources and tables that are read, in the order of an offset's lines
        beginning.json      the position of each stream before batch 0
        backfills/          one file per backfill
        lock, quality.jsonl locked by the process that writes the table; the history of quality.py

Rule 1. Spark's files are read, never written.
Rule 2. The files in ``headwater/`` belong to the checkpoint and are removed with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from headwater.errors import PipelineError
from headwater.spark.core.durable import lines_of, locked, replacing, sync_all
from headwater.spark.log_mode.offsets import streams_of

_OWN: Final = "headwater"

Offset = dict[str, Any]
"""The position up to which one source has been read: an offset of log_mode/offsets.py, group_mode/offsets.py or
table_log/source.py."""


def in_use(process: str) -> PipelineError:
    """Return the error for a table that ``process`` writes."""
    return PipelineError(
        f"the table is being written by process {process}; wait for that process, or end it"
    )


def streams_in(offset: Offset | None) -> set[str]:
    """Return the names of the streams in ``offset``; empty if it is None."""
    if offset is None:
        return set()
    return set(offset["streams"]) if "group" in offset else set(streams_of(offset))


class Checkpoint:
    """The checkpoint at ``path``, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.own = path / _OWN

    def query(self) -> str | None:
        """Return the id that Spark gave the query; None before its first start."""
        found = _json(self.path / "metadata")
        return None if found is None else str(found["id"])

    def last_batch(self) -> int | None:
        """Return the number of the newest committed batch; None if no batch was committed."""
        return max(self._numbers("commits"), default=None)

    def offsets(self, batch: int) -> list[Offset | None]:
        """Return each source's offset (None if unread) at the end of ``batch``; empty if Spark has deleted it."""
        try:
            lines = lines_of((self.path / "offsets" / str(batch)).read_bytes())
        except FileNotFoundError:
            return []
        # "v1", Spark's own line, then one line per source: "-" if the source has not been read.
        return [None if line.strip() == b"-" else json.loads(line) for line in lines[2:]]

    def newest_offsets(self) -> list[Offset | None]:
        """Return `offsets` of the newest batch, committed or not; empty before the first batch."""
        newest = max(self._numbers("offsets"), default=None)
        return [] if newest is None else self.offsets(newest)

    def committed(self) -> dict[str, Offset]:
        """Return each source's offset at the end of the newest committed batch, by the source's name."""
        batch = self.last_batch()
        return {} if batch is None else self.by_source(batch)

    def by_source(self, batch: int) -> dict[str, Offset]:
        """Return `offsets` by the names of the sources.

        For a source that the SQL reads twice, this is the first of its two offsets.
        """
        found: dict[str, Offset] = {}
        for name, offset in zip(self.sources(), self.offsets(batch), strict=False):
            if offset is not None:
                found.setdefault(name, offset)
        return found

    def sources(self) -> list[str]:
        """Return the names of the sources in the order of an offset's lines."""
        found = _json(self.own / "sources.json")
        return [str(name) for name in found] if isinstance(found, list) else []

    def note_sources(self, names: Sequence[str]) -> None:
        """Store the names of the sources of the query that is about to start.

        Raises `PipelineError` if earlier runs read other sources, or the same sources in another order: Spark
        identifies a source only by its index, and would continue one source at another's position. A source
        may be renamed.
        """
        known = self.sources()
        moved = len(names) != len(known) or any(
            name != before and name in known for name, before in zip(names, known, strict=True)
        )
        if known and moved and self._numbers("offsets"):
            raise PipelineError(
                f"the SQL reads {', '.join(names) or 'no source'}, but the checkpoint ({self.path}) "
                f"belongs to {', '.join(known)}: the sources and their order must not change. Change the SQL "
                "back; or remove the table with its checkpoint to rebuild it."
            )
        if list(names) != known:
            self._write("sources.json", list(names))

    def beginning(self) -> dict[str, Offset] | None:
        """Return each source's offset of batch 0, with the positions of its streams before that batch.

        Returns None if batch 0 was not planned yet, or if Spark deleted its offsets before they were stored.
        """
        found = _json(self.own / "beginning.json")
        return found if isinstance(found, dict) else None

    def note_beginning(self) -> None:
        """Store the offsets of batch 0 if they are not stored yet: Spark deletes them after a hundred batches."""
        if not (self.own / "beginning.json").exists():
            first = self.by_source(0)
            if first:
                self._write("beginning.json", first)

    def sync_batch(self, batch: int) -> None:
        """Sync the offset of ``batch`` to disk. The caller must do this before the sink commits the batch.

        Spark does not sync it. After a power loss, Spark could plan a batch with the same number and other
        entries, which the sink would then skip.
        """
        log = self.path / "offsets"
        files = [self.path / "metadata", log / str(batch)]
        sync_all([*filter(Path.exists, files), *filter(Path.exists, (self.path, log))])

    def backfills(self) -> list[dict[str, Any]]:
        """Return the records of backfills (backfill.py)."""
        records = (_json(file) for file in sorted((self.own / "backfills").glob("*.json")))
        return [record for record in records if record is not None]

    def note_backfill(self, series: str, record: dict[str, Any]) -> None:
        """Store or replace the record of a backfill."""
        self._write(f"backfills/{series}.json", record)

    def locked(self) -> AbstractContextManager[None]:
        """Lock the table of this checkpoint. Raises `PipelineError` if another process has the lock."""
        return locked(self.own / "lock", in_use)

    def _numbers(self, directory: str) -> list[int]:
        try:
            names = [path.name for path in (self.path / directory).iterdir()]
        except FileNotFoundError:
            return []
        return [int(name) for name in names if name.isdigit()]

    def _write(self, name: str, value: object) -> None:
        path = self.own / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(value), encoding="utf-8")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
