"""Applies batches of record groups to a keyspace: those of an image, then those of the journal.

Rule 1. A record that cannot be applied, because of any exception, is damage, reported with its file and
        offset. MemoryError, OSError and a codec that is not installed are not damage: they concern this machine,
        not the record.
Rule 2. Blocks are sealed after each batch, because an unsealed store may be larger than memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from headwater.config.streams import StreamConfig
from headwater.engine.bodies.blobs import BlobSource
from headwater.engine.bodies.codecs import CodecMissing
from headwater.engine.facts.facts import ALL_DATABASES, DELETED, ID, TRIMMED, FactBuffer
from headwater.engine.keyspace.garbage import free
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from headwater.errors import HeadwaterError, StoreUnusable
from headwater.journal.disk.files import Files
from headwater.journal.format.batches import JournalBatch
from headwater.journal.format.failures import damaged_at
from headwater.journal.format.records import GROUP_HEADER_BYTES, group_at

_SEALED_AT_ONCE = 64
_REASON_CHARACTERS = 200

_ALL = 2**62


class AppliedGroup(NamedTuple):
    """A record group that was applied: its place in the batch, its time, its facts, and their kinds in order."""

    place: int
    now_ms: int
    facts: memoryview
    kinds: list[int]
    concerns: list[Concern]
    """The concern of each fact, if requested; otherwise empty."""


class Concern(NamedTuple):
    """The key, group and entries that a fact concerns."""

    database: int | None = None
    """Number of the database; None if the fact concerns all databases, or none."""
    key: bytes | None = None
    group: bytes = b""
    ids: tuple[str, ...] = ()
    """Ids of the entries that were deleted, or of the last one that was trimmed; empty for other facts."""


class FailedGroup(NamedTuple):
    """A record group that could not be applied: its offset in its file, and its turn."""

    offset: int
    turn: int


class Applying:
    """Fills ``keyspace``, whose facts are muted until `finish`. The keyspace reads its blobs from ``source``; with
    ``storing``, it will store blocks in segments too."""

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
        self.failed: FailedGroup | None = None
        """The group that could not be applied. A part of its facts may have been applied."""
        self._files = files
        self._replay = Replay(self.keyspace)
        if config is not None:
            self.keyspace.sealing.configure(config.stream_hot_bytes, config.stream_compression)

    def apply(self, batch: JournalBatch) -> None:
        """Apply the groups of a batch. Raises `JournalDamaged` with the cause, and `StoreUnusable` if a codec is not
        installed; see rule 1."""
        replay = self._replay
        try:
            replay.apply_batch(batch.data, batch.starts, batch.ends, batch.times, 0)
        except (MemoryError, OSError):
            raise
        except Exception as error:
            raise self._failure(batch, replay.done, error) from error
        sealing = self.keyspace.sealing
        if sealing.due():
            sealing.help(_SEALED_AT_ONCE)

    def step_through(
        self, batch: JournalBatch, *, concerns: bool = False
    ) -> Iterator[AppliedGroup]:
        """Apply the groups of a batch one by one, and yield each one after it is applied. With ``concerns``, each
        group includes the concerns of its facts."""
        keyspace, replay = self.keyspace, self._replay
        rows = zip(batch.starts, batch.ends, batch.times, strict=True)
        for index, (start, end, now_ms) in enumerate(rows):
            facts, kinds, found = batch.data[start:end], [], []
            try:
                replay.begin(facts, now_ms)
                while (at := replay.place()) >= 0:
                    if concerns:  # before the fact removes what it names
                        found.append(_concern(facts, at, keyspace))
                    kinds.append(replay.step())
            except (MemoryError, OSError):
                raise
            except Exception as error:
                raise self._failure(batch, index, error) from error
            if keyspace.garbage:
                free(keyspace.garbage, _ALL)
            yield AppliedGroup(index, now_ms, facts, kinds, found)
        if keyspace.sealing.due():
            keyspace.sealing.help(_SEALED_AT_ONCE)

    def _failure(self, batch: JournalBatch, index: int, error: Exception) -> HeadwaterError:
        """Return the error for group ``index`` of the batch, which could not be applied."""
        if isinstance(error, CodecMissing):
            path = self._files.path(batch.name)
            return StoreUnusable(
                f"{path} has compressed entries that cannot be read: {error}; nothing is damaged"
            )
        turn, _now_ms, _end = group_at(batch.data, batch.starts[index] - GROUP_HEADER_BYTES)
        self.failed = FailedGroup(batch.offset(index), turn)
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


_NUMBER = struct.Struct("<I")
_NO_KEY = frozenset({0x16, 0x1D})
"""Kinds of facts about whole databases."""


def _concern(facts: memoryview, at: int, keyspace: Keyspace) -> Concern:
    """Return the concern of the fact at ``at``; an empty one if it is incomplete, which `Replay` will report."""
    try:
        return _read_concern(facts, at, keyspace)
    except (IndexError, struct.error):
        return Concern()


def _read_concern(facts: memoryview, at: int, keyspace: Keyspace) -> Concern:
    """Return the concern of the fact at ``at`` (`headwater.engine.facts.facts` lists the forms of facts)."""
    kind = facts[at]
    if kind == 0x10 or 0x20 <= kind < 0x50:
        at += 1 + (kind == 0x10)
        (number,) = _NUMBER.unpack_from(facts, at)
        if kind == 0x10:  # the stream's number and its key
            return Concern(facts[at - 1], _text(facts, at + _NUMBER.size))
        group = keyspace.groups.get(number) if kind > 0x30 else None
        stream = keyspace.streams.get(number) if group is None else group.stream
        if stream is None:
            return Concern()
        name = b"" if group is None else group.name
        return Concern(stream.db.index, stream.key, name, _ids(facts, at - 1))
    database = facts[at + 1]
    if kind in _NO_KEY:
        return Concern(None if database == ALL_DATABASES else database)
    return Concern(database, _text(facts, at + 2))


def _ids(facts: memoryview, at: int) -> tuple[str, ...]:
    """Return the ids in a fact about deleted (0x22) or trimmed (0x21) entries."""
    if facts[at] == 0x21:
        ids, size = at + TRIMMED.size - ID.size, ID.size
    elif facts[at] == 0x22:
        ids, size = at + DELETED.size, ID.size * DELETED.unpack_from(facts, at)[3]
    else:
        return ()
    return tuple(f"{ms}-{seq}" for ms, seq in ID.iter_unpack(facts[ids : ids + size]))


def _text(facts: memoryview, at: int) -> bytes:
    (length,) = _NUMBER.unpack_from(facts, at)
    return bytes(facts[at + _NUMBER.size : at + _NUMBER.size + length])
