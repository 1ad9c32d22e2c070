"""Keeps files that MANIFEST does not name any more, so that a store can be read as it was (``journal-retention``).

    manifest-000003   manifest-000004   MANIFEST            each names the files below it
    image-000003      image-000004      image-000005
    journal-000007    journal-000009    journal-000012 …    each continues to the newest

Rule 1. Before MANIFEST names another image, a copy of it is written: ``manifest-NNNNNN``, with the number of its
        image, 0 if it has none. A *past* of the store is one of these copies, its image, and the journal from there on.
Rule 2. A store can be read as it was at a moment if a past from before the moment exists. So the last past that is
        older than the retention is kept, and all later ones; the others are removed. Age is counted from the image
        that MANIFEST names: a store that writes no image keeps all of its journal anyway.
Rule 3. Only a checkpoint removes old pasts, not a start: a process that opens the directory once, with other
        settings, does not remove the pasts that a server keeps.
Rule 4. If the disk has no space for the next journal file or segment, the oldest pasts are removed before their
        time, because accepting writes matters more.
Rule 5. A segment is needed until all pasts begin after the image that was current when the segment lost its last
        reference. The file ``unneeded`` records that image. If the file is lost, segments are kept for longer.
Rule 6. A past that could not be removed keeps the files that it names. A past that lacks a file is not read; its
        other files are removed when it is too old, like any other. A past whose ``manifest-NNNNNN`` is damaged is not
        read either, and the next checkpoint removes it. The other pasts stay readable.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterable
from typing import NamedTuple

from headwater.common.moments import iso_time
from headwater.errors import JournalDamaged, StoreUnusable
from headwater.journal.disk.files import Files
from headwater.journal.format.failures import MANIFEST_NAME, without_remedy
from headwater.journal.format.manifest import StoreManifest, read_manifest
from headwater.journal.format.names import (
    UNNEEDED_NAME,
    file_name,
    image_name,
    image_numbers,
    journal_numbers,
    past_name,
    past_numbers,
)
from headwater.journal.format.records import FILE_HEADER_BYTES, Synced, checksum_of
from headwater.journal.format.replacing import replace_file
from headwater.journal.segments.segments import segment_numbers

log = logging.getLogger("headwater.journal")

_LINE = re.compile(r"(\d{1,18}) (\d{1,18})")


def image_number(manifest: StoreManifest) -> int:
    """Return the number of the image with which a past begins; 0 if it begins with the store."""
    return 0 if manifest.image is None else manifest.image.number


def began_ms(manifest: StoreManifest) -> int:
    """Return the time at which a past begins, in Unix milliseconds; 0 for the store's beginning."""
    return 0 if manifest.image is None else manifest.image.now_ms


def read_pasts(files: Files) -> list[StoreManifest]:
    """Return the pasts that are kept, oldest first, without the current MANIFEST. A damaged one is logged and left
    out: earlier pasts need only the journal, which exists from the oldest past on."""
    found: list[StoreManifest] = []
    for number in past_numbers(files):
        name = past_name(number)
        try:
            manifest = read_manifest(files, name)
        except (JournalDamaged, StoreUnusable, OSError) as error:
            log.warning("%s is ignored: %s", files.path(name), error)
            continue
        if manifest is not None and image_number(manifest) == number:
            found.append(manifest)
    return found


def read_all(files: Files) -> list[StoreManifest]:
    """Return the pasts that can be read, oldest first, then MANIFEST; an empty list without MANIFEST. A past that
    lacks a file is logged and left out: after a failed sync of the directory, a crash can bring back a past whose
    files were removed."""
    current = read_manifest(files)
    if current is None:
        return []
    names, begin = frozenset(files.names()), current.first
    while file_name(begin - 1) in names:
        begin -= 1
    found: list[StoreManifest] = []
    for past in read_pasts(files):
        missing = _missing_file(past, begin, names)
        if missing is None:
            found.append(past)
        else:
            name = past_name(image_number(past))
            log.warning("%s is ignored: %s is missing", files.path(name), missing)
    return [*found, current]


def _missing_file(past: StoreManifest, begin: int, names: frozenset[str]) -> str | None:
    """Return the name of a missing file that this past needs, or None. No journal file from number ``begin`` on is
    missing."""
    if past.first < begin:
        return file_name(begin - 1)
    image = image_name(image_number(past))
    return image if past.image is not None and image not in names else None


class PastFlaw(NamedTuple):
    """A missing or damaged file of a past. ``number`` is the number of the past's image. ``certain`` is False if
    the past may have been removed, and a crash or a backup has left some of its files."""

    number: int
    text: str
    certain: bool = True


def examine_pasts(files: Files) -> tuple[list[StoreManifest], list[PastFlaw]]:
    """Return the pasts that are named, oldest first, then MANIFEST; and the flaws: the files that pasts lack, and each
    damaged ``manifest-NNNNNN``. Return two empty lists without MANIFEST. Raises `JournalDamaged` for a damaged
    MANIFEST."""
    current = read_manifest(files)
    if current is None:
        return [], []
    found: list[PastFlaw] = []
    known: list[StoreManifest] = []
    for number in past_numbers(files):
        try:
            past = read_manifest(files, past_name(number))
        except (JournalDamaged, StoreUnusable) as error:
            found.append(PastFlaw(number, without_remedy(error)))
            continue
        if past is None or image_number(past) != number:
            path = files.path(past_name(number))
            found.append(PastFlaw(number, f"{path} is damaged: it names another image"))
        else:
            known.append(past)
    known.append(current)
    names = frozenset(files.names())
    for past, later in itertools.pairwise(known):
        needed = [image_name(image_number(past))] if past.image is not None else []
        needed += map(file_name, range(past.first, later.first))
        since = "the store's beginning" if past.image is None else iso_time(began_ms(past))
        found += [
            PastFlaw(
                image_number(past),
                f"{files.path(one)} is missing: {past_name(image_number(past))}, the past from {since} on, needs it",
            )
            for one in needed
            if one not in names
        ]
    return known, sorted([*found, *_unnamed(files, {one.number for one in found}, known)])


def _unnamed(files: Files, flawed: set[int], known: list[StoreManifest]) -> list[PastFlaw]:
    """Return a flaw for each past that has files but no ``manifest-NNNNNN``. Pasts are removed oldest first."""
    numbers = [*map(image_number, known)]
    kept = {one: image_name(one) for one in image_numbers(files) if one < numbers[-1]}
    journal = journal_numbers(files)[:1]
    if journal and journal[0] < known[0].first and min([*kept, *flawed, numbers[0]]) == numbers[0]:
        kept[0] = file_name(journal[0])
    gone = {one: name for one, name in kept.items() if one not in flawed and one not in numbers}
    return [_unnamed_flaw(files, one, name, min(numbers)) for one, name in gone.items()]


def _unnamed_flaw(files: Files, number: int, name: str, oldest: int) -> PastFlaw:
    path = files.path(past_name(number))
    if number > oldest:
        return PastFlaw(number, f"{path} is missing: nothing else names {name}")
    text = f"{name} is left of a past that was removed, or {path} was deleted; the next start removes it"
    return PastFlaw(number, text, certain=False)


def read_unneeded(files: Files) -> dict[int, int]:
    """Return segment without references → number of the image that was current when this was found."""
    return examine_unneeded(files)[0]


def examine_unneeded(files: Files) -> tuple[dict[int, int], str | None]:
    """Return the result of `read_unneeded`, and the damage of the file or None. A damaged file counts as empty."""
    if UNNEEDED_NAME not in files.names():
        return {}, None
    data = bytes(files.content(UNNEEDED_NAME).data)
    files.close(UNNEEDED_NAME)
    at = data.rfind(b"crc32c ")
    body = data if at < 0 else data[:at]  # without a checksum: of an earlier version
    lines = [_LINE.fullmatch(line) for line in body.decode("ascii", "replace").splitlines()]
    found = {int(one[1]): int(one[2]) for one in lines if one is not None}
    if len(found) < len(lines) or (at >= 0 and data != _signed(body)):
        path = files.path(UNNEEDED_NAME)
        return (
            {},
            f"{path} is damaged at offset {max(at, 0)}: found no valid checksum. The next image writes it again",
        )
    return found, None


def _signed(body: bytes) -> bytes:
    return body + b"crc32c %08x\n" % checksum_of(memoryview(body))


class Retention:
    """Retention of one store. Pasts are kept for ``keep_ms`` milliseconds; 0 keeps nothing."""

    def __init__(self, files: Files) -> None:
        self.keep_ms = 0
        self._files = files
        self._pasts: list[StoreManifest] | None = None

    @property
    def pasts(self) -> list[StoreManifest]:
        """The pasts that are kept, oldest first."""
        if self._pasts is None:
            self._pasts = read_pasts(self._files)
        return self._pasts

    def read_again(self) -> None:
        """Forget the pasts that were read. The next use reads them from the directory again."""
        self._pasts = None

    def note(self, manifest: StoreManifest) -> None:
        """Keep a copy of this MANIFEST, which is about to be replaced. Its name is durable with the next one.
        Does nothing if ``keep_ms`` is 0. Raises `OSError`."""
        if self.keep_ms:
            replace_file(self._files, past_name(image_number(manifest)), manifest.text())
            self.read_again()

    def too_old(self, now_ms: int) -> list[str]:
        """Return the names of this module's files that are not needed at ``now_ms``, and forget their pasts."""
        past = self.pasts
        kept: list[StoreManifest] = []
        if self.keep_ms:
            older = [one for one in past if began_ms(one) <= now_ms - self.keep_ms]
            kept = past[max(0, len(older) - 1) :]
        self._pasts = kept
        named = {image_number(one) for one in kept}
        numbers = past_numbers(self._files)
        unused = (
            [UNNEEDED_NAME] if not self.keep_ms and UNNEEDED_NAME in self._files.names() else []
        )
        return unused + [past_name(one) for one in numbers if one not in named]

    def give_up_oldest(self) -> StoreManifest | None:
        """Forget and return the oldest past. Return None without pasts, or if ``keep_ms`` is 0."""
        past = self.pasts if self.keep_ms else []
        if not past:
            return None
        self._pasts = past[1:]
        return past[0]

    def needed(self, unneeded: Iterable[int], image: int) -> set[int]:
        """Return the segments among ``unneeded`` that a past needs. The store must not refer to ``unneeded``, and
        ``image`` is the number of its current image."""
        unneeded = set(unneeded)
        if not (self.keep_ms or self.pasts):
            return set()
        known = read_unneeded(self._files)
        since = {one: known[one] for one in segment_numbers(self._files) if one in known}
        since |= {one: known.get(one, image) for one in unneeded}
        if since != known:
            self._write_unneeded(since)
        oldest = image_number(self.pasts[0]) if self.pasts else image
        return {one for one in unneeded if since[one] >= oldest}

    def _write_unneeded(self, since: dict[int, int]) -> None:
        text = "".join(f"{one} {image}\n" for one, image in sorted(since.items()))
        try:
            replace_file(self._files, UNNEEDED_NAME, _signed(text.encode()))
        except OSError as error:
            log.warning("%s was not written: %s", self._files.path(UNNEEDED_NAME), error)


def oldest_past(files: Files) -> StoreManifest | None:
    """Return a MANIFEST for reading the store from the oldest past on, to the journal's end; None without
    MANIFEST."""
    known = read_all(files)
    return known[-1]._replace(image=known[0].image, first=known[0].first) if known else None


def past_before(files: Files, at_ms: int) -> StoreManifest:
    """Return a MANIFEST for reading the store from the last past before ``at_ms`` on, to the journal's end.

    Raises `StoreUnusable` without MANIFEST, or if no past reaches back to ``at_ms``.
    """
    where, known = files.path("").rstrip("/"), read_all(files)
    if not known:
        raise StoreUnusable(f"{where} has no {MANIFEST_NAME}: no store was ever started there")
    before = [one for one in known if began_ms(one) <= at_ms]
    flawed = "; ".join(one.text for one in examine_pasts(files)[1]) if not before else ""
    if flawed:
        raise StoreUnusable(
            f"{where} cannot be read as it was at {iso_time(at_ms)}: {flawed}. Restore the file, or use a backup of that "
            "time"
        )
    if not before:
        raise StoreUnusable(
            f"{where} cannot be read as it was at {iso_time(at_ms)}: its history begins at {iso_time(began_ms(known[0]))}. "
            "Use an earlier backup; journal-retention says for how long a store keeps its journal"
        )
    return known[-1]._replace(image=before[-1].image, first=before[-1].first)


def until_next_image(files: Files, past: StoreManifest) -> StoreManifest:
    """Return the MANIFEST of a past, with a journal that ends with the file after the next image. If the past has the
    last image, return it unchanged."""
    later = [one for one in read_all(files) if image_number(one) > image_number(past)]
    if not later:
        return past
    # The files before the last one are closed and durable.
    last = later[0].first
    return past._replace(last=last, floor=min(past.floor, Synced(last, FILE_HEADER_BYTES)))
