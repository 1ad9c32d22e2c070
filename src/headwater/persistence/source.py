"""Reads the blobs of a store for its engine."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from headwater.common.clock import SystemClock
from headwater.common.log_limit import LimitedLog
from headwater.engine.bodies.blobs import BlobPlace
from headwater.errors import JournalDamaged
from headwater.journal.disk.files import Files
from headwater.journal.segments.blobs import BlobDamaged
from headwater.journal.segments.segment_reader import SegmentReader
from headwater.journal.segments.segments import segment_name

_log = logging.getLogger("headwater.server")


class SegmentSource:
    """`headwater.engine.bodies.blobs.BlobSource` of a directory. Any thread may call the methods.

    If a body cannot be read, `body` logs that and raises `JournalDamaged`: only its entries are affected.
    """

    def __init__(self, files: Files, seed: int) -> None:
        self.reader = SegmentReader(files, seed)
        self.reads = 0
        """Approximate number of bodies that were read and were not in the page cache."""
        self.read_bytes = 0
        """Size of these bodies, in bytes."""
        self.failures = 0
        """Number of failed reads."""
        self.image_segments: frozenset[int] = frozenset()
        """Segments to which the loaded image refers."""
        self._files = files
        self._log = LimitedLog(_log, monotonic=SystemClock().monotonic)

    def body(self, place: BlobPlace) -> bytes:
        self.reads += 1
        self.read_bytes += place.body_bytes
        try:
            return self.reader.body(place)
        except JournalDamaged as error:
            self.failures += 1
            self._log.warning("entries on disk cannot be read: %s", error)
            raise
        except OSError as error:
            self.failures += 1
            path = self._files.path(segment_name(place.segment))
            self._log.warning("%s cannot be read at offset %d: %s", path, place.offset, error)
            raise BlobDamaged(f"{path} cannot be read at offset {place.offset}: {error}") from error

    def cached_body(self, place: BlobPlace) -> bytes | None:
        return self.reader.cached_body(place)

    def ids(self, place: BlobPlace) -> bytes:
        return self.reader.ids(place)

    def read_ahead(self, places: Iterable[BlobPlace]) -> None:
        self.reader.read_ahead(places)
