"""The file MANIFEST, which names the image and the journal files of the store.

    format 2
    seed 00005eed
    history 7f…                         40 hexadecimal digits; history none
    left 1a… 2048                       a former history; none or more lines
    stopped 4096                        only after a clean stop: the offset of the store
    image 3                             image none
    image_turn 120                      these five lines only if there is an image
    image_now_ms 1526569498055
    image_size 4096
    image_groups 7
    image_offset 8192
    first 8
    last 10
    floor 9 2345
    next_image 4
    next_segment 12
    crc32c 1f2e3d4c

Rule 1. The store is the image, followed by the journal files from ``first`` on. Files up to ``last`` must
        exist; later ones may.
Rule 2. ``floor`` is a file's number and an offset in it, up to which the journal was durable.
Rule 3. No image has the number ``next_image`` or a later one. No segment that is deleted had the number
        ``next_segment`` or a later one.
Rule 4. A history is a sequence of changes. A store and its replicas have the same one as long as each of them
        continues it. An offset is a number of bytes of facts since a history began, and a new history goes on
        counting. So history and offset name a state, and a member that left ``history`` at an offset has
        the states of the former one up to that offset. ``history none``: the next start begins one. A start
        continues the history of a clean stop, if the store still has its offset. After a crash, replicas may
        have changes that are lost here, so another history begins.
Rule 5. The last line is the checksum of all lines before it. Every line must have exactly the written form.
        After correcting a line by hand, replace the last line by `failures.EDITED`.

Format 1 has no histories and no offset: such a store begins at offset 0 with its image.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from headwater.errors import StoreUnusable
from headwater.journal.disk.files import Files
from headwater.journal.format.failures import EDITED, MANIFEST_NAME, damaged_manifest
from headwater.journal.format.records import Synced, checksum_of

MANIFEST_FORMAT = 2
MANIFEST_BYTES = 4096
"""Maximum size of a MANIFEST, in bytes."""
UNFINISHED = b"unfinished copy\n"
"""The MANIFEST of a copy that is being made (`headwater.persistence.backup`)."""

FOREVER = 2**63 - 1
"""The offset at which a replica leaves the history of its primary, as long as it follows it."""
MOST_LEFT = 16
"""How many former histories a store remembers. A replica of an earlier one takes a full copy."""

_NUMBER = "(0|[1-9][0-9]{0,18})"
_HISTORY = "([0-9a-f]{40})"
_IMAGE_LINES = ("image_turn", "image_now_ms", "image_size", "image_groups", "image_offset")


class ImageEntry(NamedTuple):
    """A complete image. ``turn`` and ``now_ms`` are those of the last record group before the image, ``size`` is
    in bytes, ``groups`` counts the engine's groups, and ``offset`` is the offset of the store at the image."""

    number: int
    turn: int
    now_ms: int
    size: int
    groups: int
    offset: int = 0


class Left(NamedTuple):
    """A former history, and the offset at which it was left."""

    history: str
    offset: int


class StoreHistory(NamedTuple):
    """The current history of a store, and the former ones, oldest first."""

    id: str
    left: tuple[Left, ...] = ()
    stopped: int | None = None
    """The offset at the clean stop that ended the last process; None while one runs, and after a crash."""

    @classmethod
    def new(cls) -> StoreHistory:
        """Return a history that no other store has."""
        return cls(os.urandom(20).hex())

    def includes(self, history: str, offset: int, reached: int) -> bool:
        """Return whether a store that has ``reached`` of this history was once in the state ``offset`` of ``history``."""
        return any(one.history == history and offset <= one.offset for one in self._all(reached))

    def precedes(self, history: str, offset: int, reached: int) -> bool:
        """Return whether the state ``offset`` of ``history`` continues that of a store that has ``reached`` of this one."""
        return offset > reached and Left(history, reached) in self._all(reached)

    def oldest(self, offset: int) -> str:
        """Return the earliest history that has the state ``offset`` of this one."""
        return next(one.history for one in self._all(offset) if one.offset == offset)

    def parted(self, reached: int, other: StoreHistory, other_reached: int) -> int | None:
        """Return the offset up to which this history and ``other`` are the same, if they have reached these offsets; None
        if they have nothing in common."""
        theirs = {one.history: one.offset for one in other._all(other_reached)}
        for one in reversed(self._all(reached)):
            if one.history in theirs:
                return min(one.offset, theirs[one.history])
        return None

    def followed(self) -> StoreHistory:
        """Return the history of a replica of a store with this one: a new history, which leaves this one where the replica
        is when it ceases to be one (`begun`)."""
        return StoreHistory(self.new().id, (*self.left, Left(self.id, FOREVER))[-MOST_LEFT:])

    def begun(self, offset: int) -> StoreHistory:
        """Return this history for a store that has ``offset`` and ceases to be a replica there."""
        return StoreHistory(self.id, self._all(offset)[:-1])

    def leave(self, offset: int) -> StoreHistory:
        """Return a new history that leaves this one at ``offset``."""
        return StoreHistory(self.new().id, self._all(offset)[-MOST_LEFT:])

    def _all(self, reached: int) -> tuple[Left, ...]:
        """Return the former histories and this one, each up to where a store that has ``reached`` shares it. A replica that is
        behind may not have reached the offset at which its primary left a history."""
        all_of_them = (*self.left, Left(self.id, reached))
        return tuple(Left(one.history, min(one.offset, reached)) for one in all_of_them)


class StoreManifest(NamedTuple):
    """Content of MANIFEST. ``last`` is ``first`` - 1 if no journal file is known to exist."""

    seed: int
    image: ImageEntry | None
    first: int
    last: int
    floor: Synced
    next_image: int
    next_segment: int = 1
    history: StoreHistory | None = None

    def text(self) -> bytes:
        """Return the content of the file.

        >>> manifest = StoreManifest(0x5EED, None, 1, 2, Synced(1, 105), 1)
        >>> print(manifest.text().decode(), end="")
        format 2
        seed 00005eed
        history none
        image none
        first 1
        last 2
        floor 1 105
        next_image 1
        next_segment 1
        crc32c db802695
        """
        lines = [f"format {MANIFEST_FORMAT}", f"seed {self.seed:08x}"]
        if self.history is None:
            lines.append("history none")
        else:
            lines.append(f"history {self.history.id}")
            lines += [f"left {one.history} {one.offset}" for one in self.history.left]
            if self.history.stopped is not None:
                lines.append(f"stopped {self.history.stopped}")
        if self.image is None:
            lines.append("image none")
        else:
            number, *others = self.image
            lines.append(f"image {number}")
            lines += [f"{name} {value}" for name, value in zip(_IMAGE_LINES, others, strict=True)]
        lines += [
            f"first {self.first}",
            f"last {self.last}",
            f"floor {self.floor.number} {self.floor.offset}",
            f"next_image {self.next_image}",
            f"next_segment {self.next_segment}",
        ]
        body = "".join(f"{line}\n" for line in lines).encode()
        return body + f"crc32c {checksum_of(memoryview(body)):08x}\n".encode()


def read_manifest(files: Files, name: str = MANIFEST_NAME) -> StoreManifest | None:
    """Return the content of MANIFEST, or of a former one that is kept as ``name``; None if the file does not exist.

    Raises `JournalDamaged` if the file is damaged, and `StoreUnusable` for a later format or an unfinished copy.
    """
    try:
        data = files.read(name, MANIFEST_BYTES + 1)
    except FileNotFoundError:
        files.names()  # raises if the directory does not exist either
        return None
    files.close(name)
    if data == UNFINISHED:
        where = files.path("").rstrip("/")
        raise StoreUnusable(
            f"{where} is an unfinished copy: it is being made, or was interrupted. If no process is writing it, "
            "remove the directory and make the copy again."
        )
    return _Lines(files, name, bytes(data)).manifest()


class _Lines:
    """The lines of a MANIFEST that is being parsed."""

    def __init__(self, files: Files, name: str, data: bytes) -> None:
        self._files = files
        self._name = name
        if len(data) > MANIFEST_BYTES:
            raise damaged_manifest(files, name, 1, f"more than {MANIFEST_BYTES} bytes")
        body, ended, rest = data.decode("ascii", "replace").rpartition("\n")
        self._lines = body.split("\n")
        self._at = 0
        if not ended or rest:
            raise damaged_manifest(
                files, name, len(self._lines) + bool(ended), "no end of the last line"
            )
        signed = data[: len(data) - len(self._lines[-1].encode()) - 1]
        self._expected = f"crc32c {checksum_of(memoryview(signed)) if signed else 0:08x}"

    def manifest(self) -> StoreManifest:
        self._check_last()
        (version,) = self._numbers("format")
        if not 1 <= version <= MANIFEST_FORMAT:
            raise StoreUnusable(
                f"{self._files.path(self._name)} has format {version}: it was written by a later version "
                f"of Headwater. This one reads formats up to {MANIFEST_FORMAT}. Start it with the version that "
                "wrote it, or later."
            )
        seed = int(self._match("seed ([0-9a-f]{8})", "seed")[1], 16)
        history = self._history() if version > 1 else None
        image = self._image(_IMAGE_LINES if version > 1 else _IMAGE_LINES[:-1])
        (first,) = self._numbers("first")
        (last,) = self._numbers("last")
        if first < 1 or last < first - 1:
            raise self._flaw(f"journal files from {first} to {last}")
        floor = Synced(*self._numbers("floor", 2))
        (next_image,) = self._numbers("next_image")
        if next_image < 1 or (image is not None and image.number >= next_image):
            raise self._flaw(f"next_image {next_image}, which is not after every image")
        (next_segment,) = self._numbers("next_segment")
        if next_segment < 1:
            raise self._flaw("segments without numbers")
        if self._at != len(self._lines) - 1:
            self._at += 1
            raise self._flaw(f"{self._lines[self._at - 1]!r} after the last field")
        return StoreManifest(seed, image, first, last, floor, next_image, next_segment, history)

    def _check_last(self) -> None:
        last = self._lines[-1]
        if last not in {self._expected, EDITED}:
            self._at = len(self._lines)
            raise self._flaw(f"{last[:80]!r} instead of {self._expected!r}")

    def _history(self) -> StoreHistory | None:
        found = self._match(f"history (?:none|{_HISTORY})", "history")[1]
        left: list[Left] = []
        while found is not None and self._lines[self._at].startswith("left "):
            former = self._match(f"left {_HISTORY} {_NUMBER}", "left")
            left.append(Left(former[1], int(former[2])))
            if len(left) > MOST_LEFT:
                raise self._flaw(f"more than {MOST_LEFT} former histories")
            if left[-1].offset < left[-2:][0].offset:
                raise self._flaw("a former history that was left before an earlier one")
        stopped = None
        if found is not None and self._lines[self._at].startswith("stopped "):
            (stopped,) = self._numbers("stopped")
        return None if found is None else StoreHistory(found, tuple(left), stopped)

    def _image(self, lines: tuple[str, ...]) -> ImageEntry | None:
        found = self._match(f"image (?:none|{_NUMBER})", "image")[1]
        if found is None:
            return None
        if int(found) < 1:
            raise self._flaw("an image without a number")
        return ImageEntry(int(found), *(self._numbers(name)[0] for name in lines))

    def _numbers(self, name: str, count: int = 1) -> list[int]:
        found = self._match(" ".join([name, *[_NUMBER] * count]), name)
        return [int(value) for value in found.groups()]

    def _match(self, pattern: str, name: str) -> re.Match[str]:
        line = self._lines[self._at] if self._at < len(self._lines) - 1 else ""
        self._at += 1
        found = re.fullmatch(pattern, line)
        if found is None:
            raise self._flaw(f"{line[:80]!r} instead of the field {name}")
        return found

    def _flaw(self, found: str) -> Exception:
        return damaged_manifest(self._files, self._name, self._at, found)
