"""Applies batches of record groups to a keyspace: those of an image, then those of the journal.

Rule 1. A record that cannot be applied is damage, reported with its file and offset, whatever exception it
        causes. MemoryError and OSError are not: they concern this machine, not the record.
Rule 2. Blocks are sealed at the pace of turns, because a store may be larger than memory if it is not
        sealed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headwater.config.streams import StreamConfig
from headwater.engine.blobs import BlobSource
from headwater.engine.facts import FactBuffer
from headwater.engine.garbage import free
from headwater.engine.keyspace import Keyspace
from headwater.engine.replay import Replay
from headwater.errors import JournalDamaged
from headwater.journal.batches import JournalBatch
from headwater.journal.failures import damaged_at
from headwater.journal.files import Files

_SEALED_AT_ONCE = 64
_REASON_CHARACTERS = 200

_ALL = 2**62


class AppliedGroup(NamedTuple):
    """A record group that was applied: its place in the batch, its time, its facts, and their kinds in order."""

    place: int
    now_ms: int
    facts: memoryview
    kinds: list[int]


class Applying:
    """Fills ``keyspace``, whose facts are muted until `finish`. It reads its blobs from ``source``; with
    ``storing`` it will store blocks there."""

    def __init__(
        self,
        files: Files,
        config: StreamConfig | None = None,
        *,
        source: BlobSource,
        storing: bool = False,
    ) -> None:
        self.keyspace = Keyspace(FactBuffer(muted=True))
        self.keyspace.sealing.store_in(source, storing=storing)
        self._files = files
        self._replay = Replay(self.keyspace)
        if config is not None:
            self.keyspace.sealing.configure(config.stream_hot_bytes, config.stream_compression)

    def apply(self, batch: JournalBatch) -> None:
        """Apply the groups of a batch. Raises `JournalDamaged`, with the cause; see rule 1."""
        replay = self._replay
        try:
            replay.apply_batch(batch.data, batch.starts, batch.ends, batch.times, 0)
        except (MemoryError, OSError):
            raise
        except Exception as error:
            raise self._damage(batch, replay.done, error) from error
        sealing = self.keyspace.sealing
        if sealing.due():
            sealing.help(_SEALED_AT_ONCE)

    def step_through(self, batch: JournalBatch) -> Iterator[AppliedGroup]:
        """Apply the groups of a batch one by one, and yield each when it is applied."""
        keyspace, replay = self.keyspace, self._replay
        rows = zip(batch.starts, batch.ends, batch.times, strict=True)
        for index, (start, end, now_ms) in enumerate(rows):
            facts, kinds = batch.data[start:end], []
            try:
                replay.begin(facts, now_ms)
                while (kind := replay.step()) >= 0:
                    kinds.append(kind)
            except (MemoryError, OSError):
                raise
            except Exception as error:
                raise self._damage(batch, index, error) from error
            if keyspace.garbage:
                free(keyspace.garbage, _ALL)
            yield AppliedGroup(index, now_ms, facts, kinds)
        if keyspace.sealing.due():
            keyspace.sealing.help(_SEALED_AT_ONCE)

    def _damage(self, batch: JournalBatch, index: int, error: Exception) -> JournalDamaged:
        """Return the error for group ``index`` of the batch, which could not be applied."""
        reason = f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
        found = f"a whole record that cannot be applied ({reason})"
        return damaged_at(self._files, batch.name, batch.offset(index), found)

    def finish(self) -> Keyspace:
        """Return the keyspace, ready for commands."""
        keyspace = self.keyspace
        keyspace.signalled.clear()
        keyspace.unseen.clear()
        keyspace.facts.muted = False
        keyspace.unread_blobs = [
            blob for blob in keyspace.unread_blobs if blob.matters(keyspace.streams)
        ]
        return keyspace
