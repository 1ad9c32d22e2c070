"""Applies batches of record groups to a keyspace: those of an image, then those of the journal.

Rule 1. A record that cannot be applied is damage, reported with its file and offset, whatever exception it
        causes. MemoryError and OSError are not: they concern this machine, not the record.
Rule 2. Blocks are sealed at the pace of turns, because a store may be larger than memory if it is not
        sealed.
"""

from __future__ import annotations

from headwater.config.streams import StreamConfig
from headwater.engine.blobs import BlobSource
from headwater.engine.facts import FactBuffer
from headwater.engine.keyspace import Keyspace
from headwater.engine.replay import Replay
from headwater.journal.batches import JournalBatch
from headwater.journal.failures import damaged_at
from headwater.journal.files import Files

_SEALED_AT_ONCE = 64
_REASON_CHARACTERS = 200


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
            reason = f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
            found = f"a whole record that cannot be applied ({reason})"
            raise damaged_at(self._files, batch.name, batch.offset(replay.done), found) from error
        sealing = self.keyspace.sealing
        if sealing.due():
            sealing.help(_SEALED_AT_ONCE)

    def finish(self) -> Keyspace:
        """Return the keyspace, ready for commands."""
        self.keyspace.signalled.clear()
        self.keyspace.unseen.clear()
        self.keyspace.facts.muted = False
        return self.keyspace
