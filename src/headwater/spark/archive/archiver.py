"""Archives streams in steps: write entries to files, append a line to the manifest, then trim.

Rule 1. A step first writes and syncs its files, then appends and syncs the line that names them. A step that is
        killed before its line has no effect: the next run removes its files and repeats the step. A step that
        is killed after its line is complete.
Rule 2. Entries are trimmed only after a line names them.
Rule 3. Archived entries are counted as readers count them (core/completeness.py). Entries removed before they
        were archived raise an error, or are logged if the options accept the loss.
Rule 4. A lock on a file in a stream's directory allows only one archiver at a time.
Rule 5. Small files are merged last, so archiving and trimming are complete even if merging fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pyspark.sql.types import StructType

from headwater import errors
from headwater.common.clock import Clock, SystemClock
from headwater.common.model import StreamID
from headwater.errors import DataLoss, HeadwaterError, StoreInUse
from headwater.spark.archive.contents import ArchiveFile, Segment, inline, total
from headwater.spark.archive.files import PartWriter, typed_columns
from headwater.spark.archive.leftovers import (
    remove_replaced,
    remove_unfinished,
    unfinished,
    was_killed,
)
from headwater.spark.archive.manifest import Manifest
from headwater.spark.archive.merging import merge, merge_files
from headwater.spark.archive.store import set_back_behind
from headwater.spark.archive.trimming import Trimmer, Trimming
from headwater.spark.core.completeness import judge, judge_range, report, was_set_back
from headwater.spark.core.durable import locked
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.planning.planners import planner
from headwater.spark.core.planning.planning import Look, Planner
from headwater.spark.core.positions import Position, ReadSpan
from headwater.spark.core.ranges import EntryRange
from headwater.spark.core.store import SourceStore
from headwater.spark.decoding.reading import pages_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEP_ENTRIES: Final = 2_000_000
"""Maximum number of entries in one step, which a crash may cause to be archived again."""

_ENTRIES_WORTH_A_TASK: Final = 20_000

T = TypeVar("T")
R = TypeVar("R")


class Archived(NamedTuple):
    """Result of a run for one stream: ``entries`` were archived, up to ``end``, and ``trimmed`` entries removed.

    ``merged`` is the number of files that were merged into larger ones.
    """

    stream: str
    entries: int
    bytes: int
    end: StreamID
    trimmed: int
    seconds: float
    merged: int = 0

    def __str__(self) -> str:
        merged = f"; {self.merged} files merged" if self.merged else ""
        stream = self.stream if self.stream.isprintable() else repr(self.stream)
        return (
            f"archive of {stream}: {self.entries:,} entries ({self.bytes:,} bytes) in "
            f"{self.seconds:.1f} s, up to {self.end}; {self.trimmed:,} trimmed{merged}"
        )


@dataclass(frozen=True)
class ArchiveState:
    """The archive of one stream: its last id, and its number of entries, bytes and files.

    ``waiting`` is the number of entries not archived yet. Entries with ids below ``trimmable`` are not needed in
    the stream; ``needed_by`` names the reader of that id. Both are None if the archiver does not trim.
    """

    stream: str
    end: str
    entries: int
    bytes: int
    files: int
    waiting: int
    trimmable: str | None = None
    needed_by: str | None = None


class Archiver:
    """Archives the streams of ``options`` at ``path``, with typed columns for ``schema``.

    If ``trimming`` is None, the streams are not trimmed.
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType | None,
        path: Path,
        trimming: Trimming | None = None,
        *,
        step_entries: int = STEP_ENTRIES,
        clock: Clock | None = None,
    ) -> None:
        # The whole stream is archived, independently of the options that limit a read.
        self._options = replace(options, mode="permissive", columns=None, archive=None)
        self._typed = typed_columns(schema, self._options)
        self._options = replace(self._options, timestamp_formats=())
        self._path = path.absolute()
        self._trimming = trimming
        self._step_entries = step_entries
        self._clock = clock or SystemClock()

    def run(self, spark: SparkSession | None = None) -> Iterator[Archived]:
        """Archive the current entries of each stream, then trim it; yield the result for each stream.

        The executors of ``spark`` read and write the entries; if ``spark`` is None, this process does. Raises
        `DataLoss` for entries removed before they were archived, and `StoreInUse` while another archiver runs.
        """
        store = SourceStore(self._options)
        try:
            for stream in store.streams():
                began = time.monotonic()
                manifest = Manifest(self._path, stream)
                plans = planner(store)
                if not manifest.segments() and store.state(stream) is None:
                    continue  # the stream never existed
                with locked(manifest.state / "lock", lambda _pid: _in_use(manifest)):  # noqa: B023 - called now
                    if was_killed(manifest):
                        remove_unfinished(manifest)
                    with unfinished(manifest):
                        segments = [*self._steps(store, plans, manifest, spark)]
                    trimmed = 0
                    if self._trimming is not None and manifest.segments():
                        trimmed = Trimmer(store, manifest, self._trimming).trim()
                    now_ms = self._clock.now_ms()
                    remove_replaced(manifest, now_ms)
                    merged = merge(manifest, lambda tasks: _each(merge_files, tasks, spark), now_ms)
                entries, size, _files = total(segments)
                yield Archived(
                    stream,
                    entries=entries,
                    bytes=size,
                    end=manifest.end.id,
                    trimmed=trimmed,
                    seconds=time.monotonic() - began,
                    merged=merged,
                )
        finally:
            store.close()

    def status(self) -> Iterator[ArchiveState]:
        """Yield the state of each stream's archive, without writing anything."""
        store = SourceStore(self._options)
        try:
            for stream in store.streams():
                manifest = Manifest(self._path, stream)
                state, end = store.state(stream), manifest.end.id
                waiting = planner(store).count(stream, end, state.last_id) if state else 0
                found = ArchiveState(stream, str(end), *total(manifest.segments()), waiting)
                if self._trimming is not None:
                    first, who = Trimmer(store, manifest, self._trimming).holds()[0]
                    found = replace(found, trimmable=str(first), needed_by=who)
                yield found
        finally:
            store.close()

    # --- one stream -------------------------------------------------------------------------------

    def _steps(
        self, store: SourceStore, plans: Planner, manifest: Manifest, spark: SparkSession | None
    ) -> Iterator[Segment]:
        """Archive in steps up to the stream's current last id. A step is durable when its segment is yielded."""
        position, look = self._begin(plans, manifest)
        if look is None:
            return
        target = Position(look.to, position.added + look.taken)
        while position.id < target.id and (
            position.added < target.added or position != manifest.end
        ):
            left = target.added - position.added
            end = target
            if left > self._step_entries:
                ahead = look._replace(total=left, taken=left)
                shorter = plans.limit(manifest.stream, position, ahead, self._step_entries)
                if shorter is None:
                    raise DataLoss(f"stream {manifest.stream!r} was deleted while it was archived")
                end = Position(shorter.to, position.added + shorter.taken)
            segment = self._step(store, plans, manifest, ReadSpan(position, end), spark)
            manifest.append(segment)
            yield segment
            position = end

    def _begin(self, plans: Planner, manifest: Manifest) -> tuple[Position, Look | None]:
        """Return the position at which to continue and a look from there, after reporting missing entries."""
        stream, fresh = manifest.stream, not manifest.segments()
        end = manifest.end
        look = plans.look(stream, end, None)
        state = look.state if look else None
        if was_set_back(end, state):
            raise set_back_behind(manifest, state)
        if look is None:
            return end, None
        finding = None if fresh else judge(stream, end, look.state, look.total)
        if finding:
            report(finding, self._options)
        return Position(end.id, look.state.entries_added - look.total), look

    def _step(
        self,
        store: SourceStore,
        plans: Planner,
        manifest: Manifest,
        span: ReadSpan,
        spark: SparkSession | None,
    ) -> Segment:
        stream = manifest.stream
        parts: list[EntryRange] = []
        if span.entries:
            tasks = spark.sparkContext.defaultParallelism if spark else 1
            tasks = max(1, min(tasks, span.entries // _ENTRIES_WORTH_A_TASK))
            cut = plans.cut(stream, span, tasks).parts
            parts = [EntryRange(stream, ids, count) for ids, count in cut]
        files = self._write(parts, manifest.directory, spark)
        finding = judge_range(
            stream,
            span.start.id,
            span.end.id,
            expected=span.entries,
            found=sum(file.entries for file in files),
            state=store.state(stream),
        )
        if finding:
            report(finding, self._options)
        schema = self._typed.json() if self._typed.fields else None
        return Segment(span.start, span.end, schema, self._options.codec, inline(files))

    def _write(
        self, parts: Sequence[EntryRange], directory: Path, spark: SparkSession | None
    ) -> list[ArchiveFile]:
        tasks = [_Task(self._options, self._typed, str(directory), part) for part in parts]
        results = _each(write_part, tasks, spark)
        for result in results:
            if isinstance(result, _Failed):
                kind: type[HeadwaterError] = getattr(errors, result.kind, HeadwaterError)
                raise kind(result.text)
        files = [file for result in results if isinstance(result, list) for file in result]
        return sorted(files, key=lambda file: file.groups[0].first)


def _each(work: Callable[[T], R], tasks: Sequence[T], spark: SparkSession | None) -> list[R]:
    """Return the results of ``work`` for ``tasks``, run by the executors of ``spark`` or, if it is None, here."""
    if spark is None or not tasks:
        return [work(task) for task in tasks]
    return spark.sparkContext.parallelize(tasks, len(tasks)).map(work).collect()


@dataclass(frozen=True)
class _Task:
    """A task in the form that is sent to an executor."""

    options: SourceOptions
    typed: StructType
    directory: str
    part: EntryRange


class _Failed(NamedTuple):
    """An executor's error. It is returned because the JVM would turn an exception into a page of text."""

    kind: str
    text: str


def write_part(task: _Task) -> list[ArchiveFile] | _Failed:
    """Write the entries of one range to files, in an executor."""
    try:
        writer = PartWriter(Path(task.directory), task.part.stream, task.typed, task.options)
        return writer.write(pages_of(task.options, task.part))
    except HeadwaterError as error:
        return _Failed(type(error).__name__, str(error))
    except OSError as error:
        return _Failed(
            "HeadwaterError",
            f"the archive at {task.directory} cannot be written: {error.strerror or error}. It must "
            "be a directory that every executor can write to.",
        )


def _in_use(manifest: Manifest) -> StoreInUse:
    return StoreInUse(f"another run is archiving to {manifest.directory}; wait until it has ended")
