"""The manifest of one archived stream, which lists everything in the archive.

    archive/orders/
      day=2026-11-21/00000012-5f0c….parquet
      _headwater/
        manifest.jsonl     a first line that names the stream, then one line per segment; fsynced
        lock               locked by the process that archives

A segment is what one step of archiving added: the entries after ``start`` up to ``end``. Each of its files
contains one day (UTC, by the ids' milliseconds). The manifest has the first id, last id and count of each
row group, so planning opens no file.

Rule 1. Segments are consecutive: each starts where the previous one ended. The end of the last one is the
        archive's end, and the archive contains every entry up to it that existed when it was archived.
Rule 2. A file that no line names is not part of the archive, even if it is in the directory: a killed step
        left it.
Rule 3. Positions count as in the stream (core/positions.py): ``added`` is how many entries had ever been
        added. So reading continues in the stream without conversion.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from headwater.errors import DataLoss, DeclarationError
from headwater.model import StreamID
from headwater.spark.core.durable import append_line, sync, whole_lines
from headwater.spark.core.positions import BEGINNING, Position

STATE: Final = "_headwater"
_FORMAT: Final = 1
_LONGEST_NAME: Final = 200
"""In bytes; file systems allow 255."""


class RowGroup(NamedTuple):
    """Entries of one file that are read together.

    ``bad`` of them did not fit the schema. ``plain``: no field's name is repeated, reserved by Headwater
    or invalid UTF-8.
    """

    first: StreamID
    last: StreamID
    entries: int
    bad: int
    plain: bool


class ArchiveFile(NamedTuple):
    """A Parquet file; ``name`` is relative to the stream's directory."""

    name: str
    bytes: int
    groups: tuple[RowGroup, ...]

    @property
    def entries(self) -> int:
        return sum(group.entries for group in self.groups)


class Segment(NamedTuple):
    """What one step of archiving added.

    ``schema`` (in Spark's JSON) and ``codec`` are those of the typed columns in its files; without typed
    columns ``schema`` is None.
    """

    start: Position
    end: Position
    schema: str | None
    codec: str
    files: tuple[ArchiveFile, ...]

    @property
    def entries(self) -> int:
        return sum(file.entries for file in self.files)


def directory_of(path: Path | str, stream: str) -> Path:
    """Return the directory of ``stream`` in the archive at ``path``; raises for a url.

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
    """The manifest of ``stream`` in the archive at ``path``, read again when it has grown."""

    def __init__(self, path: Path | str, stream: str) -> None:
        self.stream = stream
        self.directory = directory_of(path, stream)
        self.state = self.directory / STATE
        self._file = self.state / "manifest.jsonl"
        self._size = -1
        self._segments: tuple[Segment, ...] = ()

    def segments(self) -> tuple[Segment, ...]:
        """Return all current segments in order; reads the file only if its size has changed.

        Raises `DataLoss` for a damaged manifest, `DeclarationError` for another stream's.
        """
        try:
            size = self._file.stat().st_size
        except FileNotFoundError:
            size = 0
        if size != self._size:
            # The size is taken before reading: a line written in between is only read again later.
            self._segments, self._size = self._read(), size
        return self._segments

    @property
    def end(self) -> Position:
        """Up to where the stream is archived; its beginning if it is not."""
        segments = self.segments()
        return segments[-1].end if segments else BEGINNING

    def append(self, segment: Segment) -> None:
        """Add ``segment``, whose files are on disk; returns when its line is on disk too."""
        segments = self.segments()
        assert not segments or segments[-1].end.id == segment.start.id, (segments[-1].end, segment)
        self.state.mkdir(parents=True, exist_ok=True)
        if not whole_lines(self._file):
            first = {"archive": self.stream, "format": _FORMAT}
            append_line(self._file, json.dumps(first).encode())
            for directory in (self.directory, self.directory.parent, self.directory.parent.parent):
                sync(directory)
        append_line(self._file, json.dumps(_written(segment)).encode())

    def remove_unlisted(self) -> list[str]:
        """Remove the files that no segment names; the caller must hold the lock."""
        known = {file.name for segment in self.segments() for file in segment.files}
        unlisted = [
            file
            for file in self.directory.glob("day=*/*.parquet")
            if str(file.relative_to(self.directory)) not in known
        ]
        for file in unlisted:
            file.unlink()
        return sorted(str(file.relative_to(self.directory)) for file in unlisted)

    def _read(self) -> tuple[Segment, ...]:
        segments: list[Segment] = []
        for number, line in enumerate(whole_lines(self._file), 1):
            try:
                values = json.loads(line)
                if number == 1:
                    self._check_first(values)
                    continue
                segment = _read_segment(values)
                if segments and segment.start.id != segments[-1].end.id:
                    raise ValueError(f"it starts at {segment.start.id}, the line before ends at "
                                     f"{segments[-1].end.id}")  # fmt: skip
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise _damaged(self._file, number, error) from error
            segments.append(segment)
        return tuple(segments)

    def _check_first(self, values: Any) -> None:
        if values["format"] != _FORMAT:
            raise DeclarationError(
                f"archive: {self._file} has the format {values['format']!r}; this version of "
                f"Headwater reads {_FORMAT}. Install the version that wrote it, or a later one."
            )
        if values["archive"] != self.stream:
            raise DeclarationError(
                f"archive: {self.directory} is the archive of {values['archive']!r}, "
                f"not of {self.stream!r}"
            )


def _damaged(file: Path, line: int, error: Exception) -> DataLoss:
    return DataLoss(
        f"the archive's manifest {file} is damaged at line {line} ({type(error).__name__}: {error}). "
        "Restore it from a copy; the Parquet files next to it contain the entries."
    )


def archived_streams(path: Path | str) -> list[str]:
    """Return the streams that have an archive at ``path``."""
    found: list[str] = []
    for file in Path(path).glob(f"*/{STATE}/manifest.jsonl"):
        try:
            found += [str(json.loads(line)["archive"]) for line in whole_lines(file)[:1]]
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(file, 1, error) from error
    return sorted(found)


def _written(segment: Segment) -> dict[str, Any]:
    return {
        "from": str(segment.start.id),
        "added_from": segment.start.added,
        "to": str(segment.end.id),
        "added_to": segment.end.added,
        "entries": segment.entries,
        "codec": segment.codec,
        "schema": segment.schema,
        "files": [
            {
                "name": file.name,
                "bytes": file.bytes,
                "groups": [
                    [str(group.first), str(group.last), group.entries, group.bad, group.plain]
                    for group in file.groups
                ],
            }
            for file in segment.files
        ],
    }


def _read_segment(values: dict[str, Any]) -> Segment:
    segment = Segment(
        start=Position(StreamID.parse(values["from"]), int(values["added_from"])),
        end=Position(StreamID.parse(values["to"]), int(values["added_to"])),
        schema=values["schema"],
        codec=values["codec"],
        files=tuple(_read_file(file) for file in values["files"]),
    )
    if segment.entries != values["entries"]:
        raise ValueError(f"its files have {segment.entries} entries, not {values['entries']}")
    return segment


def _read_file(values: dict[str, Any]) -> ArchiveFile:
    groups = tuple(
        RowGroup(StreamID.parse(first), StreamID.parse(last), int(entries), int(bad), bool(plain))
        for first, last, entries, bad, plain in values["groups"]
    )
    name = values["name"]
    if not _is_inside(name):
        raise ValueError(f"the file {name!r} is outside of the archive")
    return ArchiveFile(name, int(values["bytes"]), groups)


def _is_inside(name: str) -> bool:
    return not Path(name).is_absolute() and ".." not in Path(name).parts


def total(segments: Iterable[Segment]) -> tuple[int, int]:
    """Return the number of entries and bytes of all ``segments``."""
    files = [file for segment in segments for file in segment.files]
    return sum(file.entries for file in files), sum(file.bytes for file in files)
