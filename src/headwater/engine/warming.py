"""Opens the blocks on disk that a command is about to read, before it changes anything.

spans that a command chose ──▶ warm ─┬─▶ their blocks are open
                                     └─▶ ColdBlocks: wanted, and ahead what a scan reads next
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from headwater.engine.blobs import ColdBlocks
from headwater.engine.entry_block import EntryBlock, Span
from headwater.engine.entry_log import EntryLog
from headwater.engine.sealed_block import SealedBlock
from headwater.engine.sealing import Sealing

READ_AHEAD_BYTES = 1024 * 1024
"""How many bytes of entries are read ahead of a scan, and at once where it is not known how many a command
will need."""

Read = tuple[EntryLog, list[Span]]
"""Spans of one log, in the order in which they will be read."""


def warm(sealing: Sealing, reads: Sequence[Read], missed: Iterable[SealedBlock] = ()) -> None:
    """Open the stored blocks of all spans, until the next command (`Bodies.hold`). Raises `ColdBlocks`, with
    ``missed`` among those wanted."""
    wanted = [packed for _, spans in reads for packed in stored_among(spans)]
    try:
        sealing.bodies.hold(wanted, missed)
    except ColdBlocks as cold:
        cold.ahead = [packed for log, spans in reads for packed in following(log, spans)]
        raise


def stored_among(spans: Iterable[Span]) -> list[SealedBlock]:
    """Return the stored blocks of spans, each once."""
    found = (span.block.packed for span in spans)
    stored = [packed for packed in found if packed is not None and packed.blob is not None]
    return list(dict.fromkeys(stored))


def following(log: EntryLog, spans: list[Span]) -> list[SealedBlock]:
    """Return the blocks on disk that a scan which has read ``spans`` will read next."""
    if not spans:
        return []
    first, last = spans[0].block, spans[-1].block
    at = log.find_block(last.last_ms, last.last_seq)
    backward = spans[-1].first < spans[0].first if first is last else last.first() < first.first()
    blocks: Iterable[EntryBlock] = islice(log.blocks, at + 1, None)
    if backward:
        blocks = (log.blocks[before] for before in range(at - 1, -1, -1))
    return up_to(block.packed for block in blocks)


def up_to(blocks: Iterable[SealedBlock | None]) -> list[SealedBlock]:
    """Return those of the first `READ_AHEAD_BYTES` of ``blocks`` that are on disk and not open."""
    found: list[SealedBlock] = []
    left = READ_AHEAD_BYTES
    for packed in blocks:
        if packed is None or left <= 0:
            break
        left -= packed.size
        if packed.blob is not None and packed.data is None:
            found.append(packed)
    return found
