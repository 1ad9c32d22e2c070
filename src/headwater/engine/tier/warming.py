"""Opens the blocks on disk that a command is about to read, before the command changes anything.

spans that a command chose ──▶ warm ─┬─▶ their blocks are open
                                     └─▶ ColdBlocks: wanted, and ahead those that a scan reads next
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice

from headwater.engine.bodies.block_account import BlockAccount
from headwater.engine.bodies.bodies import Wanted
from headwater.engine.bodies.sealed_block import ColdBlocks, SealedBlock
from headwater.engine.entries.entry_block import EntryBlock, Span
from headwater.engine.entries.entry_log import EntryLog

READ_AHEAD_BYTES = 1024 * 1024
"""Maximum number of bytes of entries that are read ahead of a scan."""

Read = tuple[EntryLog, list[Span]]
"""Spans of one log, in the order in which they will be read."""


def warm(
    sealing: BlockAccount,
    reads: Sequence[Read],
    missed: Iterable[SealedBlock] = (),
    *,
    backward: bool = False,
    most_bytes: int = 0,
) -> None:
    """Open the stored blocks of all spans, until the next command (`Bodies.hold`); with ``most_bytes``, only those
    of the first spans with about that many bytes. ``backward`` is True if a scan continues towards smaller ids.
    Raises `ColdBlocks`, with ``missed`` among the wanted blocks."""
    if most_bytes:
        reads = _begin_of(reads, most_bytes)
    wanted = stored_among(chain.from_iterable([spans for _, spans in reads]))
    try:
        sealing.bodies.hold(wanted, missed)
    except ColdBlocks as cold:
        cold.ahead = [packed for log, spans in reads for packed in following(log, spans, backward)]
        raise


def first_piece(spans: Iterable[Span], most_bytes: int) -> list[Span]:
    """Return the first spans, at least one, that together have about ``most_bytes``."""
    found: list[Span] = []
    for span in spans:
        if most_bytes <= 0:
            break
        found.append(span)
        most_bytes -= _bytes_of(span)
    return found


def _begin_of(reads: Sequence[Read], most_bytes: int) -> list[Read]:
    """Return the first spans of all logs that together have about ``most_bytes``."""
    found: list[Read] = []
    for log, spans in reads:
        if most_bytes <= 0:
            break
        begin = first_piece(spans, most_bytes)
        found.append((log, begin))
        for span in begin:
            most_bytes -= _bytes_of(span)
    return found


def _bytes_of(span: Span) -> int:
    """Return the approximate number of bytes of a span's entries, without opening its block."""
    packed, taken = span.block.packed, span.end - span.first
    if packed is None:
        return span.stop() - span.start()
    return packed.size * taken // packed.count


def stored_among(spans: Iterable[Span]) -> Wanted:
    """Return the stored blocks of spans, with the needed entries of each, for `Bodies.hold`."""
    found: Wanted = {}
    for span in spans:
        packed, first, end = span.block.packed, span.first, span.end
        if packed is not None and packed.blob is not None:
            if packed in found:
                first, end = min(first, found[packed][0]), max(end, found[packed][1])
            found[packed] = first, end
    return found


def following(log: EntryLog, spans: list[Span], backward: bool) -> list[SealedBlock]:
    """Return the blocks on disk that a scan which has read ``spans`` will read next."""
    if not spans:
        return []
    last = spans[-1].block
    at = log.find_block(last.last_ms, last.last_seq)
    blocks: Iterable[EntryBlock] = islice(log.blocks, at + 1, None)
    if backward:
        blocks = (log.blocks[before] for before in range(at - 1, -1, -1))
    return up_to(block.packed for block in blocks)


def up_to(blocks: Iterable[SealedBlock | None]) -> list[SealedBlock]:
    """Return the blocks among the first `READ_AHEAD_BYTES` of ``blocks`` that are on disk and not open."""
    found: list[SealedBlock] = []
    left = READ_AHEAD_BYTES
    for packed in blocks:
        if packed is None or left <= 0:
            break
        left -= packed.size
        if packed.blob is not None and packed.data is None:
            found.append(packed)
    return found
