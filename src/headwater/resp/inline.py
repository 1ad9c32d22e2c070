"""Inline requests: a line of text with quotes, as typed by a person, instead of RESP.

The rules are those of Redis's command line. Words end at a space, tab, CR or LF; other white space
(VT, FF) may also precede the next word. ``"…"`` supports ``\\n \\r \\t \\b \\a \\xHH`` and treats any other
escaped byte as that byte. ``'…'`` supports only ``\\'``. A closing quote must be followed by white space or
the end of the line.
"""

from __future__ import annotations

from headwater.errors import ProtocolError

UNBALANCED = "Protocol error: unbalanced quotes in request"

_SPACE = b" \t\n\v\f\r"
_END_OF_WORD = b" \t\n\r"
_BACKSLASH = 0x5C
_DOUBLE = 0x22
_SINGLE = 0x27
_HEXADECIMAL = b"0123456789abcdefABCDEF"
_ESCAPES = {0x6E: 0x0A, 0x72: 0x0D, 0x74: 0x09, 0x62: 0x08, 0x61: 0x07}


def split(line: bytes) -> list[bytes]:
    """Return the words of ``line``. Raises `ProtocolError` if a quote is not closed or text follows one.

    >>> split(b'SET greeting "good\\\\x20day"')
    [b'SET', b'greeting', b'good day']
    >>> split(b"  ")
    []
    """
    words: list[bytes] = []
    position, size = 0, len(line)
    while True:
        while position < size and line[position] in _SPACE:
            position += 1
        if position == size:
            return words
        word = bytearray()
        while position < size and line[position] not in _END_OF_WORD:
            byte = line[position]
            if byte == _DOUBLE:
                position = _double_quoted(line, position + 1, word)
            elif byte == _SINGLE:
                position = _single_quoted(line, position + 1, word)
            else:
                word.append(byte)
                position += 1
        words.append(bytes(word))


def quote(word: bytes, *, always: bool = False) -> bytes:
    """Return ``word`` in the form that `split` reads: without quotes if possible, unless ``always``.

    >>> split(quote(b'a "b"\\xff\\n'))
    [b'a "b"\\xff\\n']
    """
    if (
        word
        and not always
        and not any(byte <= 0x20 or byte >= 0x7F or byte in b"\"'\\" for byte in word)
    ):
        return word
    quoted = bytearray(b'"')
    for byte in word:
        if byte in b'"\\':
            quoted += bytes((_BACKSLASH, byte))
        elif 0x20 <= byte < 0x7F:
            quoted.append(byte)
        else:
            quoted += b"\\x%02x" % byte
    quoted += b'"'
    return bytes(quoted)


def _double_quoted(line: bytes, position: int, word: bytearray) -> int:
    """Append the text up to the closing quote to ``word``. Return the position after the quote."""
    size = len(line)
    while position < size:
        byte = line[position]
        if byte == _DOUBLE:
            return _closed(line, position + 1)
        if byte == _BACKSLASH and position + 1 < size:
            escaped = line[position + 1]
            digits = line[position + 2 : position + 4]
            if escaped == 0x78 and len(digits) == 2 and not digits.strip(_HEXADECIMAL):
                word.append(int(digits, 16))
                position += 4
            else:
                word.append(_ESCAPES.get(escaped, escaped))
                position += 2
        else:
            word.append(byte)
            position += 1
    raise ProtocolError(UNBALANCED)


def _single_quoted(line: bytes, position: int, word: bytearray) -> int:
    """Do the same as `_double_quoted`, for single quotes."""
    size = len(line)
    while position < size:
        byte = line[position]
        if byte == _SINGLE:
            return _closed(line, position + 1)
        if byte == _BACKSLASH and line[position + 1 : position + 2] == b"'":
            byte = _SINGLE
            position += 1
        word.append(byte)
        position += 1
    raise ProtocolError(UNBALANCED)


def _closed(line: bytes, position: int) -> int:
    """Return ``position``, which follows a closing quote. Raises `ProtocolError` unless a word may end there."""
    if position < len(line) and line[position] not in _SPACE:
        raise ProtocolError(UNBALANCED)
    return position
