"""Keeps MANIFEST, which names the image and the journal files of the store. Numbers the store's segments.

Rule 1. MANIFEST is replaced as a whole: a new file is written, fsynced and renamed, and the directory is
        fsynced. A crash leaves the old one or the new one.
Rule 2. A file is durable before MANIFEST names it. A file that MANIFEST does not name any more is removed
        after the new MANIFEST is durable.
Rule 3. Failing to replace MANIFEST loses nothing: the old one stays true. The replacement may be retried,
        except after a failed fsync of the directory: then it is unknown which MANIFEST a crash would leave,
        so nothing is created, replaced or removed until a restart.
Rule 4. A directory without MANIFEST contains no image, and journal files from 1 on. The first start that has
        recovered the directory writes a MANIFEST.
Rule 5. A segment is removed only if MANIFEST says, durably, that its number was used: the number of a segment
        is never used again.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterable

from headwater.common.moments import iso_time
from headwater.journal.disk.files import Files
from headwater.journal.format.failures import MANIFEST_NAME, missing_file
from headwater.journal.format.manifest import ImageEntry, StoreManifest, read_manifest
from headwater.journal.format.names import (
    TEMPORARY_SUFFIX,
    file_name,
    image_name,
    image_numbers,
    journal_numbers,
    past_name,
)
from headwater.journal.format.records import Synced
from headwater.journal.format.replacing import replace_file
from headwater.journal.images.retention import Retention, began_ms, image_number, read_unneeded
from headwater.journal.images.rotation import Rotation
from headwater.journal.segments.segments import segment_name, segment_numbers

log = logging.getLogger("headwater.journal")

NOTHING_NEEDED = 1 << 62
"""A number that no journal file has."""

_FIRST_IMAGE_BYTES = 64 * 1024 * 1024
"""Growth of the journal, in bytes, at which the first image is written with default settings."""


class Catalog:
    """The content of MANIFEST, and the sizes of the closed journal files.

        manifest     the content of MANIFEST; None if the file does not exist yet
        floor        the end of the durable part of the journal; the next MANIFEST records it
        history      the history of the store; None for a new store until its recovery ends. The next MANIFEST
                     records it
        closed       the end of each closed file from ``first`` on, in order
        reached      by the number of a closed file that exists, also of one before ``first``, the offset of the
                     store at its end
        follower_needs  the first journal file that a replica needs; `NOTHING_NEEDED` if no replica needs any
        fresh        True if this process has written MANIFEST, durably
        broken       the reason why MANIFEST cannot be replaced until a restart; None if it can

    ``past`` is a former MANIFEST from which the store is read (`retention.past_before`); None for the current one.

    The constructor raises `JournalDamaged` if MANIFEST is damaged or its image is missing, and `StoreUnusable`
    for a later format.
    """

    def __init__(self, files: Files, past: StoreManifest | None = None) -> None:
        self._files = files
        self.manifest: StoreManifest | None = read_manifest(files) if past is None else past
        self.retention = Retention(files)
        self.floor = Synced(0, 0) if self.manifest is None else self.manifest.floor
        self.history = None if self.manifest is None else self.manifest.history
        self.closed: list[Synced] = []
        self.reached: dict[int, int] = {}
        self.follower_needs = NOTHING_NEEDED
        self.fresh = False
        self._seed: int | None = None
        self.broken: str | None = None
        self._removes = True
        """True if files may be removed. After a failed fsync of the directory, a past that names them may come back."""
        self._removing = threading.Lock()
        """Held while something is removed: a checkpoint's thread, the sealer and the node may do so."""
        self._mutex = threading.Lock()
        known = 1 if self.manifest is None else self.manifest.next_segment
        self.next_segment = max([known, *(number + 1 for number in segment_numbers(files))])
        self._refuse_missing_image()

    def _refuse_missing_image(self) -> None:
        there = image_numbers(self._files)
        if self.manifest is None:
            if there:
                reason = f"{self._files.path(image_name(there[0]))} exists"
                raise missing_file(self._files, MANIFEST_NAME, reason)
        elif self.image is not None and self.image.number not in there:
            reason = f"{MANIFEST_NAME} names it"
            raise missing_file(self._files, image_name(self.image.number), reason)

    # --- content --------------------------------------------------------------------------------

    @property
    def image(self) -> ImageEntry | None:
        """The image with which the store begins; None if it has no image."""
        return None if self.manifest is None else self.manifest.image

    @property
    def current_image(self) -> int:
        """The number of the image; 0 if the store has no image."""
        return 0 if self.image is None else self.image.number

    @property
    def first(self) -> int:
        """The number of the first journal file."""
        return 1 if self.manifest is None else self.manifest.first

    @property
    def last(self) -> int:
        """The number of the last journal file that must exist; 0 if unknown."""
        return 0 if self.manifest is None else self.manifest.last

    @property
    def image_bytes(self) -> int:
        """The size of the image in bytes; 0 if the store has no image."""
        return 0 if self.image is None else self.image.size

    @property
    def spare_bytes(self) -> int:
        """Number of bytes that must stay free on the disk for the next image: one and a half times the last image
        or, if larger, the closed journal files, which count up to `_FIRST_IMAGE_BYTES`."""
        return max(self.image_bytes, min(self.closed_bytes, _FIRST_IMAGE_BYTES)) * 3 // 2

    @property
    def closed_bytes(self) -> int:
        """The size of all records in closed files, in bytes."""
        return sum(end.offset for end in self.closed)

    def next_image(self) -> int:
        """Return a number that no image has had, according to MANIFEST and the directory."""
        known = 1 if self.manifest is None else self.manifest.next_image
        return max([known, *(number + 1 for number in image_numbers(self._files, unfinished=True))])

    def close_file(self, end: Synced, offset: int) -> None:
        """Record that a journal file has ended at the ``offset`` of the store, and that it is durable up to ``end``."""
        self.closed.append(end)
        self.reached[end.number] = offset
        self.floor = end

    def rotation(self, number: int, turn: int, now_ms: int, offset: int) -> Rotation:
        """Return the data for an image, after the journal has continued in file ``number``."""
        end = self.closed[-1] if self.closed else Synced(self.first - 1, 0)
        return Rotation(self.next_image(), number, self.first, end, turn, now_ms, offset)

    def take_segment(self) -> int:
        """Return the number of a new segment. Any thread may call this."""
        with self._mutex:
            self.next_segment += 1
            return self.next_segment - 1

    # --- replacing ------------------------------------------------------------------------------

    def start(self, seed: int, last: int) -> None:
        """Write a MANIFEST after a recovery, because the visible one may not be durable. ``last`` is the last journal
        file. Raises `OSError`; the store can be used then, but no file can be created."""
        self._seed = seed
        found = self.manifest
        if found is None:
            found = StoreManifest(seed, None, 1, last, self.floor, 1)
        self.replace(found._replace(last=last))

    def name_last(self, number: int) -> None:
        """Make MANIFEST name journal file ``number``, whose name is durable, as the last. Does nothing before
        `start` in a directory without MANIFEST. Raises `OSError`."""
        if self.manifest is not None:
            if self.manifest.last < number:
                self.replace(self.manifest._replace(last=number))
        elif self._seed is not None:
            self.start(self._seed, number)

    def replace(self, manifest: StoreManifest) -> None:
        """Replace MANIFEST durably, with the current `floor` and `history`. Raises `OSError`."""
        if self.broken is not None:
            raise OSError(errno.EIO, self.broken)
        manifest = manifest._replace(
            floor=self.floor,
            next_image=max(manifest.next_image, self.next_image()),
            next_segment=max(manifest.next_segment, self.next_segment),
            history=self.history,
        )
        files = self._files
        replace_file(files, MANIFEST_NAME, manifest.text())
        try:
            files.sync_directory()
        except OSError as error:
            self.broken = (
                f"[Errno {error.errno}] {error.strerror} (directory, with {MANIFEST_NAME}); no file is "
                "created until a restart"
            )
            raise
        files.close(MANIFEST_NAME)
        self.manifest = manifest
        self.fresh = True

    def save_floor(self, floor: Synced) -> None:
        """Write the `floor` if MANIFEST has another one. A failure is logged: nothing is lost."""
        self.floor = floor
        if self.manifest is not None and self.manifest.floor != floor:
            self._save()

    def save_stop(self, floor: Synced, offset: int) -> None:
        """Write that the store was stopped cleanly at ``offset``, and the `floor`. A failure is logged: nothing is lost."""
        self.floor = floor
        if self.history is not None:
            self.history = self.history._replace(stopped=offset)
        if self.manifest is not None:
            self._save()

    def _save(self) -> None:
        assert self.manifest is not None
        try:
            self.replace(self.manifest)
        except OSError as error:
            log.warning("%s was not replaced: %s", self._files.path(MANIFEST_NAME), error)

    # --- removing -------------------------------------------------------------------------------

    def use_image(self, entry: ImageEntry, first: int) -> None:
        """Make MANIFEST begin with this image, followed by the journal files from ``first`` on. Raises
        `OSError` if MANIFEST was not replaced."""
        assert self.manifest is not None, "no MANIFEST was written"
        assert self.first <= first, "a journal file that is not there any more"
        with self._removing:
            self.retention.note(self.manifest)
        self.replace(self.manifest._replace(image=entry, first=first, next_image=entry.number + 1))
        self.closed = [end for end in self.closed if end.number >= first]

    def remove_old(self, *, expire: bool = False) -> None:
        """Remove the journal files and images that neither MANIFEST nor a past names any more, oldest first; with
        ``expire`` also the pasts that are too old. A failure is logged. The next image or start removes files that are
        left because of a failure or a backup. Do not call this while an image is written."""
        now_ms = 0 if self.image is None else self.image.now_ms
        with self._files.removable() as free, self._removing:
            if free and self._removes:
                self._remove_pasts(self.retention.too_old(now_ms) if expire else [])
                self._remove_unnamed(self.next_image())

    def make_room(self, needed: int) -> int:
        """Return the number of free bytes on the disk, after removing the oldest pasts while fewer than ``needed`` are
        free. Raises `OSError`; any thread may call this, also while an image is written."""
        free = self._files.free_bytes()
        while free < needed and self._give_up_oldest():
            free = self._files.free_bytes()
        return free

    def _give_up_oldest(self) -> bool:
        """Remove the oldest past and the files that only it names. Return whether a past was removed. Removes nothing
        while a backup is made."""
        with self._files.removable() as free, self._removing:
            oldest = self.retention.give_up_oldest() if free and self._removes else None
            if oldest is None:
                return False
            if not self._remove_pasts([past_name(image_number(oldest))]):
                return False
            log.warning(
                "the disk is full, so %s no longer keeps its past before the image after %s: journal-retention asks for more "
                "than there is space for",
                self._files.path("").rstrip("/"),
                "its beginning" if oldest.image is None else iso_time(began_ms(oldest)),
            )
            # The next image may be complete, and not yet in MANIFEST.
            self._remove_unnamed(self.current_image)
            unneeded = read_unneeded(self._files)
        self.remove_segments(unneeded)
        return True

    def _remove_pasts(self, names: list[str]) -> bool:
        """Remove these former MANIFESTs durably, before the files that they name. Return whether all are gone. A
        MANIFEST that could not be removed is still a past, and keeps the files that it names."""
        removed = [self._remove(name) for name in names]
        if not all(removed):
            self.retention.read_again()
        try:
            if names:
                self._files.sync_directory()
        except OSError as error:
            log.warning(
                "nothing is removed from %s until a restart: it could not be synced: %s",
                self._files.path(""),
                error,
            )
            self._removes = False
        return all(removed)

    def _remove_unnamed(self, last: int) -> None:
        """Remove the journal files, and the images up to number ``last``, that neither MANIFEST nor a past names."""
        if not self._removes:
            return
        files, pasts = self._files, self.retention.pasts
        first = min([self.first, self.follower_needs, *(one.first for one in pasts)])
        kept = {self.current_image, *map(image_number, pasts)}
        old = [file_name(number) for number in journal_numbers(files) if number < first]
        images = [one for one in image_numbers(files) if one <= last and one not in kept]
        for name in [*old, *map(image_name, images)]:
            self._remove(name)
        self.reached = {number: at for number, at in self.reached.items() if number >= first}

    def discard_image(self, number: int) -> None:
        """Remove an image that is not used, and its unfinished file, unless the content of MANIFEST after a crash
        is unknown."""
        if self.broken is not None or (self.image is not None and self.image.number == number):
            return
        names = self._files.names()
        for name in (image_name(number), image_name(number) + TEMPORARY_SUFFIX):
            if name in names:
                self._remove(name)

    def remove_segments(self, numbers: Iterable[int]) -> list[int]:
        """Remove the segments ``numbers``, to which the store must not refer any more, unless a past needs them.
        Return the removed ones. A failure is logged; any thread may call this. Removes nothing while a backup is
        made."""
        known = 1 if self.manifest is None else self.manifest.next_segment
        with self._files.removable() as free, self._removing:
            unneeded = [one for one in numbers if free and self._removes and one < known]
            needed = self.retention.needed(unneeded, self.current_image)
            return [
                one for one in unneeded if one not in needed and self._remove(segment_name(one))
            ]

    def _remove(self, name: str) -> bool:
        try:
            self._files.remove(name)
        except OSError as error:
            log.warning("%s could not be removed: %s", self._files.path(name), error)
            return False
        return True
