"""Replays a store into a keyspace, in steps: its image, if it has one, then its journal.

    read_image ── batches ──┐
                            ├──▶ Applying ── a yield after each batch ──▶ Keyspace
    Journal.batches ────────┘

Rule. The keyspace is not used elsewhere before the last step. A replay that is abandoned between two steps
      leaves the files unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import chain

from headwater.common.collector import collector_off
from headwater.common.steps import Steps, do_all
from headwater.config.streams import StreamConfig
from headwater.engine.bodies.blobs import BlobSource
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.journal.format.batches import JournalBatch
from headwater.journal.images.images import read_image
from headwater.journal.log.journal import Journal
from headwater.journal.log.recovery import Recovery
from headwater.persistence.applying import Applying
from headwater.persistence.progress import LoadProgress
from headwater.persistence.source import SegmentSource

log = logging.getLogger("headwater.journal")


def recovered_keyspace(journal: Journal, config: StreamConfig | None = None) -> Keyspace:
    """Return the state that results from the image and the journal. Without ``config``, no block is sealed."""
    return do_all(replay_steps(journal, config))


def replay_steps(
    journal: Journal, config: StreamConfig | None = None, progress: LoadProgress | None = None
) -> Steps[Keyspace]:
    """Replay ``journal`` and the image before it in steps of at most some milliseconds. Returns the resulting
    state; then the journal is writable. Updates and logs ``progress`` after each step. Replayed facts are not written
    again. Python's garbage collector is off during the replay: it would repeatedly traverse a store that
    only grows and has no cycles.

    Raises `JournalDamaged` and `StoreUnusable`. The journal is closed after an error, and if not all
    steps are run.
    """
    recovery = journal.recovery
    if progress is not None:
        progress.total_bytes = (
            0 if journal.image is None else journal.image.size
        ) + recovery.most_bytes()
    source = SegmentSource(journal.files, journal.seed)
    applying = Applying(journal.files, config, source=source, storing=True)
    with closing(_batches(journal, applying, source)) as batches:
        return (yield from _applied(applying, batches, progress))


def reread_steps(
    journal: Journal, recovery: Recovery, source: BlobSource, config: StreamConfig | None = None
) -> Steps[Keyspace]:
    """Replay again the image and the files that ``recovery`` reads, as `replay_steps` does, while ``journal``
    is in use. Blobs are read from ``source``."""
    applying = Applying(journal.files, config, source=source, storing=True)
    image = () if journal.image is None else read_image(journal.files, journal.image, journal.seed)
    return (yield from _applied(applying, chain(image, recovery.batches())))


def _batches(
    journal: Journal, applying: Applying, source: SegmentSource
) -> Generator[JournalBatch]:
    """Yield the batches of the image and the journal. Closes the journal unless all batches are read."""
    try:
        if journal.image is not None:
            yield from read_image(journal.files, journal.image, journal.seed)
            source.image_segments = frozenset(applying.keyspace.sealing.segments())
        yield from journal.batches()
    except BaseException:
        journal.close()
        raise


def _applied(
    applying: Applying, batches: Iterator[JournalBatch], progress: LoadProgress | None = None
) -> Steps[Keyspace]:
    with collector_off():
        for batch in batches:
            applying.apply(batch)
            if progress is not None:
                progress.loaded_bytes += batch.ends[-1] - batch.starts[0]
                progress.report()
            yield
    return applying.finish()


def log_recovery(recovery: Recovery, keyspace: Keyspace) -> None:
    """Log a warning for each cut, each note, and each blob that could not be read."""
    for cut in recovery.cuts:
        log.warning(
            "the journal's tail was torn by a crash; %s: cut %d bytes at offset %d: %s",
            recovery.path(cut.file),
            cut.length,
            cut.offset,
            cut.found,
        )
    for note in recovery.notes:
        log.warning("journal: %s", note)
    for blob in keyspace.unread_blobs:
        log.warning("entries stay in memory: %s", blob.problem)
    keyspace.unread_blobs.clear()
