"""Stores whose older entries are on disk, in blocks of 2 KiB."""

from __future__ import annotations

import time

import pytest

from headwater.common import limits
from headwater.config.config import Config
from headwater.testing.node import LocalClient, LocalStore

VALUE = "some words that are repeated, some words that are repeated"
PATIENCE_S = 30.0


def small_blocks(patches: pytest.MonkeyPatch) -> None:
    """Give stores that are created from now on blocks of 2 KiB."""
    patches.setattr(limits, "BLOCK_MAX_BYTES", 2048)
    patches.setattr(limits, "SEALED_LEAST_BYTES", 512)
    patches.setattr(limits, "PART_LEAST_BYTES", 256)


def made(**settings: object) -> LocalStore:
    """Return a store that keeps nothing hot, and one opened block."""
    config = Config(port=0, stream_hot_bytes=0, stream_cold_cache_bytes=0)
    for name, value in settings.items():
        setattr(config, name, value)
    return LocalStore(config=config)


def fill(client: LocalClient, count: int, *, key: str = "s", first: int = 1) -> None:
    """Add entries ``first``-1 and so on."""
    for number in range(first, first + count):
        client("XADD", key, f"{number}-1", "field", f"{VALUE} {number}")


def store_all(store: LocalStore) -> None:
    """Let the sealer store all blocks that are due, with the facts in the journal."""
    node, ends = store.node, time.monotonic() + PATIENCE_S
    for _ in range(3):  # an open block is closed the second time its turn comes
        node.tick()
        while node.sealer.has_work():
            assert time.monotonic() < ends, "the sealer does not end"
            node.tick()
    store.client()("SET", "durable", "1")  # its fsync is for the records of the blocks, too


def stored_bytes(store: LocalStore) -> int:
    """Return the size of the entries on disk before compression."""
    size: int = store.node.keyspace.sealing.stored_size
    return size


def finish_segment(store: LocalStore) -> None:
    """End the segment that is being written, as a full one is ended."""
    segments = store.node.services.storage.segments
    assert segments is not None
    segments.writer.finish()


def next_segment(store: LocalStore) -> None:
    """End the segment that is being written, and begin another one with blocks of stream ``other``."""
    finish_segment(store)
    fill(store.client(), 50, key="other")
    store_all(store)


def finish_reads(store: LocalStore) -> None:
    """Read what commands wait for, and run them again until none waits."""
    cold_reads = store.node.blocked.cold_reads
    while cold_reads:
        cold_reads.wait_until_idle()
        store.node.tick()


def cold_store(count: int = 300, **settings: object) -> LocalStore:
    """Return a store with entries of stream ``s`` on disk, none of which the system has in memory."""
    store = made(**settings)
    fill(store.client(), count)
    store_all(store)
    assert stored_bytes(store) > 1000
    assert store.files is not None
    store.files.reads.cold = True
    return store
