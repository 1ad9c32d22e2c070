"""A store with small files for campaigns of crashes, its content with every byte of its entries, and its checkpoints.

A checkpoint has two parts, between which turns run: the rotation, and the image that the helper process builds from the
files alone, which is then taken into use. As in `headwater.server.services.storage.checkpoints`, segments are removed after
that, and then sparse segments are compacted.
"""

from __future__ import annotations

import math
from typing import Any, Final

import pytest

from headwater.config.config import Config
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from headwater.errors import HeadwaterError
from headwater.journal.images.rotation import Rotation
from headwater.journal.log.journal import Journal
from headwater.persistence.building import build_image
from headwater.persistence.order import BuiltImage, CheckpointOrder
from headwater.server.services.state import NEVER
from headwater.server.services.storage import compactions
from headwater.server.turn.node import Node
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from headwater.testing.node import LocalStore
from tests.blocks import tiny_blocks
from tests.property.model import GREATEST, LEAST
from tests.property.pictures import of_store

FILE_BYTES = 1024
SEGMENT_BYTES = 900
"""Size of a segment: two to four blobs of `tiny_blocks`."""
HOUR_S, DAY_S = 3600, 86_400
JUMPS_S: Final = (-30 * DAY_S, -DAY_S, -5 * HOUR_S, -HOUR_S, HOUR_S, 7 * HOUR_S, DAY_S, 40 * DAY_S)
"""By how much the wall clock is set forward or back."""


def tiny_segments(patches: pytest.MonkeyPatch) -> None:
    """Let stores that are created from now on have tiny blocks, and compact segments of any size."""
    tiny_blocks(patches)
    patches.setattr(compactions, "LEAST_BYTES", 1)


class SmallFiles(LocalStore):
    """A store that often begins another journal file or segment, and so replaces MANIFEST often. With ``files`` it is
    opened from these."""

    def __init__(
        self,
        *,
        clock: ManualClock,
        cold: bool = False,
        files: CrashableFiles | None = None,
        config: Config | None = None,
    ) -> None:
        self._given = files
        super().__init__(clock=clock, cold=cold, config=config)

    def _open(self) -> Node:
        if self._given is not None:
            self.files, self._given = self._given, None
        node = super()._open()
        segments = node.services.storage.segments
        assert segments is not None
        segments.writer._segment_bytes = SEGMENT_BYTES
        return node

    def _journal(self, files: CrashableFiles) -> Journal:
        return opened(files)


def opened(files: CrashableFiles) -> Journal:
    """Open the journal of a `SmallFiles`."""
    return Journal.open(files, policy="always", file_bytes=FILE_BYTES, clock=ManualClock())


def content(keyspace: Keyspace) -> dict[bytes, Any]:
    """Return all streams with the bytes of their entries, except for the times at which consumers were seen, which may
    be lost (rule 3 of ARCHITECTURE.md). Raises `JournalDamaged` if an entry cannot be read."""
    picture = of_store(keyspace)
    for key, value in keyspace.databases[0].values.items():
        if isinstance(value, StoredStream):
            spans, _ = value.log.spans(LEAST, GREATEST)
            picture[key]["bytes"] = b"".join(
                bytes(span.data()[span.start() : span.stop()]) for span in spans
            )
    for stream in picture.values():
        for group in stream["groups"].values():
            group["consumers"] = sorted(group["consumers"])
    return picture


class HelpedCheckpoint:
    """A checkpoint of a store whose image is built from its files. It begins with a rotation. Raises `OSError` and
    `HeadwaterError`; then it has failed, and the journal has everything. Meanwhile the store begins none itself, also
    if the disk is full."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._journal, self._segments = _parts(store)
        self._floor = self._segments.floor()
        self._rotation: Rotation = self._journal.rotate()
        self._built: BuiltImage | None = None
        self._begin_others_at(math.inf)

    @property
    def is_built(self) -> bool:
        """Whether the image was written."""
        return self._built is not None

    def build(self) -> None:
        """Write the image, as the helper process does it."""
        journal = self._journal
        order = CheckpointOrder("", "", journal.seed, journal.image, self._rotation, 0, "none")
        try:
            self._built = build_image(journal.files, order)
        except BaseException:
            self._begin_others_at(0.0)
            raise

    def end(self) -> list[int]:
        """Take the image into use and remove what it replaces. Return the segments that it made needless."""
        journal, segments, built = self._journal, self._segments, self._built
        assert built is not None
        self._begin_others_at(0.0)
        journal.use_image(self._rotation, built.entry)
        live = self._store.node.keyspace.sealing.segments()
        unneeded: list[int] = segments.unneeded(self._floor, built.segments, live)
        journal.remove_replaced()
        segments.remove(unneeded)
        return unneeded

    def _begin_others_at(self, when: float) -> None:
        self._store.node.services.storage.checkpoints._retry_at = when


def checkpoint_now(store: LocalStore) -> None:
    """Write an image of the state in memory, as a clean stop does it. Raises `OSError` if none was written."""
    journal, _segments = _parts(store)
    before = journal.image
    store.node.services.storage.checkpoints.write_now()
    if journal.image is before:
        raise CheckpointRefused("no image was written")


class CheckpointRefused(HeadwaterError):
    """A checkpoint in the process has failed; the reason is in the log."""


def compact(store: LocalStore) -> int:
    """Compact sparse segments, as a checkpoint of a helper does it at its end. Return how many bytes were moved."""
    compacting = store.node.services.storage.compactions
    before = compacting.moved_bytes
    with store.node.lock:
        compacting.begin()
    compacting.wait()
    # It asks for another checkpoint. Here a history decides when one begins.
    store.node.state.checkpoint_at = NEVER
    return compacting.moved_bytes - before


def _parts(store: LocalStore) -> Any:
    return store.node.journal, store.node.services.storage.segments
