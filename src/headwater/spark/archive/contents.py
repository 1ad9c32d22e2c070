"""The parts of an archive (segments, files and row groups), and their form in the manifest.

A segment is a line of the manifest:

    {"from": "0-0", "added_from": 0, "to": "1763683200000-7", "added_to": 10, "entries": 10,
     "codec": "fields", "schema": …, "level": 0, "files": [{"name": …, "bytes": …, "groups": […]}]}

The line of a segment with few files names them. The files of other segments are named in lists, each a file of
its own, and the line has the bounds of each list (``"lists": […]``). A task that reads an hour of an archive of
years therefore reads only the manifest, which is short, and the one list that covers the hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from headwater.common.model import StreamID
from headwater.spark.core.positions import Position


class RowGroup(NamedTuple):
    """Entries of one file that are read together.

    ``bad`` is the number of entries that did not fit the schema. ``plain`` is true if, in each entry, no field's
    name is repeated, reserved by Headwater or invalid UTF-8.
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

    @property
    def day(self) -> str:
        return self.name.partition("/")[0]


class FileList(NamedTuple):
    """Consecutive files: their bounds, and the place of their names.

    ``name`` is the file that contains the list, relative to the stream's directory. If ``name`` is None, the
    listed files are in ``inline``. `Manifest.files` returns the listed files in both cases.
    """

    first: StreamID
    last: StreamID
    entries: int
    bytes: int
    file_count: int
    name: str | None
    inline: tuple[ArchiveFile, ...] = ()


class Segment(NamedTuple):
    """Consecutive entries: those that one step of archiving added, or those of several merged segments.

    ``schema`` (in Spark's JSON) and ``codec`` describe the typed columns in the segment's files; ``schema`` is
    None without typed columns. ``level`` is the number of times that the entries were merged.
    """

    start: Position
    end: Position
    schema: str | None
    codec: str
    lists: tuple[FileList, ...]
    level: int = 0

    @property
    def entries(self) -> int:
        return sum(one.entries for one in self.lists)

    @property
    def file_count(self) -> int:
        """The number of files in the segment."""
        return sum(one.file_count for one in self.lists)


def listed(files: tuple[ArchiveFile, ...], name: str | None = None) -> FileList:
    """Return the list of ``files``. If ``name`` is None, the list contains the files themselves."""
    return FileList(
        first=files[0].groups[0].first,
        last=files[-1].groups[-1].last,
        entries=sum(file.entries for file in files),
        bytes=sum(file.bytes for file in files),
        file_count=len(files),
        name=name,
        inline=() if name else files,
    )


def inline(files: list[ArchiveFile]) -> tuple[FileList, ...]:
    """Return a single list that contains ``files`` themselves; if ``files`` is empty, return an empty tuple."""
    return (listed(tuple(files)),) if files else ()


def total(segments: Iterable[Segment]) -> tuple[int, int, int]:
    """Return the number of entries, bytes and files of all ``segments``."""
    lists = [one for segment in segments for one in segment.lists]
    return (
        sum(one.entries for one in lists),
        sum(one.bytes for one in lists),
        sum(one.file_count for one in lists),
    )


# --- JSON -----------------------------------------------------------------------------------------


def segment_as_json(segment: Segment) -> dict[str, Any]:
    """Return the line for ``segment``. Its lists must be all inline or all named."""
    written: dict[str, Any] = {
        "from": str(segment.start.id),
        "added_from": segment.start.added,
        "to": str(segment.end.id),
        "added_to": segment.end.added,
        "entries": segment.entries,
        "codec": segment.codec,
        "schema": segment.schema,
    }
    if segment.level:
        written["level"] = segment.level
    if any(one.name for one in segment.lists):
        written["lists"] = [
            [one.name, str(one.first), str(one.last), one.entries, one.bytes, one.file_count]
            for one in segment.lists
        ]
    else:
        written["files"] = [file_as_json(file) for one in segment.lists for file in one.inline]
    return written


def file_as_json(file: ArchiveFile) -> dict[str, Any]:
    groups = [
        [str(group.first), str(group.last), group.entries, group.bad, group.plain]
        for group in file.groups
    ]
    return {"name": file.name, "bytes": file.bytes, "groups": groups}


def segment_of_json(values: dict[str, Any]) -> Segment:
    """Return the segment for a line. Raises `ValueError`, `KeyError` or `TypeError` if the line is damaged."""
    if "lists" in values:
        lists = tuple(_list_of_json(*one) for one in values["lists"])
    else:
        lists = inline([file_of_json(file) for file in values["files"]])
    segment = Segment(
        start=Position(StreamID.parse(values["from"]), int(values["added_from"])),
        end=Position(StreamID.parse(values["to"]), int(values["added_to"])),
        schema=values["schema"],
        codec=values["codec"],
        lists=lists,
        level=int(values.get("level", 0)),
    )
    if segment.entries != values["entries"]:
        raise ValueError(f"its files have {segment.entries} entries, not {values['entries']}")
    return segment


def _list_of_json(
    name: Any, first: Any, last: Any, entries: Any, size: Any, count: Any
) -> FileList:
    bounds = StreamID.parse(first), StreamID.parse(last)
    return FileList(*bounds, int(entries), int(size), int(count), inside(name))


def file_of_json(values: dict[str, Any]) -> ArchiveFile:
    groups = tuple(
        RowGroup(StreamID.parse(first), StreamID.parse(last), int(entries), int(bad), bool(plain))
        for first, last, entries, bad, plain in values["groups"]
    )
    return ArchiveFile(inside(values["name"]), int(values["bytes"]), groups)


def inside(name: Any) -> str:
    """Return ``name`` as a string. Raises `ValueError` if it is outside of the archive's directory."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"the file {name!r} is outside of the archive")
    return str(name)
