"""Blobs in memory, for tests of stored blocks without segments."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from headwater.common import limits
from headwater.engine.bodies.blobs import BlobPlace
from headwater.engine.bodies.codecs import make_codec
from headwater.engine.check import broken_invariants
from headwater.engine.entries.entry_block import EntryBlock
from headwater.engine.entries.entry_log import EntryLog
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from headwater.engine.tier.sealing import CompressionJob, compressed
from headwater.errors import JournalDamaged
from tests.unit.keyspaces import keyspace_of

BLOCK_BYTES = 1024

SEGMENT_BLOBS = 5
"""How many blobs a segment has."""


class MemoryBlobs:
    """A source of blobs. ``cached`` is the probability that a body can be read without waiting. ``lost`` are
    places whose blobs are damaged."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.cached = 1.0
        self.blobs: dict[BlobPlace, tuple[bytes, bytes]] = {}
        self.lost: set[BlobPlace] = set()
        self.reads = 0
        """How many bodies were read."""
        self.ahead: list[BlobPlace] = []

    # --- as a source ----------------------------------------------------------------------------

    def body(self, place: BlobPlace) -> bytes:
        self.reads += 1
        return self._blob(place)[1]

    def cached_body(self, place: BlobPlace) -> bytes | None:
        if place in self.lost or self.random.random() >= self.cached:
            return None
        return self.body(place)

    def ids(self, place: BlobPlace) -> bytes:
        return self._blob(place)[0]

    def read_ahead(self, places: Sequence[BlobPlace]) -> None:
        self.ahead += places

    def _blob(self, place: BlobPlace) -> tuple[bytes, bytes]:
        if place in self.lost:
            raise JournalDamaged(f"the blob at {place} is damaged")
        return self.blobs[place]

    # --- as segments ----------------------------------------------------------------------------

    def write(self, ids: bytes, body: bytes) -> BlobPlace:
        """Store a blob, and return its place."""
        number = len(self.blobs)
        place = BlobPlace(
            1 + number // SEGMENT_BLOBS,
            64 + 10**6 * (number % SEGMENT_BLOBS),
            68 + len(ids),
            len(body),
        )
        self.blobs[place] = (ids, body)
        return place

    def store(self, keyspace: Keyspace, job: CompressionJob) -> bool:
        """Do one job of ``keyspace``. Return whether a fact was written."""
        codec, body = compressed(job, make_codec(keyspace.sealing.codec))
        return keyspace.store(job, codec, body, self.write(job.ids, body))

    def store_all(self, keyspace: Keyspace, *, budget: int = 0, codec: str = "zlib") -> None:
        """Store everything that may be stored, as the coldest blocks of a store."""
        keyspace.sealing.configure(budget, codec)
        for _ in range(3):  # A block that is still written to is skipped once.
            while jobs := keyspace.sealing.choose(3):
                for job in jobs:
                    self.store(keyspace, job)


def small_stored_blocks(patches: pytest.MonkeyPatch) -> None:
    """Give stores that are created from now on small blocks, and a cache of two of them."""
    patches.setattr(limits, "BLOCK_MAX_BYTES", BLOCK_BYTES)
    patches.setattr(limits, "SEALED_LEAST_BYTES", 100)
    patches.setattr(limits, "PART_LEAST_BYTES", 256)
    patches.setattr(limits, "SEALED_MOST_BYTES", 4096)
    patches.setattr(limits, "SEALING_LAG_BYTES", 0)
    patches.setattr(limits, "COLD_CACHE_BYTES", 2 * BLOCK_BYTES)


def stored_blocks(log: EntryLog, segments: set[int]) -> list[EntryBlock]:
    """Return the blocks of a log whose blobs are in one of ``segments``."""
    return [
        block
        for block in log.blocks
        if block.packed is not None
        and block.packed.blob is not None
        and block.packed.blob.segment in segments
    ]


def places(stream: StoredStream) -> list[BlobPlace | None]:
    """Return where each block is stored."""
    found = [block.packed for block in stream.log.blocks]
    return [None if one is None or one.blob is None else one.blob.place() for one in found]


def store(stream: StoredStream, blobs: MemoryBlobs, budget: int = 0) -> None:
    blobs.store_all(keyspace_of(stream), budget=budget)
    assert broken_invariants(keyspace_of(stream)) == []
