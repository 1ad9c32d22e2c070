"""The arguments of one request, as offsets into the buffer that received them.

Rule 1. No object is created for an argument until a command needs one.
Rule 2. The offsets are valid only until more input is added to the buffer. Arguments that must live
        longer (of a queued command or a blocked client) are copied with `copy`.
Rule 3. `find_wire` returns the position of arguments as the client encoded them. A request with a length
        header that is not canonical (``$003``) is encoded again first, so stored bytes are always
        canonical.
"""

from __future__ import annotations

import builtins
from array import array

from headwater.common.limits import MAX_COUNT, MAX_ID_TEXT_BYTES
from headwater.errors import CommandError

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import (
        append_bytes,
        append_header,
        append_part,
        cut,
        new_words,
        read_id,
        read_integer,
        set_word,
        short_integer,
        spells,
        word_at,
    )

INTEGER_ERROR = "ERR value is not an integer or out of range"
ID_ERROR = "ERR Invalid stream ID specified as stream command argument"

_ROOM = 16
"""Initial length of ``starts`` and ``ends``, enough for most requests. Offsets are set by index, not appended."""

_WORDS: array[int] = array("Q")
_DOLLAR, _STAR = b"$*"
_CRLF = b"\r\n"
_MAX_U64 = 2**64 - 1
_MIN_I64 = -(2**63)
_MAX_I64 = 2**63 - 1


class Arguments:
    """Arguments 0 to ``count``-1 of one request. Argument 0 is the command's name.

    >>> arguments = Arguments.of(b"xadd", b"orders", b"5-1", b"item", b"tea")
    >>> arguments.token(0), arguments.integer(2, default=-1), arguments.id(2)
    (b'XADD', -1, (5, 1))
    >>> arguments.find_wire(3, 5)
    >>> bytes(arguments.buffer[arguments.wire_start : arguments.wire_end])
    b'$4\\r\\nitem\\r\\n$3\\r\\ntea\\r\\n'
    """

    def __init__(self) -> None:
        self.buffer: bytearray = bytearray()
        self.starts = new_words(_WORDS, _ROOM)
        """Offset of the first byte of each argument's value. May be longer than ``count``."""
        self.ends = new_words(_WORDS, _ROOM)
        """Offset after the last byte of each argument's value."""
        self.count = 0
        self.canonical = True
        """True if every length header of the request is in canonical form."""
        self.ms = self.seq = 0
        """The result of `find_id`."""
        self.number = 0
        """The result of `find_integer`."""
        self.wire_start = self.wire_end = 0
        """The result of `find_wire`."""
        self.kept = False
        """True if ``buffer`` belongs to these arguments and does not change, so `copy` need not copy it."""
        self._found = new_words(_WORDS, 3)

    @classmethod
    def of(cls, *values: builtins.bytes) -> Arguments:
        """Return arguments with these values, encoded canonically."""
        made = cls()
        made.encode(list(values))
        made.kept = True
        return made

    def encode(self, values: list[builtins.bytes]) -> None:
        """Replace the arguments with these values, in a new buffer."""
        buffer = bytearray()
        count = len(values)
        append_header(buffer, _STAR, count)
        if count > len(self.starts):
            self.starts, self.ends = array("Q", bytes(8 * count)), array("Q", bytes(8 * count))
        for index in range(count):
            value = values[index]
            append_header(buffer, _DOLLAR, len(value))
            set_word(self.starts, index, len(buffer))
            append_bytes(buffer, value)
            set_word(self.ends, index, len(buffer))
            append_bytes(buffer, _CRLF)
        self.buffer, self.count, self.canonical = buffer, count, True

    def copy(self) -> Arguments:
        """Return the same arguments, independent of the buffer from which they were parsed."""
        if self.kept:
            return self
        if not self.canonical:
            return Arguments.of(*self.values())
        made, count = Arguments(), self.count
        if count > _ROOM:
            made.starts, made.ends = new_words(_WORDS, count), new_words(_WORDS, count)
        # From the first value on, the bytes are the same, and so are the distances between offsets.
        shift = word_at(self.starts, 0) - self.append_to(made.buffer)
        for index in range(count):
            set_word(made.starts, index, word_at(self.starts, index) - shift)
            set_word(made.ends, index, word_at(self.ends, index) - shift)
        made.count, made.kept = count, True
        return made

    def append_to(self, target: bytearray) -> int:
        """Append the request to ``target``, encoded canonically. Return the offset of its first value in
        ``target``."""
        if not self.canonical:
            self.encode(self.values())
        start, count = word_at(self.starts, 0), self.count
        append_header(target, _STAR, count)
        append_header(target, _DOLLAR, word_at(self.ends, 0) - start)
        begin = len(target)
        append_part(target, self.buffer, start, word_at(self.ends, count - 1) + 2)
        return begin

    def __len__(self) -> int:
        return self.count

    def bytes(self, index: int) -> builtins.bytes:
        """Return argument ``index`` as bytes."""
        return cut(self.buffer, word_at(self.starts, index), word_at(self.ends, index))

    def token(self, index: int) -> builtins.bytes:
        """Return argument ``index`` in upper case, for comparing with command and option names."""
        return self.bytes(index).upper()

    def is_word(self, index: int, word: builtins.bytes) -> bool:
        """Return whether argument ``index`` is ``word``, ignoring case. ``word`` is in upper case."""
        return spells(self.buffer, word_at(self.starts, index), word_at(self.ends, index), word)

    def is_byte(self, index: int, byte: int) -> bool:
        """Return whether argument ``index`` is this single byte."""
        start = word_at(self.starts, index)
        return word_at(self.ends, index) == start + 1 and self.buffer[start] == byte

    def values(self, start: int = 0) -> list[builtins.bytes]:
        """Return the arguments from ``start`` on as bytes."""
        return [self.bytes(index) for index in range(start, self.count)]

    def integer(self, index: int, *, error: str = INTEGER_ERROR, default: int | None = None) -> int:
        """Return argument ``index`` as a signed 64-bit integer, strictly decimal (no sign but ``-``, no
        leading zero, no space).

        For anything else, return ``default`` or, if it is None, raise `CommandError` with ``error``.
        """
        if self.find_integer(index):
            return self.number
        if default is not None:
            return default
        raise CommandError(error)

    def find_integer(self, index: int) -> bool:
        """Parse argument ``index`` as `integer` does and store it in ``number``, without creating an object.
        Return False if it is not an integer."""
        found = self._found
        if read_integer(self.buffer, word_at(self.starts, index), word_at(self.ends, index), found):
            self.number = word_at(found, 0)
            if word_at(found, 1):
                self.number = -self.number
            return True
        value = parse_integer(self.bytes(index))
        if value is None:
            return False
        self.number = value
        return True

    def count_at(self, index: int) -> int:
        """Return argument ``index``, the maximum number of items that a client wants, as an integer of at most
        `MAX_COUNT`. Raises `CommandError`."""
        if not self.find_integer(index):
            raise CommandError(INTEGER_ERROR)
        return min(self.number, MAX_COUNT)

    def id(
        self, index: int, *, missing_seq: int = 0, strict: bool = True, error: str = ID_ERROR
    ) -> tuple[int, int]:
        """Return argument ``index`` as a stream id, ``(ms, seq)``.

        ``missing_seq`` is the second half of an id without ``-``. With ``strict=False``, ``-`` and ``+``
        alone are the smallest and the greatest id. Raises `CommandError` with ``error``.
        """
        found = parse_id(self.bytes(index), missing_seq=missing_seq, strict=strict)
        if found is None:
            raise CommandError(error)
        return found

    def find_id(self, index: int, missing_seq: int) -> None:
        """Parse argument ``index`` as `id` does with ``strict=True`` and store it in ``ms`` and ``seq``, without
        creating an object. Raises `CommandError`."""
        found = self._found
        if read_id(self.buffer, word_at(self.starts, index), word_at(self.ends, index), found):
            self.ms = word_at(found, 0)
            self.seq = word_at(found, 1) if word_at(found, 2) else missing_seq
        else:
            self.ms, self.seq = self.id(index, missing_seq=missing_seq)

    def find_wire(self, start: int, end: int) -> None:
        """Set ``wire_start`` and ``wire_end`` to the position of arguments ``start`` to ``end``-1 in the
        buffer, as the client encoded them, including headers. Requires ``0 < start < end``. A request with a
        header that is not canonical is encoded again first (rule 3)."""
        if not self.canonical:
            self.encode(self.values())
        self.wire_start = (
            word_at(self.ends, start - 1) + 2
        )  # after the CR LF of the previous argument
        self.wire_end = word_at(self.ends, end - 1) + 2


def parse_integer(text: bytes) -> int | None:
    """Parse ``text`` as Redis's string2ll does. Return None if it is not an integer.

    >>> parse_integer(b"-17"), parse_integer(b"+17"), parse_integer(b"017")
    (-17, None, None)
    """
    short = short_integer(text)
    if short is not None:
        return short
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit() or len(digits) > 19:
        return None
    if digits[0] == 0x30 and len(text) > 1:
        return None
    value = int(text)
    return value if _MIN_I64 <= value <= _MAX_I64 else None


def _id_half(text: bytes) -> int | None:
    """Parse one half of an id: a strict decimal, or anything that C's strtoull reads completely (spaces, ``+``,
    leading zeros), without a minus sign. Return None for anything else."""
    if text.isdigit():
        value = int(text)
    else:
        digits = text.lstrip(b" \t\n\v\f\r")
        if digits[:1] == b"+":
            digits = digits[1:]
        if not digits.isdigit():
            return None
        value = int(digits)
    return value if value <= _MAX_U64 else None


def parse_id(text: bytes, *, missing_seq: int = 0, strict: bool = True) -> tuple[int, int] | None:
    """Parse ``text`` as an id, by the rules of Redis's streamGenericParseIDOrReply. Return None if it is not
    an id.

    >>> parse_id(b"5"), parse_id(b" 5-+01"), parse_id(b"5-"), parse_id(b"-")
    ((5, 0), (5, 1), None, None)
    """
    if len(text) > MAX_ID_TEXT_BYTES:
        return None
    text = text.partition(b"\0")[0]
    if text == b"-" or text == b"+":
        if strict:
            return None
        return (0, 0) if text == b"-" else (_MAX_U64, _MAX_U64)
    left, dash, right = text.partition(b"-")
    ms = _id_half(left)
    seq = _id_half(right) if dash else missing_seq
    if ms is None or seq is None:
        return None
    return ms, seq
