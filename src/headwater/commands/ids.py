"""Entry ids in arguments: the ends of ranges, lists of ids and ``IDS`` blocks."""

from __future__ import annotations

from array import array

from headwater.common.model import MAX_U64, id_after, id_before, id_pairs
from headwater.errors import CommandError
from headwater.resp.arguments import ID_ERROR, Arguments, parse_id

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import new_words, set_word, word_at

LEAST = (0, 0)
GREATEST = (MAX_U64, MAX_U64)
_MAX_NUMIDS = 2**31 - 1
_NUMIDS = "ERR numids must be a positive integer"
_NUMIDS_MATCH = "ERR number of IDs doesn't match numids"


def _end(arguments: Arguments, index: int, missing_seq: int) -> tuple[tuple[int, int], bool]:
    """Parse an end of a range. Return its id, and whether ``(`` excludes it. ``missing_seq`` completes a bare ms."""
    text = arguments.bytes(index)
    exclusive = len(text) > 1 and text[:1] == b"("
    found = parse_id(text[1:] if exclusive else text, missing_seq=missing_seq, strict=exclusive)
    if found is None:
        raise CommandError(ID_ERROR)
    return found, exclusive


def range_start(arguments: Arguments, index: int) -> tuple[int, int]:
    """Parse the start of a range: an id, ``(id``, ``-`` or ``+``. Return the first id in the range."""
    found, exclusive = _end(arguments, index, 0)
    if not exclusive:
        return found
    if found == GREATEST:
        raise CommandError("ERR invalid start ID for the interval")
    return id_after(*found)


def range_end(arguments: Arguments, index: int) -> tuple[int, int]:
    """Parse the end of a range: an id, ``(id``, ``-`` or ``+``. Return the last id in the range."""
    found, exclusive = _end(arguments, index, MAX_U64)
    if not exclusive:
        return found
    if found == LEAST:
        raise CommandError("ERR invalid end ID for the interval")
    return id_before(*found)


def id_list(arguments: Arguments, start: int, end: int) -> list[tuple[int, int]]:
    """Return arguments ``start`` to ``end``-1 as ids. Raises `CommandError` if one of them is not an id."""
    return [arguments.id(index) for index in range(start, end)]


def id_words(arguments: Arguments, start: int, end: int) -> array[int]:
    """Return the ids of `id_list` as an array with two words for each, without creating an object for each."""
    ids = new_words(arguments.starts, 2 * (end - start))
    for index in range(start, end):
        arguments.find_id(index, 0)
        set_word(ids, 2 * (index - start), arguments.ms)
        set_word(ids, 2 * (index - start) + 1, arguments.seq)
    return ids


def distinct(ids: array[int]) -> array[int]:
    """Return the ids without repetitions. Ids in rising order are returned unchanged, as the same array.

    >>> distinct(array("Q", [5, 1, 4, 0, 5, 1]))
    array('Q', [5, 1, 4, 0])
    """
    for at in range(2, len(ids), 2):
        ms, before = word_at(ids, at), word_at(ids, at - 2)
        if ms < before or (ms == before and word_at(ids, at + 1) <= word_at(ids, at - 1)):
            return array("Q", [half for pair in dict.fromkeys(id_pairs(ids)) for half in pair])
    return ids


class IDBlock:
    """The arguments ``IDS n id …`` of XNACK, XRENEW and XSETTLE. A second block replaces the first."""

    def __init__(self) -> None:
        self.start = 0
        self.count = 0

    def take(self, arguments: Arguments, index: int) -> int:
        """Parse the block whose word IDS is at ``index``. Return the index after the block."""
        self.count = arguments.integer(index + 1, error=_NUMIDS)
        if not 0 < self.count <= _MAX_NUMIDS:
            raise CommandError(_NUMIDS)
        self.start = index + 2
        if self.count > arguments.count - self.start:
            raise CommandError(_NUMIDS_MATCH)
        return self.start + self.count

    def parse(self, arguments: Arguments) -> array[int]:
        """Return the ids, two words each."""
        if not self.start:
            raise CommandError("ERR syntax error, expected IDS keyword")
        return id_words(arguments, self.start, self.start + self.count)
