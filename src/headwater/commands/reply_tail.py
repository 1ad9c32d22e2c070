"""Replies with many entries, which are written in pieces as the client reads them.

    XRANGE ── write_spans ─┬─▶ the first `REPLY_PIECE_BYTES` ──▶ outbox
                           └─▶ the rest ──▶ ReplyTail ── write, whenever the client has read enough ──▶ outbox

Rule 1. A tail refers to blocks of entries as they were when the command ran. The blocks are ``shared``, as after
        COPY, so later commands change copies of them (entry_log.py, rule 4). The shared blocks can still be
        compressed and stored, so a tail needs no memory for bytes that are on disk.
Rule 2. A piece ends before a block on disk that is not open. A command opens only the blocks of its first
        piece, and changes nothing before they are open.
Rule 3. Only a reply with ``piece_bytes`` is written in pieces. Replies within EXEC and scripts, to clients that
        were blocked, and to embedded clients are written in one go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from headwater.engine.bodies.sealed_block import ColdBlocks
from headwater.engine.entries.entry_block import EntryBlock, Span
from headwater.engine.tier.warming import first_piece, stored_among, up_to
from headwater.resp.replies import ReplyWriter

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has it in C
    from headwater.native.memory import offset_at


def write_spans(reply: ReplyWriter, spans: list[Span], backward: bool) -> None:
    """Write the entries of ``spans``; with ``backward`` the entries of each span from the last to the first. Entries
    beyond the first piece are left to ``reply.tail``."""
    for at in range(len(spans)):
        span = spans[at]
        if reply.piece_bytes and (
            reply.tail is not None
            or len(reply.out) >= reply.piece_bytes
            or not _readable(span.block)
        ):
            tail: ReplyTail = reply.tail if reply.tail is not None else ReplyTail()
            reply.tail, reply.out = tail, tail.add(spans[at:], backward)
            return
        if backward:
            write_span(reply, span, True)
        else:  # inlined from `write_span`: most replies have one span
            reply.part(span.data(), span.start(), span.stop())


def write_span(reply: ReplyWriter, span: Span, backward: bool) -> None:
    """Write the entries of one span; with ``backward`` from the last to the first."""
    if not backward:
        reply.part(span.data(), span.start(), span.stop())
        return
    edges = span.block.edges()
    data, stop = span.data(), span.stop()
    for index in range(span.end - 1, span.first - 1, -1):
        start = offset_at(edges, index)
        reply.part(data, start, stop)
        stop = start


def _readable(block: EntryBlock) -> bool:
    """Return whether the entries of a block can be read without accessing the disk."""
    packed = block.packed
    return packed is None or packed.data is not None or packed.wire is not None


class _Entries:
    """Entries that are still to be written. Spans are removed once they are written."""

    def __init__(self, spans: list[Span], backward: bool) -> None:
        self.spans = deque(spans)
        self.backward = backward


class ReplyTail:
    """The rest of a reply: entries, and the bytes between those of several streams."""

    def __init__(self) -> None:
        self._parts: deque[bytearray | _Entries] = deque()

    def add(self, spans: list[Span], backward: bool) -> bytearray:
        """Append the entries of ``spans``. Return a buffer for the part of the reply that follows them."""
        for span in spans:
            span.block.shared, span.block.room = True, 0
        following = bytearray()
        self._parts.extend((_Entries(spans, backward), following))
        return following

    def write(self, reply: ReplyWriter) -> bool:
        """Write the next piece, of about ``reply.piece_bytes``. Return whether it was the last one. Raises
        `ColdBlocks` if blocks must be read first, and `headwater.errors.JournalDamaged` if they cannot be read; in
        both cases nothing was written."""
        self._open(reply.piece_bytes)
        end = len(reply.out) + reply.piece_bytes
        while self._parts and len(reply.out) < end:
            part = self._parts[0]
            if isinstance(part, bytearray):
                reply.raw(part)
            elif part.spans:
                if not _readable(part.spans[0].block):
                    break
                write_span(reply, part.spans.popleft(), part.backward)
                continue
            self._parts.popleft()
        return not self._parts

    def _open(self, most_bytes: int) -> None:
        """Hold the blocks of the next piece open (`headwater.engine.bodies.bodies.Bodies.hold`)."""
        spans = first_piece(self._spans(), most_bytes)
        if not spans:
            return
        try:
            spans[0].block.sealing.bodies.hold(stored_among(spans))
        except ColdBlocks as cold:
            following = islice(self._spans(), len(spans), None)
            cold.ahead = up_to(span.block.packed for span in following)
            raise

    def _spans(self) -> Iterator[Span]:
        for part in self._parts:
            if isinstance(part, _Entries):
                yield from part.spans
