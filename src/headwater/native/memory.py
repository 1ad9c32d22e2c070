"""Access to bytes and words by their addresses. Only hot code uses it.

Compiled modules import these functions from ``memory_c.pxd``, where each is a few machine instructions that
check their arguments. Plain Python uses the equivalents below. Callers write

    if not cython.compiled:  # memory_c.pxd has them in C
        from headwater.native.memory import append_bytes, cut

and declare the same names with a ``cimport`` in their own ``.pxd``. Words are unsigned 64-bit integers
in an ``array("Q")``, offsets are unsigned 32-bit integers in an ``array("I")``. Positions must exist
(0 ≤ start ≤ end ≤ length). The C functions raise ``IndexError`` otherwise; those below have assertions.
"""

from __future__ import annotations

from array import array
from struct import pack
from typing import Any

Text = bytes | bytearray  # the bytes of entries; a bytearray as long as they can change

# --- bytes --------------------------------------------------------------------------------------


def append_bytes(target: bytearray, source: bytes) -> None:
    """Append ``source`` to ``target``."""
    target += source


def append_part(target: bytearray, source: Text, start: int, end: int) -> None:
    """Append the bytes of ``source`` from ``start`` to ``end``-1."""
    assert 0 <= start <= end <= len(source)
    target += source[start:end]


def put_bytes(target: bytearray, at: int, source: bytes) -> None:
    """Overwrite ``target`` from ``at`` on with ``source``, which must fit."""
    assert 0 <= at <= len(target) - len(source)
    target[at : at + len(source)] = source


def put_part(target: bytearray, at: int, source: bytearray, start: int, end: int) -> None:
    """Overwrite ``target`` from ``at`` on with the bytes of ``source`` from ``start`` to ``end``-1, which must
    fit. ``target`` and ``source`` may be the same object."""
    assert 0 <= start <= end <= len(source)
    assert 0 <= at <= len(target) - (end - start)
    target[at : at + end - start] = source[start:end]


def resize(target: bytearray, size: int) -> None:
    """Change the length of ``target`` to ``size`` bytes. New bytes have arbitrary values."""
    if size < len(target):
        del target[size:]
    else:
        target.extend(bytes(size - len(target)))


def reserve(target: bytearray, size: int) -> None:
    """Allocate memory so that ``target`` can grow to ``size`` bytes by `append_entry` without being moved.
    Plain Python leaves this to the allocator."""
    assert len(target) <= size


def empty(target: bytearray) -> None:
    """Remove all bytes of ``target``. In C it keeps its memory."""
    target.clear()


def splice(values: dict[bytes, Any], key: bytes, at: int, part: bytes) -> None:
    """Write ``part`` into the bytes ``values[key]`` at offset ``at``. If they end before ``at``, fill the gap with
    zero bytes. The C function changes the object in place if only ``values`` refers to it, and copies it
    otherwise, as plain Python always does."""
    old = values[key]
    values[key] = old[:at].ljust(at, b"\0") + part + old[at + len(part) :]


def cut(source: Text, start: int, end: int) -> bytes:
    """Return the bytes from ``start`` to ``end``-1."""
    assert 0 <= start <= end <= len(source)
    return bytes(source[start:end])


def spells(source: bytearray, start: int, end: int, word: bytes) -> bool:
    """Return whether the bytes from ``start`` to ``end``-1 are ``word``, ignoring case. ``word`` is in upper case.

    >>> spells(bytearray(b"xx count"), 3, 8, b"COUNT")
    True
    """
    assert 0 <= start <= end <= len(source)
    return source[start:end].upper() == word


def is_part(value: bytes, source: bytearray, start: int, end: int) -> bool:
    """Return whether the bytes from ``start`` to ``end``-1 are equal to ``value``."""
    assert 0 <= start <= end <= len(source)
    return source[start:end] == value


def read_id(source: bytearray, start: int, end: int, words: array[int]) -> bool:
    """Read ``<ms>-<seq>`` or ``<ms>``, each with at most 18 decimal digits, into three words: ms, seq, and 1 if
    there was a seq, else 0. Return False for anything else, which may still be a valid id.

    >>> words = array("Q", (0, 0, 0))
    >>> read_id(bytearray(b"$3 5-1"), 3, 6, words), list(words)
    (True, [5, 1, 1])
    """
    assert 0 <= start <= end <= len(source)
    assert len(words) >= 3
    ms, dash, seq = source[start:end].partition(b"-")
    halves = (ms, seq) if dash else (ms,)
    if not all(half.isdigit() and len(half) <= 18 for half in halves):
        return False
    words[0], words[1], words[2] = int(ms), int(seq or b"0"), len(dash)
    return True


def read_integer(source: bytearray, start: int, end: int, words: array[int]) -> bool:
    """Read a decimal number of at most 18 digits, without leading zeros and with no sign but ``-``, into two
    words: its magnitude, and 1 if it is negative, else 0. Return False for anything else, which may still be
    a number.

    >>> words = array("Q", (0, 0))
    >>> read_integer(bytearray(b"$3 -17"), 3, 6, words), list(words)
    (True, [17, 1])
    """
    assert 0 <= start <= end <= len(source)
    assert len(words) >= 2
    negative = source[start : start + 1] == b"-" and start < end
    digits = source[start + negative : end]
    if not digits.isdigit() or len(digits) > 18 or (digits[0] == 0x30 and end - start > 1):
        return False
    words[0], words[1] = int(digits), negative
    return True


def short_integer(text: bytes) -> int | None:
    """Return the number that `read_integer` would read; None for anything else, which may still be a number."""
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit() or len(digits) > 18 or (digits[0] == 0x30 and len(text) > 1):
        return None
    return int(text)


def decimal_text(value: int) -> bytes:
    """Return a number of 64 bits as decimal text."""
    return b"%d" % value


# --- RESP ---------------------------------------------------------------------------------------


_HEADERS = tuple(b"$%d" % length for length in range(513))
"""The header of a bulk string by the length of its value."""


def scan_bulks(
    source: bytearray,
    at: int,
    end: int,
    starts: array[int],
    ends: array[int],
    first: int,
    count: int,
) -> int:
    """Find consecutive bulk strings from ``at`` on, as long as they are short, canonical and complete before
    ``end``. Write the start and end positions of their values to ``starts`` and ``ends``, from index
    ``first`` to ``count``-1 at most. Return the index after the last one written; the caller has to parse
    the next bulk string in full.

    >>> starts, ends = array("Q", (0, 0, 0)), array("Q", (0, 0, 0))
    >>> scan_bulks(bytearray(b"$3\\r\\ntea\\r\\n$1\\r\\n5\\r\\n$03\\r\\ntea\\r\\n"), 0, 26, starts, ends, 0, 3)
    2
    >>> list(starts), list(ends)
    ([4, 13, 0], [7, 14, 0])
    """
    assert 0 <= at <= end <= len(source)
    assert 0 <= first <= count <= min(len(starts), len(ends))
    # One call splits all lines. A value that contains CR LF does not match its header, and the caller
    # parses it in full.
    lines = source[at : min(end, at + 512)].split(b"\r\n", 2 * (count - first))
    for number in range(0, len(lines) - 2, 2):
        header, length = lines[number], len(lines[number + 1])
        if header != _HEADERS[length]:
            break
        starts[first] = at = at + len(header) + 2
        ends[first] = at = at + length
        at += 2
        first += 1
    return first


def append_id(target: bytearray, ms: int, seq: int) -> None:
    """Append the id ``ms-seq`` as a bulk string.

    >>> made = bytearray()
    >>> append_id(made, 5, 1)
    >>> made
    bytearray(b'$3\\r\\n5-1\\r\\n')
    """
    text = b"%d-%d" % (ms, seq)
    target += b"$%d\r\n%b\r\n" % (len(text), text)


def append_header(target: bytearray, mark: int, value: int) -> None:
    """Append a line that consists of a mark and a non-negative number.

    >>> made = bytearray()
    >>> append_header(made, ord("*"), 2)
    >>> made
    bytearray(b'*2\\r\\n')
    """
    target += b"%c%d\r\n" % (mark, value)


ENTRY_HEADER_BYTES = 64
"""Length of the longest header that `append_entry` writes: a 41-byte id and a count of nine digits."""


def append_entry(
    target: bytearray, ms: int, seq: int, count: int, source: bytearray, start: int, end: int
) -> None:
    """Append a stream entry as replies contain it: an array of its id and of its ``count`` fields and
    values, which are the bytes of ``source`` from ``start`` to ``end``-1.

    >>> made = bytearray()
    >>> append_entry(made, 5, 1, 2, bytearray(b"$1\\r\\na\\r\\n$1\\r\\nb\\r\\n"), 0, 14)
    >>> made
    bytearray(b'*2\\r\\n$3\\r\\n5-1\\r\\n*2\\r\\n$1\\r\\na\\r\\n$1\\r\\nb\\r\\n')
    """
    assert 0 <= start <= end <= len(source)
    target += b"*2\r\n"
    append_id(target, ms, seq)
    append_header(target, ord("*"), count)
    target += source[start:end]


def append_fours(
    target: bytearray, source: Text, offsets: array[int], first: int, end: int, stop: int
) -> None:
    """Append entries ``first`` to ``end``-1 of ``source`` in the form in which XREADGROUP CLAIM returns new
    ones: an array of id, fields, idle time 0 and delivery count 0. `append_entry` wrote the entries at
    ``offsets``; the last one ends at ``stop``.

    >>> made, entry = bytearray(), bytearray(b"*2\\r\\n$3\\r\\n5-1\\r\\n*0\\r\\n")
    >>> append_fours(made, entry, array("I", [0]), 0, 1, len(entry))
    >>> made
    bytearray(b'*4\\r\\n$3\\r\\n5-1\\r\\n*0\\r\\n:0\\r\\n:0\\r\\n')
    """
    assert 0 <= first < end <= len(offsets)
    assert stop <= len(source)
    for at in range(first, end):
        behind = offsets[at + 1] if at + 1 < end else stop
        assert source.startswith(b"*2\r\n", offsets[at], behind)
        target += b"*4\r\n"
        target += source[offsets[at] + 4 : behind]
        target += b":0\r\n:0\r\n"


# --- words --------------------------------------------------------------------------------------


def new_words(like: array[int], count: int) -> array[int]:
    """Return an array of ``count`` words, of the type of ``like``, with arbitrary values."""
    return array(like.typecode, bytes(8 * count))


def fit_words(words: array[int], count: int) -> None:
    """Change the length and the allocated memory of ``words`` to ``count`` words. New words have arbitrary values."""
    if count < len(words):
        del words[count:]
    else:
        words.frombytes(bytes(8 * (count - len(words))))


def copy_words(target: array[int], at: int, source: array[int], start: int, count: int) -> None:
    """Copy ``count`` words of ``source``, beginning at index ``start``, to ``target``, beginning at index
    ``at``. ``source`` and ``target`` may be the same array."""
    assert 0 <= start <= len(source) - count
    assert 0 <= at <= len(target) - count
    target[at : at + count] = source[start : start + count]


def put_records(
    records: array[int], at: int, ids: array[int], first: int, count: int, third: int, fourth: int
) -> None:
    """Overwrite ``count`` records of four words from record number ``at`` on. Each record becomes an id, two words
    of ``ids`` from id number ``first`` on, followed by ``third`` and ``fourth``."""
    assert 0 <= first <= len(ids) // 2 - count
    assert 0 <= at <= len(records) // 4 - count
    for number in range(count):
        from_word = 2 * (first + number)
        made = array("Q", (ids[from_word], ids[from_word + 1], third, fourth))
        records[4 * (at + number) : 4 * (at + number + 1)] = made


def word_at(words: array[int], at: int) -> int:
    """Return the word at index ``at``."""
    assert at >= 0  # the array checks the upper bound
    return words[at]


def set_word(words: array[int], at: int, value: int) -> None:
    """Set the word at index ``at`` to ``value``."""
    assert at >= 0
    words[at] = value


def add_word(words: array[int], at: int, more: int) -> None:
    """Add ``more`` to the word at index ``at``."""
    assert at >= 0
    words[at] += more


def push_id(words: array[int], ms: int, seq: int) -> None:
    """Append an id, two words."""
    words.append(ms)
    words.append(seq)


def push_word(words: array[int], value: int) -> None:
    """Append a word."""
    words.append(value)


def insert_words(words: array[int], at: int, count: int) -> None:
    """Insert ``count`` words with arbitrary values before index ``at``."""
    assert 0 <= at <= len(words)
    words[at:at] = array("Q", bytes(8 * count))


def remove_words(words: array[int], at: int, count: int) -> None:
    """Remove ``count`` words from index ``at`` on."""
    assert 0 <= at <= len(words) - count
    del words[at : at + count]


def offset_at(offsets: array[int], at: int) -> int:
    """Return the offset at index ``at``."""
    assert at >= 0
    return offsets[at]


def set_offset(offsets: array[int], at: int, value: int) -> None:
    """Set the offset at index ``at`` to ``value``."""
    assert 0 <= at < len(offsets)
    offsets[at] = value


def push_offset(offsets: array[int], value: int) -> None:
    """Append an offset."""
    offsets.append(value)


# --- prefetching --------------------------------------------------------------------------------


def prefetch_end(numbers: array[int]) -> None:
    """Prefetch the memory at the end of ``numbers``, which will be written soon. Compiled code only."""


def prefetch_bytes_end(data: bytearray) -> None:
    """Prefetch the memory at the end of ``data``, which will be written soon. Compiled code only."""


# --- little-endian numbers in records -----------------------------------------------------------


def put_u8(target: bytearray, value: int) -> None:
    """Append one byte."""
    target.append(value)


def put_u16(target: bytearray, value: int) -> None:
    """Append an unsigned 16-bit number."""
    target += value.to_bytes(2, "little")


def put_u32(target: bytearray, value: int) -> None:
    """Append an unsigned 32-bit number."""
    target += value.to_bytes(4, "little")


def put_kind(target: bytearray, kind: int, number: int) -> None:
    """Append one byte and an unsigned 32-bit number: the kind of a fact and what it is about."""
    target += pack("<BI", kind, number)


def put_u64(target: bytearray, value: int) -> None:
    """Append an unsigned 64-bit number."""
    target += value.to_bytes(8, "little")


def put_id(target: bytearray, ms: int, seq: int) -> None:
    """Append two unsigned 64-bit numbers."""
    target += pack("<QQ", ms, seq)


def put_text(target: bytearray, text: bytes) -> None:
    """Append the length of ``text``, an unsigned 32-bit number, and ``text``."""
    target += pack("<I", len(text)) + text


def put_text_part(target: bytearray, source: bytearray, start: int, end: int) -> None:
    """Append the bytes of ``source`` from ``start`` to ``end``-1 as `put_text` does."""
    assert 0 <= start <= end <= len(source)
    put_text(target, bytes(source[start:end]))


def put_i64(target: bytearray, value: int) -> None:
    """Append a signed 64-bit number."""
    target += value.to_bytes(8, "little", signed=True)


def put_words(target: bytearray, words: array[int]) -> None:
    """Append all of ``words``, each as an unsigned 64-bit number."""
    target += pack(f"<{len(words)}Q", *words)


def set_u32(target: bytearray, at: int, value: int) -> None:
    """Overwrite the four bytes at ``at``."""
    assert 0 <= at <= len(target) - 4
    target[at : at + 4] = value.to_bytes(4, "little")


def set_u64(target: bytearray, at: int, value: int) -> None:
    """Overwrite the eight bytes at ``at``."""
    assert 0 <= at <= len(target) - 8
    target[at : at + 8] = value.to_bytes(8, "little")


def u64_at(source: bytearray, at: int) -> int:
    """Return the unsigned number in the eight bytes at ``at``."""
    assert 0 <= at <= len(source) - 8
    return int.from_bytes(source[at : at + 8], "little")
