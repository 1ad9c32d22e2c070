"""Ids as commands take them: range ends with ``(``, and lists of ids all of which must parse."""

from __future__ import annotations

from headwater.errors import CommandError
from headwater.model import MAX_U64, id_after, id_before
from headwater.resp.arguments import ID_ERROR, Arguments, parse_id

LEAST = (0, 0)
GREATEST = (MAX_U64, MAX_U64)


def _end(arguments: Arguments, index: int, missing_seq: int) -> tuple[tuple[int, int], bool]:
    text = arguments.bytes(index)
    exclusive = len(text) > 1 and text[:1] == b"("
    found = parse_id(text[1:] if exclusive else text, missing_seq=missing_seq, strict=exclusive)
    if found is None:
        raise CommandError(ID_ERROR)
    return found, exclusive


def range_start(arguments: Arguments, index: int) -> tuple[int, int]:
    """The first id of a range: an id, ``(id``, ``-`` or ``+``."""
    found, exclusive = _end(arguments, index, 0)
    if not exclusive:
        return found
    if found == GREATEST:
        raise CommandError("ERR invalid start ID for the interval")
    return id_after(*found)


def range_end(arguments: Arguments, index: int) -> tuple[int, int]:
    """The last id of a range: an id, ``(id``, ``-`` or ``+``."""
    found, exclusive = _end(arguments, index, MAX_U64)
    if not exclusive:
        return found
    if found == LEAST:
        raise CommandError("ERR invalid end ID for the interval")
    return id_before(*found)


def id_list(arguments: Arguments, start: int, end: int) -> list[tuple[int, int]]:
    """Arguments ``start`` to ``end``-1, each a strict id; none is used unless all parse."""
    return [arguments.id(index) for index in range(start, end)]
