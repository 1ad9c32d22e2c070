"""The entries of a stage. Each is a pack of rows, encoded as the commands that publish the rows.

    <n>-0   rows  ids  xadd     n is the number of the pack's last row in the stage, from 1
            1000  1    *13␍␊$4␍␊XADD␍␊…

``rows`` is the number of rows, ``ids`` is 1 if the rows set ids, and ``xadd`` has an XADD to the stream for each
row. Publishing does not encode the rows again: 1,000 rows of five fields take 3 ms. The XADD of a long row is in
several fields ``xadd``, because servers limit the length of a value, but not of an entry.

Stages that an earlier version recorded have an entry for each row: ``id``, then the row's fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from headwater.spark.sink.entries import command

_ROWS, _IDS, _XADD = b"rows", b"ids", b"xadd"

_PIECE_BYTES: Final = 1024 * 1024
"""Maximum length of a field, except for a longer value. It is the smallest ``proto-max-bulk-len`` that servers accept;
the default is 512 MB."""


class Pack(NamedTuple):
    """Rows of a stage: ``rows`` XADDs in ``commands``. The last row has the number ``last`` in the stage."""

    last: int
    rows: int
    sets_ids: bool
    commands: bytes


def pack(stage: bytes, rows: Sequence[bytes], *, last: int, sets_ids: bool) -> bytes:
    """Encode the XADD that appends a pack to ``stage``. ``rows`` are XADDs."""
    pieces = _pieces(b"".join(rows))
    return command(
        *(b"XADD", stage, b"%d-0" % last),
        *(_ROWS, b"%d" % len(rows)),
        *(_IDS, b"1" if sets_ids else b"0"),
        *(word for piece in pieces for word in (_XADD, piece)),
    )


def _pieces(commands: bytes) -> Iterator[bytes]:
    """Cut commands into fields of at most `_PIECE_BYTES`.

    A longer value is a field of its own: if the server would refuse it in the stream, it refuses it in the stage, before
    the stage is recorded.
    """
    if len(commands) <= _PIECE_BYTES:
        yield commands
        return
    start = at = 0
    while at < len(commands):
        value = commands.index(b"\r\n", at) + 2
        length = int(commands[at + 1 : value - 2])
        end = value + length + 2 if commands[at] == ord("$") else value
        if end - start > _PIECE_BYTES:
            yield commands[start:at]
            start = at
        if end - at > _PIECE_BYTES:
            yield commands[at:value]
            yield commands[value : value + length]
            start = value + length
        at = end
    yield commands[start:]


def is_pack(entry: Sequence[Any]) -> bool:
    """Return whether an entry of a stage is a pack; otherwise it is a row that an earlier version wrote."""
    return bool(entry[1][0] == _ROWS)


def unpacked(entry: Sequence[Any]) -> Pack:
    """Parse an entry of a stage. The entry must be a pack."""
    pairs = list(zip(entry[1][::2], entry[1][1::2], strict=True))
    fields = dict(pairs)
    commands = b"".join(piece for name, piece in pairs if name == _XADD)
    return Pack(_number(entry), int(fields[_ROWS]), fields[_IDS] == b"1", commands)


def without_first(whole: Pack, skipped: int) -> Pack:
    """Return ``whole`` without its first ``skipped`` rows, which are already published."""
    if not skipped:
        return whole
    import hiredis

    reader = hiredis.Reader()
    reader.feed(whole.commands)
    commands = [reader.gets() for _row in range(whole.rows)][skipped:]
    return whole._replace(
        rows=len(commands),
        commands=b"".join(command(*one) for one in commands),
    )


def packed(entries: Sequence[Sequence[Any]], head: Sequence[bytes]) -> Pack:
    """Return a pack of rows that an earlier version wrote. ``head`` contains XADD's arguments before the id."""
    commands = [[*head, *entry[1][1:]] for entry in entries]
    return Pack(
        last=_number(entries[-1]),
        rows=len(commands),
        sets_ids=any(entry[1][1] != b"*" for entry in entries),
        commands=b"".join(command(*one) for one in commands),
    )


def _number(entry: Sequence[Any]) -> int:
    return int(entry[0].partition(b"-")[0])
