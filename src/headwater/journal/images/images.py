"""Images: the state at one turn, as groups in a separate file. Loading an image is a replay.

    image-NNNNNN   ┌──────────────┬───────┬───────┬───┬───────────────────┐
                   │ image header │ group │ group │ … │ group "image end" │
                   └──────────────┴───────┴───────┴───┴───────────────────┘

Rule 1. The header has the size of a journal file's but another kind and magic, so that neither is mistaken
        for the other. Groups are bound to the file and their positions, with keys that no journal file has.
Rule 2. All groups have the turn and the time of the image: those of the last group that it includes.
Rule 3. The last group counts the others and their bytes, and the file ends with it. MANIFEST has the size and
        the number of groups as well. So a truncated image, or one of another number, is damage.
Rule 4. An image has a temporary name until it is durable. Until MANIFEST names it, it is not part of the store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from struct import Struct

from headwater.errors import JournalDamaged, StoreUnusable
from headwater.journal.disk.files import Files
from headwater.journal.format.batches import JournalBatch, PieceReader
from headwater.journal.format.checksum import bind_groups, place_mask
from headwater.journal.format.failures import damaged_image
from headwater.journal.format.manifest import ImageEntry
from headwater.journal.format.names import TEMPORARY_SUFFIX, image_name
from headwater.journal.format.records import (
    FILE_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    begin_group,
    data_header,
    read_data_header,
    read_groups,
    seal_group,
)
from headwater.journal.images.rotation import Rotation

IMAGE_FORMAT = 1
_KEYS = 1
"""Number of the key space of images; `records.file_key` uses 0."""

_HEADER_KIND = 0x04
_MAGIC = b"headwater image"
_END = Struct("<BQQ")
_END_KIND = 0x03
END_GROUP_BYTES = GROUP_HEADER_BYTES + _END.size


def image_key(number: int) -> int:
    """Return the key that binds the groups of image ``number`` to it."""
    return place_mask(_KEYS, number)


class ImageWriter:
    """Writes the image of ``rotation``, group by group. ``seed`` is the store's.

    The constructor, `write` and `finish` raise `OSError` if the disk fails. After that, call only `abandon`.
    """

    def __init__(self, files: Files, rotation: Rotation, seed: int) -> None:
        self._files = files
        self._rotation = rotation
        self._seed = seed
        number = rotation.image
        self._key = image_key(number)
        self._name = image_name(number) + TEMPORARY_SUFFIX
        self._groups = 0
        self._end = FILE_HEADER_BYTES
        files.create(self._name, 0)
        header = data_header(_HEADER_KIND, _MAGIC, IMAGE_FORMAT, seed, number, rotation.turn)
        files.write(self._name, 0, header)

    def write(self, facts: bytearray) -> None:
        """Write one group with these facts of the engine, at least one byte and at most
        `MAX_RECORD_GROUP_BYTES`."""
        self._append(facts)
        self._groups += 1

    def _append(self, facts: bytes | bytearray) -> None:
        buffer = bytearray()
        mark = begin_group(buffer)
        buffer += facts
        turn, now_ms = self._rotation.turn, self._rotation.now_ms
        sealed = seal_group(buffer, mark, turn, now_ms, self._seed)
        assert sealed, "a group without facts"
        bind_groups(buffer, 0, len(buffer), self._key, self._end)
        self._files.write(self._name, self._end, buffer)
        self._end += len(buffer)

    def finish(self) -> ImageEntry:
        """Make the image durable under its final name. Return the entry for `Journal.use_image`."""
        self._append(_END.pack(_END_KIND, self._groups, self._end))
        files, rotation = self._files, self._rotation
        name = image_name(rotation.image)
        files.sync(self._name)
        files.rename(self._name, name)
        files.sync_directory()
        files.close(name)
        return ImageEntry(
            rotation.image,
            rotation.turn,
            rotation.now_ms,
            self._end,
            self._groups,
            rotation.offset,
        )

    def abandon(self) -> None:
        """Remove the unfinished image, if that is possible. Otherwise the next start removes it."""
        with contextlib.suppress(OSError):
            self._files.remove(self._name)


def read_image(files: Files, entry: ImageEntry, seed: int) -> Iterator[JournalBatch]:
    """Yield the groups of the image that MANIFEST names, in batches and with bounded memory.

    Raises `JournalDamaged` for any flaw, with file and offset; `StoreUnusable` for a later format.
    """
    name = image_name(entry.number)

    def damaged(offset: int, found: str) -> JournalDamaged:
        return damaged_image(files, name, offset, found)

    try:
        _check_header(files, name, entry, seed)
        body_end = entry.size - END_GROUP_BYTES
        if body_end < FILE_HEADER_BYTES:
            raise damaged(FILE_HEADER_BYTES, f"an image of {entry.size} bytes")
        key = image_key(entry.number)
        reader = PieceReader(name, files.content(name), body_end, number=0, seed=seed, key=key)
        yield from reader.batches(FILE_HEADER_BYTES, entry.turn)
        reader.refuse_rest(damaged)
        _check_end(files, name, entry, seed)
        if reader.groups != entry.groups:
            found = f"the end after {reader.groups} groups, although there were {entry.groups}"
            raise damaged(body_end, found)
    except FileNotFoundError:
        raise damaged(0, "no file of this name") from None
    finally:
        files.close(name)


def _check_header(files: Files, name: str, entry: ImageEntry, seed: int) -> None:
    header = read_data_header(files.read(name, FILE_HEADER_BYTES), _HEADER_KIND, _MAGIC)
    if header is None:
        raise damaged_image(files, name, 0, "no header of an image")
    version, its_seed, number, turn = header
    if not 1 <= version <= IMAGE_FORMAT:
        raise StoreUnusable(
            f"{files.path(name)} has format {version}; this version of Headwater reads images up to format "
            f"{IMAGE_FORMAT}. Start it with the version that wrote it, or later."
        )
    if (its_seed, number, turn) != (seed, entry.number, entry.turn):
        found = f"the header of {image_name(number)} of turn {turn}, or of another store"
        raise damaged_image(files, name, 0, found)


def _check_end(files: Files, name: str, entry: ImageEntry, seed: int) -> None:
    """Check that the file ends with the group "image end", with the numbers of groups and bytes that were written."""
    start = entry.size - END_GROUP_BYTES
    data = bytearray(files.read(name, END_GROUP_BYTES + 1, start))
    if len(data) > END_GROUP_BYTES:
        raise damaged_image(files, name, entry.size, "bytes after the end of the image")
    if len(data) == END_GROUP_BYTES and data[:4] == _END.size.to_bytes(4, "little"):
        # Binding the group a second time removes the binding.
        bind_groups(data, 0, END_GROUP_BYTES, image_key(entry.number), start)
    group = next(read_groups(memoryview(data), 0, seed=seed, turn=entry.turn), None)
    counted = _END.pack(_END_KIND, entry.groups, start)
    if group is None or group.facts != counted:
        what = f'no group "image end" that counts {entry.groups} groups and {start} bytes'
        raise damaged_image(files, name, start, what)
