"""Copies live blobs out of segments that are mostly dead, so that those segments can be deleted.

    sparse_segments ──▶ numbers of old segments ──▶ compact ──▶ old place → new place
                        (less than half live)       copies whole blobs, and fsyncs them

Rule 1. A blob is copied whole: head and ids from a valid copy, and the body if its checksum is valid. The new
        checksums are bound to the new place.
Rule 2. A damaged blob stays where it is and is reported. Its segment must be kept.
Rule 3. Nothing is changed or deleted here. The caller replaces the places, and then deletes segments to
        which nothing refers.
Rule 4. The copies that `compact` returns are durable. If the disk is full, it returns the copies made until then.
Rule 5. Reading and writing together stay below a rate, in bytes a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headwater.common.clock import Clock, SystemClock
from headwater.engine.bodies.blobs import BlobPlace
from headwater.errors import JournalDamaged
from headwater.journal.format.records import FILE_HEADER_BYTES
from headwater.journal.segments.segment_reader import SegmentReader
from headwater.journal.segments.segments import SegmentWriter

SPARSE = 0.5
"""Share of live bytes below which a segment is compacted."""
_AHEAD_BLOBS = 64
"""Number of blobs that are read ahead."""
_LEAST_PAUSE_SECONDS = 0.02
"""Minimum length of a pause. Shorter pauses are added up, because a timer is late by up to a tenth of this."""
_BURST_SECONDS = 0.1
"""Maximum delay that copying may make up for after a slow read, in seconds."""


@dataclass
class Compaction:
    """The result of `compact`."""

    moved: dict[BlobPlace, BlobPlace] = field(default_factory=dict)
    """Old place → new place, in the order in which the blobs were copied."""
    damaged: dict[BlobPlace, str] = field(default_factory=dict)
    """Blobs that stayed → description of their damage."""
    copied_bytes: int = 0
    stopped: str | None = None
    """Reason why not every blob was copied, if the disk is full or broken; otherwise None."""


def sparse_segments(sizes: Mapping[int, int], live: Mapping[int, int]) -> set[int]:
    """Return the segments to compact. ``sizes`` is number → size of the file, ``live`` number → bytes of live
    blobs. A segment without a live blob is not compacted: it can be deleted as it is.

    >>> sorted(sparse_segments({1: 2064, 2: 2064, 3: 2064, 4: 2064}, {1: 999, 2: 1000, 3: 1}))
    [1, 3]
    """
    return {
        number
        for number, size in sizes.items()
        if 0 < live.get(number, 0) < SPARSE * (size - FILE_HEADER_BYTES)
    }


def compact(
    places: Iterable[BlobPlace],
    reader: SegmentReader,
    writer: SegmentWriter,
    bytes_per_second: int,
    *,
    clock: Clock | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Compaction:
    """Copy the blobs at these places to the end of ``writer``, and make the copies durable.

    ``pause`` waits for a number of seconds; an exception in it ends the compaction. Raises `OSError` if an fsync
    fails, or if a blob that may be intact cannot be read: then nothing was moved.
    """
    clock = clock if clock is not None else SystemClock()
    result = Compaction()
    # In the order of the old segments, which is the order of writing: neighbours stay neighbours.
    waiting = sorted(set(places))
    due = clock.monotonic()
    for index, place in enumerate(waiting):
        if index % _AHEAD_BLOBS == 0:
            reader.read_ahead(waiting[index : index + _AHEAD_BLOBS])
        try:
            head, ids = reader.head_and_ids(place)
            body = reader.body(place)
        except JournalDamaged as error:
            result.damaged[place] = str(error)
            continue
        try:
            result.moved[place] = writer.append(head, ids, body)
        except OSError as error:
            result.stopped = f"[Errno {error.errno}] {error.strerror}"
            break
        result.copied_bytes += place.size
        now = clock.monotonic()
        due = max(due, now - _BURST_SECONDS) + 2 * place.size / bytes_per_second
        if due - now >= _LEAST_PAUSE_SECONDS:
            pause(due - now)
    if result.moved:
        writer.sync()
    return result
