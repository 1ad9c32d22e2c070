"""Checks the files of a store and the state that results from them, and changes neither.

Rule 1. The directory is locked while it is checked: a server that used it would write at the same time.
Rule 2. The pasts that ``journal-retention`` keeps are read too (`headwater.journal.images.retention`): images, journal
        files, and the entries on disk to which only these refer. Damage there concerns only the history.
Rule 3. Recovery stops at the first damaged record, so later records are not examined. A damaged blob concerns its
        own entries only, so all blobs are examined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from headwater.common.moments import iso_time
from headwater.common.names import text_of
from headwater.engine.bodies.blobs import BlobPlace
from headwater.engine.check import broken_invariants
from headwater.engine.entries.entry_block import EntryBlock
from headwater.engine.tier.storing import RECORD_BYTES, place_in
from headwater.errors import JournalDamaged
from headwater.journal.disk.files import Files
from headwater.journal.format.batches import JournalBatch
from headwater.journal.format.checksum import LOCAL_KIND
from headwater.journal.format.failures import reading, without_remedy
from headwater.journal.format.manifest import StoreManifest
from headwater.journal.format.names import (
    UNNEEDED_NAME,
    file_name,
    image_name,
    past_name,
    past_numbers,
)
from headwater.journal.format.records import Synced
from headwater.journal.images.images import read_image
from headwater.journal.images.retention import (
    PastFlaw,
    began_ms,
    examine_pasts,
    examine_unneeded,
    image_number,
)
from headwater.journal.log.closed import read_closed
from headwater.journal.log.report import Cut
from headwater.journal.segments.segment_reader import SegmentReader
from headwater.journal.segments.segments import segment_name
from headwater.persistence.applying import Applying
from headwater.persistence.reading import (
    Key,
    LostEntries,
    Progress,
    StoreReader,
    place_of,
    refuse_unreadable,
    silent,
    stored_blocks,
    unreadable_blocks,
)
from headwater.persistence.source import SegmentSource

STORED_BYTES: Final = 5 + RECORD_BYTES
"""Size of the fact ``stored`` (`headwater.engine.facts.facts`), in bytes."""


class StoreCheck(NamedTuple):
    """The result of checking a directory."""

    directory: str
    groups: int
    """Number of record groups that were applied after the image."""
    streams: int
    entries: int
    damage: str | None
    """Reason why the directory cannot be opened; None if it can."""
    unreadable: list[LostEntries]
    weakened: list[str]
    """Damage that loses nothing: of one of two copies while the other is intact, or of the file ``unneeded``."""
    cuts: list[Cut]
    """Torn ends that a crash left, which the next start will cut off."""
    notes: list[str]
    """Anomalies without a known loss."""
    faults: list[str]
    """Violations of the rules of the engine in the recovered state."""

    past: list[str]
    """Damaged or missing files among those that ``journal-retention`` keeps, one sentence each."""
    past_until: str | None
    """Time before which the history is affected; None if it is not affected."""
    past_remedy: str | None
    """Remedy for the damaged part of the history; None if it is not damaged."""

    @property
    def sound(self) -> bool:
        """True if the current state has no damage and no faults. A torn end was never acknowledged as durable."""
        return self.damage is None and not (self.unreadable or self.weakened or self.faults)

    @property
    def healthy(self) -> bool:
        """True if the current state and all pasts are sound."""
        return self.sound and not self.past


def check_store(files: Files, progress: Progress = silent) -> StoreCheck:
    """Check the store in a directory.

    Raises `StoreInUse` if a process uses it, and `StoreUnusable` if the directory has no store, or if one of the
    store's codecs is not installed.
    """
    files.lock_to_read()
    try:
        with reading(files):
            return _with_past(*_check(files, progress), files, progress)
    finally:
        files.unlock()


def _check(files: Files, progress: Progress) -> tuple[StoreCheck, frozenset[int]]:
    """Check the current state. Return the result, and the segments that it uses."""
    where = files.path("").rstrip("/")
    result = StoreCheck(where, 0, 0, 0, None, [], [], [], [], [], [], None, None)
    try:
        store = StoreReader(files, progress)
        store.apply_image()
        used = frozenset(store.applying.keyspace.sealing.segments())
        for batch in store.of_journal():
            store.applying.apply(batch)
    except JournalDamaged as error:
        return result._replace(damage=str(error)), frozenset()
    recovery, keyspace = store.recovery, store.applying.finish()
    blocks = stored_blocks(keyspace)
    refuse_unreadable(files, blocks)
    result = result._replace(
        groups=recovery.groups,
        streams=len(keyspace.streams),
        entries=sum(stream.length for stream in keyspace.streams.values()),
        unreadable=(unreadable := list(_unreadable(blocks, progress))),
        weakened=list(_weakened(SegmentReader(files, store.seed), blocks)),
        cuts=recovery.cuts,
        notes=[*recovery.notes, *(blob.problem for blob in keyspace.unread_blobs)],
        # The rules cannot be checked without the unreadable blocks.
        faults=[] if unreadable else broken_invariants(keyspace),
    )
    return result, used | {place_of(block).segment for _key, block in blocks}


# --- the past ---------------------------------------------------------------------------------------


def _with_past(
    result: StoreCheck, used: frozenset[int], files: Files, progress: Progress
) -> StoreCheck:
    """Return the result with the findings in the files that ``journal-retention`` keeps. The current state uses the
    segments ``used``."""
    try:
        known, missing = examine_pasts(files)
    except JournalDamaged:  # of MANIFEST, which is in the result already
        return result
    flaws = [one for one in missing if one.certain]
    notes = [one.text for one in missing if not one.certain]
    places: dict[BlobPlace, int] = {}
    for at, (past, later) in enumerate(pairwise(known), 1):
        flaws += _period(files, past, later, known[-1], places)
        progress("kept pasts read", at, len(known) - 1)
    flaws += _blob_flaws(files, places, known[-1].seed if known else 0)
    unneeded = examine_unneeded(files)[1]
    if UNNEEDED_NAME not in files.names() and {one.segment for one in places} - used:
        notes.append(f"{files.path(UNNEEDED_NAME)} is missing: segments may be kept for longer")
    result = result._replace(
        notes=result.notes + notes,
        weakened=result.weakened + ([unneeded] if unneeded is not None else []),
    )
    said = " ".join([*result.weakened, *(one.reason for one in result.unreadable)])
    texts = list(dict.fromkeys(one.text for one in flaws if one.text not in said))
    if not texts:
        return result
    newest = max(one.number for one in flaws)
    later = next((one for one in known if image_number(one) > newest), known[-1])
    gone = [past_name(one) for one in past_numbers(files) if one <= newest]
    instead = f"remove {' '.join(gone)} there, and " if gone else ""
    return result._replace(
        past=texts,
        past_until=iso_time(began_ms(later)),
        past_remedy=(
            f"Restore these files from a copy; or, to go on without that history, {instead}start the store, which removes "
            "the files that no other past names."
        ),
    )


def _period(
    files: Files,
    past: StoreManifest,
    later: StoreManifest,
    current: StoreManifest,
    places: dict[BlobPlace, int],
) -> Iterator[PastFlaw]:
    """Read the image of ``past``, and its journal up to the ``later`` past. Yield the damage. For each blob to
    which the image or the journal refers, store the number of the past in ``places``."""
    number, names, last = image_number(past), frozenset(files.names()), later.first - 1
    try:
        if past.image is not None and image_name(number) in names:
            applying = Applying(files, source=SegmentSource(files, current.seed))
            for batch in read_image(files, past.image, current.seed):
                applying.apply(batch)
            for _key, block in stored_blocks(applying.finish()):
                places[place_of(block)] = number
    except JournalDamaged as error:
        yield PastFlaw(number, without_remedy(error))
    if not all(file_name(one) in names for one in range(past.first, later.first + 1)):
        return
    # A store that was not written to after its last image has no record that names the end of the previous file.
    end = current.floor if current.floor.number == last else Synced(last, 0)
    turn = 0 if past.image is None else past.image.turn
    try:
        for batch in read_closed(files, past.first, end, current.seed, turn):
            places |= dict.fromkeys(_stored_places(batch), number)
    except JournalDamaged as error:
        if not str(error).startswith(files.path(file_name(later.first))):
            yield PastFlaw(number, without_remedy(error))


def _stored_places(batch: JournalBatch) -> Iterator[BlobPlace]:
    """Yield the places in facts of the kind ``stored``. A record group with such facts has no other facts."""
    for start, end in zip(batch.starts, batch.ends, strict=True):
        for at in range(start, end, STORED_BYTES):
            if batch.data[at] != LOCAL_KIND:
                break
            yield place_in(bytes(batch.data[at + STORED_BYTES - RECORD_BYTES : at + STORED_BYTES]))


def _blob_flaws(files: Files, places: dict[BlobPlace, int], seed: int) -> Iterator[PastFlaw]:
    reader, names = SegmentReader(files, seed), frozenset(files.names())
    for place, number in places.items():
        if segment_name(place.segment) not in names:
            path = files.path(segment_name(place.segment))
            yield PastFlaw(number, f"{path} is missing: entries of the past are in it")
            continue
        try:
            reader.body(place)
        except JournalDamaged as error:
            yield PastFlaw(number, without_remedy(error))
        yield from (PastFlaw(number, flaw) for flaw in reader.flaws(place))


def _weakened(reader: SegmentReader, blocks: Sequence[tuple[Key, EntryBlock]]) -> Iterator[str]:
    for _key, block in blocks:
        yield from reader.flaws(place_of(block))


def _unreadable(
    blocks: Sequence[tuple[Key, EntryBlock]], progress: Progress
) -> Iterator[LostEntries]:
    for (database, key), block, reason in unreadable_blocks(blocks, progress):
        first, last = block.first(), (block.last_ms, block.last_seq)
        ends = f"{first[0]}-{first[1]}", f"{last[0]}-{last[1]}"
        yield LostEntries(database, text_of(key), *ends, block.live, reason)
