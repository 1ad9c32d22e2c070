"""Changes of files and names that a crash may undo (files.py)."""

from __future__ import annotations

from dataclasses import dataclass, field

Ranges = list[tuple[int, int]]
"""The ranges of a write that reached the disk, relative to its start."""


@dataclass(eq=False)
class CrashableFile:
    """``content`` is what a read returns, ``durable`` what survives a crash for certain."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)


@dataclass(eq=False)
class Write:
    """Bytes that are not yet durable. If ``data`` is None, space is allocated up to ``offset``, or with
    ``cuts`` the file is shortened to it."""

    file: CrashableFile
    offset: int
    data: bytes | None
    cuts: bool = False

    def apply(self, content: bytearray, kept: Ranges) -> None:
        if self.data is None:
            if kept and self.cuts:
                del content[self.offset :]
            elif kept and len(content) < self.offset:
                content.extend(bytes(self.offset - len(content)))
            return
        for start, end in kept:
            first, last = self.offset + start, self.offset + end
            if len(content) < last:
                content.extend(bytes(last - len(content)))
            content[first:last] = self.data[start:end]

    def whole(self) -> Ranges:
        return [(0, 1 if self.data is None else len(self.data))]


@dataclass(eq=False)
class Naming:
    """Gives ``file`` the name ``new`` and removes the name ``old``. Each may be None."""

    file: CrashableFile | None
    new: str | None
    old: str | None

    def apply(self, names: dict[str, CrashableFile]) -> None:
        if self.old is not None:
            names.pop(self.old, None)
        if self.new is not None:
            assert self.file is not None
            names[self.new] = self.file
