"""Writes images: the image of a keyspace in memory, or one that is built from a store's files."""

from __future__ import annotations

import contextlib

from headwater.common.collector import collector_off
from headwater.config.streams import StreamConfig
from headwater.engine.image.image import image_facts
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.journal.disk.files import Files
from headwater.journal.format.manifest import ImageEntry
from headwater.journal.images.images import ImageWriter, read_image
from headwater.journal.images.rotation import Rotation
from headwater.journal.log.closed import read_closed
from headwater.journal.log.journal import Journal
from headwater.persistence.applying import Applying
from headwater.persistence.order import BuiltImage, CheckpointOrder
from headwater.persistence.source import SegmentSource


def write_image(files: Files, keyspace: Keyspace, rotation: Rotation, seed: int) -> ImageEntry:
    """Write the image of ``keyspace``, the state at ``rotation``, durably. No manifest names it yet.

    Raises `OSError`; the unfinished file is then removed.
    """
    writer = ImageWriter(files, rotation, seed)
    try:
        for facts in image_facts(keyspace):
            writer.write(facts)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def build_image(files: Files, order: CheckpointOrder) -> BuiltImage:
    """Write the image that ``order`` describes, from the old image and the closed journal files.

    Raises `OSError` and `JournalDamaged`.
    """
    config = StreamConfig(stream_hot_bytes=order.hot_bytes, stream_compression=order.compression)
    applying = Applying(files, config, source=SegmentSource(files, order.seed))
    rotation, turn = order.rotation, 0
    with collector_off():
        if order.old is not None:
            turn = order.old.turn
            for batch in read_image(files, order.old, order.seed):
                applying.apply(batch)
        for batch in read_closed(files, rotation.closed, rotation.end, order.seed, turn):
            applying.apply(batch)
        entry = write_image(files, applying.keyspace, rotation, order.seed)
    return BuiltImage(entry, sorted(applying.keyspace.sealing.segments()))


def checkpoint(journal: Journal, keyspace: Keyspace) -> ImageEntry:
    """Write an image of ``keyspace``, which is the state that ``journal`` describes, and drop the files that the
    image replaces. Call it between turns; nothing else can run until it returns.

    Raises `StoreUnusable` and `OSError`. The journal is still complete after any error.
    """
    rotation = journal.rotate()
    try:
        entry = write_image(journal.files, keyspace, rotation, journal.seed)
        journal.use_image(rotation, entry)
    except Exception:
        with contextlib.suppress(OSError):
            journal.catalog.discard_image(rotation.image)
        raise
    journal.remove_replaced()
    return entry
