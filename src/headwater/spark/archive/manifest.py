"""The manifest of one archived stream, which lists everything in the archive.

    archive/orders/
      day=2026-11-21/5f0c….parquet
      _headwater/
        manifest.jsonl     a first line that names the stream, then one line per segment; fsynced
        lists/….json       names of files, for segments with many files (contents.py)
        lock               locked by the process that archives
        replaced.jsonl     files that were merged into others, until they are removed (leftovers.py)

A segment contains the entries after ``start`` up to ``end``: those that one step of archiving added, or those of
several merged segments (merging.py). Each of its files contains one day (UTC, by the ids' milliseconds).
The manifest and its lists have the bounds and count of each row group, so planning seldom opens Parquet files.

Rule 1. Segments are consecutive: each starts where the previous segment ends. The last segment's end is the
        archive's end. The archive contains every entry up to its end that existed when archived.
Rule 2. A file that no line names is not part of the archive, even if it is in the directory: a killed step
        left it, or it was merged into another.
Rule 3. Positions count as in the stream (core/positions.py): ``added`` is the number of entries that had
        ever been added. Reading therefore continues in the stream without conversion.
Rule 4. A step appends a line. Merging replaces the whole manifest in one step, so a reader sees the archive
        before or after the merge.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from headwater.errors import DataLoss, DeclarationError
from headwater.spark.archive.contents import (
    ArchiveFile,
    FileList,
    Segment,
    file_as_json,
    file_of_json,
    listed,
    segment_as_json,
    segment_of_json,
)
from headwater.spark.core.durable import append_line, replacing, sync, whole_lines
from headwater.spark.core.positions import BEGINNING, Position

STATE: Final = "_headwater"
INLINE_FILES: Final = 10
"""Maximum number of files named in a segment's line; the names of more files are in lists."""

LIST_FILES: Final = 100
"""Maximum number of files in one list. Such a list is read in a millisecond."""

_FORMAT: Final = 2
_FORMATS: Final = {1, 2}
"""The formats that can be read. Format 1 does not have lists or levels; replacing the manifest writes format 2."""

_LISTS_KEPT: Final = 64
_LONGEST_NAME: Final = 200
"""Number of bytes after which a directory's name is cut and a hash is appended. File systems allow 255 bytes."""


def directory_of(path: Path | str, stream: str) -> Path:
    """Return the directory of ``stream`` in the archive at ``path``. Raises `DeclarationError` for a url.

    >>> directory_of("archive", "orders:eu/1").name
    'orders%3Aeu%2F1'
    """
    if "://" in str(path):
        raise DeclarationError(
            f"archive: {str(path)!r} is a url; expected a directory on a file system that the driver and "
            "all executors share"
        )
    name = quote(stream, safe=" ")
    if name[0] in "._":  # readers of Parquet directories skip such names
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}~{hashlib.sha256(stream.encode()).hexdigest()[:16]}"
    return Path(path) / name


class Manifest:
    """The manifest of ``stream`` in the archive at ``path``. The file is read again when it has changed.

    ``format`` is the format of the file.
    """

    def __init__(self, path: Path | str, stream: str) -> None:
        self.stream = stream
        self.directory = directory_of(path, stream)
        self.state = self.directory / STATE
        self.format = _FORMAT
        self._file = self.state / "manifest.jsonl"
        self._version: tuple[int, ...] = ()
        self._segments: tuple[Segment, ...] = ()
        self._read_list = lru_cache(_LISTS_KEPT)(self._read_list_file)

    def segments(self) -> tuple[Segment, ...]:
        """Return all current segments in order, the same object until the file has changed.

        Raises `DataLoss` for a damaged manifest, and `DeclarationError` for the manifest of another stream.
        """
        version = self._stat()
        if version != self._version:
            # The version is taken before the reading, so a line written in between is read again, not missed.
            self._segments, self._version = self._read(), version
        return self._segments

    def _stat(self) -> tuple[int, ...]:
        try:
            found = self._file.stat()
        except FileNotFoundError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def files(self, among: FileList) -> tuple[ArchiveFile, ...]:
        """Return the files of a list. Raises `DataLoss` if the file with the list is missing or damaged."""
        return among.inline if among.name is None else self._read_list(among)

    def lists(self) -> Iterator[FileList]:
        """Yield the lists of all segments, in order."""
        for segment in self.segments():
            yield from segment.lists

    @property
    def end(self) -> Position:
        """The position up to which the stream is archived; `BEGINNING` if it is not archived."""
        segments = self.segments()
        return segments[-1].end if segments else BEGINNING

    # --- writing, under the archiver's lock -------------------------------------------------------

    def append(self, segment: Segment) -> None:
        """Add ``segment`` and sync its line. The segment's files must be on disk already."""
        segments = self.segments()
        assert not segments or segments[-1].end.id == segment.start.id, (segments[-1].end, segment)
        if segment.file_count > INLINE_FILES:
            self.replace([*segments, segment])
            return
        self.state.mkdir(parents=True, exist_ok=True)
        if not segments and not whole_lines(self._file):
            append_line(self._file, json.dumps(self._first()).encode())
            self._sync_directories()
        append_line(self._file, json.dumps(segment_as_json(segment)).encode())
        # Under the lock no other process writes, so the manifest need not be read again.
        self._segments, self._version = (*segments, segment), self._stat()

    def replace(self, segments: Sequence[Segment]) -> None:
        """Replace the whole manifest with ``segments``, in one step, and sync it."""
        self.state.mkdir(parents=True, exist_ok=True)
        rows = [self._first(), *(segment_as_json(self._with_lists(one)) for one in segments)]
        with replacing(self._file) as file:
            file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        self._sync_directories()

    def _first(self) -> dict[str, Any]:
        return {"archive": self.stream, "format": _FORMAT}

    def _sync_directories(self) -> None:
        for directory in (self.directory, self.directory.parent, self.directory.parent.parent):
            sync(directory)

    def _with_lists(self, segment: Segment) -> Segment:
        """Return ``segment`` or, if it has many files, the same segment with their names in written lists."""
        if segment.file_count <= INLINE_FILES or all(one.name for one in segment.lists):
            return segment
        files = [file for one in segment.lists for file in self.files(one)]
        return segment._replace(
            lists=tuple(
                self._write_list(tuple(files[at : at + LIST_FILES]))
                for at in range(0, len(files), LIST_FILES)
            )
        )

    def _write_list(self, files: tuple[ArchiveFile, ...]) -> FileList:
        name = f"{STATE}/lists/{uuid.uuid4().hex}.json"
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as file:
            file.write_text(json.dumps([file_as_json(one) for one in files]))
        return listed(files, name)

    # --- reading ----------------------------------------------------------------------------------

    def _read(self) -> tuple[Segment, ...]:
        segments: list[Segment] = []
        for number, line in enumerate(whole_lines(self._file), 1):
            try:
                values = json.loads(line)
                if number == 1:
                    self._check_first(values)
                    continue
                segment = segment_of_json(values)
                if segments and segment.start.id != segments[-1].end.id:
                    raise ValueError(f"it starts at {segment.start.id}, but the line before ends at "
                                     f"{segments[-1].end.id}")  # fmt: skip
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise _damaged(self._file, number, error) from error
            segments.append(segment)
        return tuple(segments)

    def _read_list_file(self, among: FileList) -> tuple[ArchiveFile, ...]:
        assert among.name is not None
        path = self.directory / among.name
        try:
            files = tuple(file_of_json(one) for one in json.loads(path.read_bytes()))
            if not files or listed(files, among.name) != among:
                raise ValueError("its files do not match the manifest")
        except FileNotFoundError:
            raise FileMissing(
                f"the archive's list {path} is missing, with the names of {among.file_count} files. Restore it from a copy; "
                "the Parquet files are still there."
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise _damaged(path, 1, error) from error
        return files

    def _check_first(self, values: Any) -> None:
        if values["format"] not in _FORMATS:
            raise DeclarationError(
                f"archive: {self._file} has the format {values['format']!r}; this version of "
                f"Headwater reads formats up to {_FORMAT}. Install the version that wrote it, or a later one."
            )
        self.format = values["format"]
        if values["archive"] != self.stream:
            raise DeclarationError(
                f"archive: {self.directory} is the archive of {values['archive']!r}, "
                f"not of {self.stream!r}"
            )


class FileMissing(DataLoss):
    """A file that the manifest named is missing: it has been merged and removed since, or is lost."""


def _damaged(file: Path, line: int, error: Exception) -> DataLoss:
    return DataLoss(
        f"the archive's manifest {file} is damaged at line {line} ({type(error).__name__}: {error}). "
        "Restore it from a copy; the Parquet files next to it contain the entries."
    )


def archived_files(path: Path | str, stream: str) -> list[Path]:
    """Return the Parquet files that contain the archived entries of ``stream``, each entry once, in order.

    Any reader of Parquet can read the files. Later runs merge small files, but files that they replace remain for
    six hours. Raises `DataLoss` for a damaged manifest.

    >>> archived_files("archive", "a stream that was never archived")
    []
    """
    manifest = Manifest(path, stream)
    return [
        manifest.directory / file.name
        for among in manifest.lists()
        for file in manifest.files(among)
    ]


def archived_streams(path: Path | str) -> list[str]:
    """Return the names of the streams that have an archive at ``path``."""
    found: list[str] = []
    for file in Path(path).glob(f"*/{STATE}/manifest.jsonl"):
        try:
            found += [str(json.loads(line)["archive"]) for line in whole_lines(file)[:1]]
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(file, 1, error) from error
    return sorted(found)
