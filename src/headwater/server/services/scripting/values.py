"""Converts replies to Lua values and Lua values to replies, by Redis's conversion table.

    RESP              Lua                             RESP
    integer           number                          integer (cut, not rounded)
    bulk string       string                          bulk string
    nil               false (RESP3's: nil)            nil
    status            {ok = text}                     status
    error             {err = text}                    error
    array             table with indexes from 1       array, up to the first nil
    map, set          {map = {…}}, {set = {…}}        the same
    double, boolean   {double = n}, true or false     the same; true is 1 for a RESP2 client

Between Python and Lua a value is a list of words, because a table that one creates for the other
costs more than a word. replies.lua is the Lua part. A text, a number, False or None is a value of one
word; True begins any other value:

    True, 2, WORDS, WORDS             an array of two values
    True, b"true"                     true
    True, b"ok", TEXT                 a status; the same with err, double and big_number
    True, b"counted_err", TEXT        an error that statistics have counted
    True, b"map", 1, WORDS, WORDS     a map of one pair
    True, b"set", 1, WORDS            a set of one member
    True, b"verbatim_string", FORMAT, TEXT

Source: redis.io, Redis Lua API reference, data type conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from math import copysign, isfinite, isnan
from typing import Any

from headwater.errors import CommandError
from headwater.resp.replies import ReplyWriter
from headwater.server.services.observability.observer import CountedError


class ScriptFailed(Exception):
    """An error of a command or function called by a script. ``counted`` is True if statistics have counted it."""

    def __init__(self, text: bytes, *, counted: bool = False) -> None:
        super().__init__(text)
        self.counted = counted


def reply_words(data: bytearray) -> Any:
    """Convert a reply to a word or a list of words. Raises `ScriptFailed` for an error reply."""
    kind = data[0]
    if kind == _INTEGER:
        return int(data[1:-2])
    if kind == _BULK:
        end = data.index(b"\r\n", 1)
        return bytes(data[end + 2 : -2]) if data[1] != _MINUS else False
    if kind == _ERROR:
        raise ScriptFailed(bytes(data[1:-2]))
    decoder = _ReplyDecoder(data)
    decoder.value()
    return decoder.words if len(decoder.words) > 1 else decoder.words[0]


_INTEGER, _BULK, _ERROR, _ARRAY, _STATUS, _MINUS = b":$-*+-"


class _ReplyDecoder:
    """Appends the words of a reply to ``words``."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._at = 0
        self.words: list[Any] = []

    def value(self) -> None:
        data, start, words = self._data, self._at, self.words
        kind = data[start]
        end = data.index(b"\r\n", start)
        rest = data[start + 1 : end]
        self._at = end + 2
        if kind == _BULK:
            words.append(False if rest == b"-1" else self._text(int(rest)))
        elif kind == _INTEGER:
            words.append(int(rest))
        elif kind == _ARRAY:
            self._items(rest)
        elif kind == _STATUS:
            words += (True, b"ok", bytes(rest))
        elif kind == _ERROR:  # inside another reply, as in EXEC's
            words += (True, b"err", bytes(rest))
        else:
            self._resp3(kind, rest)

    def _items(self, count: bytearray) -> None:
        if count == b"-1":
            self.words.append(False)
            return
        self.words += (True, int(count))
        for _ in range(int(count)):
            self.value()

    def _resp3(self, kind: int, rest: bytearray) -> None:
        words = self.words
        if kind == ord("_"):
            words.append(None)
        elif kind == ord("#"):
            words += (True, b"true") if rest == b"t" else (False,)
        elif kind == ord(","):
            words += (True, b"double", float(rest))
        elif kind in b"%~":
            words += (True, b"map" if kind == ord("%") else b"set", int(rest))
            for _ in range(int(rest) * (2 if kind == ord("%") else 1)):
                self.value()
        elif kind == ord("="):
            text = self._text(int(rest))
            words += (True, b"verbatim_string", text[:3], text[4:])
        else:
            raise AssertionError(f"unexpected type of reply: {kind!r}")

    def _text(self, length: int) -> bytes:
        text = bytes(self._data[self._at : self._at + length])
        self._at += length + 2
        return text


def write_word(reply: ReplyWriter, word: Any, *, says_false: bool) -> None:
    """Write a value that is a single word. False is written as nil unless ``says_false``: the script itself has
    selected RESP3 (redis.setresp)."""
    if isinstance(word, bytes):
        reply.bulk(word)
    elif word is None or (word is False and not says_false):
        reply.nil()
    elif isinstance(word, bool):
        reply.boolean(word)
    else:
        reply.integer(_integer(word))


def write_words(
    reply: ReplyWriter, words: Sequence[Any], *, says_false: bool
) -> list[CommandError]:
    """Write the value that a script returned. Return the errors in it."""
    following, errors = iter(words), list[CommandError]()
    for word in following:
        if word is not True:
            write_word(reply, word, says_false=says_false)
            continue
        kind = next(following)
        if kind in _ERRORS:
            errors.append(_ERRORS[kind](next(following).decode("utf-8", "surrogateescape")))
            reply.error(str(errors[-1]))
        elif isinstance(kind, bytes):
            _WRITERS[kind](reply, following)
        else:
            reply.array(kind)
    return errors


def _write_status(reply: ReplyWriter, words: Any) -> None:
    reply.simple(_one_line(next(words)))


def _write_double(reply: ReplyWriter, words: Any) -> None:
    reply.double(number_text(next(words)).replace(b"-nan", b"nan"))


def number_text(number: float) -> bytes:
    """Return a number with the fewest digits that stand for it, in the notation of Redis 8.

    >>> [number_text(number) for number in (3.0, 3.3, 0.00001, 1e-7, 2.0**63, 1e300)]
    [b'3', b'3.3', b'0.00001', b'1e-7', b'9223372036854776000', b'1e+300']
    """
    if abs(number) < 2**63 and number == int(number):
        return b"%d" % int(number)
    if not isfinite(number):
        return b"-nan" if isnan(number) and copysign(1, number) < 0 else b"%g" % number
    shortest = Decimal(repr(float(number))).normalize()
    zeros, leading = int(shortest.as_tuple().exponent), shortest.adjusted()
    plain = (
        leading < len(shortest.as_tuple().digits) + 7
        if zeros >= 0
        else zeros > -7 or abs(leading) < 4
    )
    return format(shortest, "f" if plain else "e").encode()


def _write_big_number(reply: ReplyWriter, words: Any) -> None:
    text = _one_line(next(words))
    if reply.resp == 3:
        reply.raw(b"(%b\r\n" % text)
    else:
        reply.bulk(text)


def _write_verbatim(reply: ReplyWriter, words: Any) -> None:
    form, text = next(words), next(words)
    reply.verbatim(text, form[:3].ljust(3))


_ERRORS: dict[object, type[CommandError]] = {b"err": CommandError, b"counted_err": CountedError}

_WRITERS: dict[bytes, Callable[[ReplyWriter, Any], None]] = {
    b"true": lambda reply, _words: reply.boolean(True),
    b"ok": _write_status,
    b"double": _write_double,
    b"big_number": _write_big_number,
    b"verbatim_string": _write_verbatim,
    b"map": lambda reply, words: reply.map(next(words)),
    b"set": lambda reply, words: reply.set(next(words)),
}


def _one_line(text: bytes) -> bytes:
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


def _integer(number: int | float) -> int:
    """Convert a Lua number to an integer reply, as a cast in C does."""
    if isinstance(number, int):
        return max(-(2**63), min(number, 2**63 - 1))
    return int(number) if -(2**63) <= number < 2**63 else -(2**63)
