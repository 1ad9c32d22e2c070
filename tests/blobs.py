"""Blobs for tests of segments: their content follows from a number, so that none is taken for another."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

from headwater.engine.bodies.blobs import BlobPlace
from headwater.journal.disk.files import Files
from headwater.journal.segments.blobs import BlobHead
from headwater.journal.segments.segment_reader import SegmentReader
from headwater.journal.segments.segments import SegmentWriter

SEED = 0xC0FFEE11


def parts_of(number: int, *, body_bytes: int = 40) -> tuple[BlobHead, bytes, bytes]:
    """Return head, ids and body of blob ``number``."""
    random = Random(number)
    head = BlobHead(
        origin=number,
        first_ms=1000 * number,
        first_seq=1,
        last_ms=1000 * number + 999,
        last_seq=2**64 - 1,
        entries=number + 3,
        codec=number % 3,
        raw_bytes=2 * body_bytes,
    )
    return head, random.randbytes(5 + number % 7), random.randbytes(body_bytes)


def numbers_from(first: int) -> Callable[[], int]:
    """Return a function that reserves numbers of segments."""
    return itertools.count(first).__next__


def writer_of(files: Files, *, first: int = 1, segment_bytes: int = 1 << 20) -> SegmentWriter:
    """Return a writer whose first segment has number ``first``."""
    return SegmentWriter(files, SEED, numbers_from(first), segment_bytes)


def check_readable(files: Files, number: int, place: BlobPlace, *, body_bytes: int = 40) -> None:
    """Check that every part of blob ``number`` is at its place."""
    reader = SegmentReader(files, SEED)
    head, ids, body = parts_of(number, body_bytes=body_bytes)
    assert reader.head_and_ids(place) == (head, ids)
    assert reader.body(place) == body
