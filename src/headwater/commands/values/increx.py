"""INCREX: adds to a number within bounds, and sets its expiry.

Source: Redis's command page (8.8). As in Redis, numbers with a fraction have the precision of a ``long double``,
64 binary digits, and are shown with at most 17 decimals.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from math import inf

from headwater.commands.call import SYNTAX, Call
from headwater.commands.expire import end_of, let_expire, let_live
from headwater.commands.keys import delete_key
from headwater.commands.values.strings import UNITS, change_string
from headwater.commands.values.typed import writing
from headwater.engine.facts.facts import HEADROOM
from headwater.errors import CommandError
from headwater.resp.arguments import INTEGER_ERROR, parse_integer

Number = int | Fraction | float
"""An integer, a number with a fraction, or an infinity."""

_FLOAT = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,4})?", re.IGNORECASE)
_INFINITE = re.compile(rb"([+-]?)inf(inity)?", re.IGNORECASE)
_MOST_DIGITS = 5000
_BITS = 64
_GREATEST = Fraction((2**_BITS - 1) << (16384 - _BITS))
"""The greatest finite ``long double``."""
_DECIMALS = 17
_WITH_VALUE = frozenset({b"BYINT", b"BYFLOAT", b"LBOUND", b"UBOUND", *UNITS})
_WITHOUT = frozenset({b"SATURATE", b"PERSIST", b"ENX"})
_EXCLUSIVE = ({b"BYINT", b"BYFLOAT"}, {*UNITS, b"PERSIST"}, {b"PERSIST", b"ENX"})


def increx(call: Call) -> None:
    """INCREX key [BYINT n|BYFLOAT x] [LBOUND n] [UBOUND n] [SATURATE] [EX s|PX ms|EXAT s|PXAT ms|PERSIST] [ENX]
    → the new number and the added amount. Without SATURATE, a result out of bounds changes nothing and adds 0."""
    options = _options(call)
    kind = _Floats() if b"BYFLOAT" in options else _Integers()
    added = kind.argument(call, options.get(b"BYFLOAT", options.get(b"BYINT")), "Increment", 1)
    low = kind.argument(call, options.get(b"LBOUND"), "LBOUND", -kind.limit - kind.below)
    high = kind.argument(call, options.get(b"UBOUND"), "UBOUND", kind.limit)
    if _infinite(added):
        raise CommandError("ERR BYFLOAT increment cannot be Infinity")
    if low > high:
        raise CommandError("ERR LBOUND can't be greater than UBOUND")
    unit = next((word for word in UNITS if word in options), b"")
    if b"ENX" in options and not unit:
        raise CommandError("ERR ENX flag requires an expiration")
    at_ms = end_of(call, options[unit], *UNITS[unit], "increx") if unit else None
    key = call.arguments.bytes(1)
    current = writing(call, key, bytes)
    number = kind.stored(current)
    total = kind.sum(number, added)
    if not low <= total <= high:
        if b"SATURATE" not in options:
            kind.reply(call, number, 0)
            return
        total = high if total > high else low
    added = kind.difference(total, number)
    if b"ENX" in options and current is not None and key in call.db.expiries:
        at_ms = None
    _store(call, key, current, kind.text(total), kind.event, at_ms, b"PERSIST" in options)
    kind.reply(call, total, added)


def _options(call: Call) -> dict[bytes, int]:
    """Return the options with the positions of their values. Raises `CommandError` if they are invalid or repeated."""
    arguments, found, index = call.arguments, dict[bytes, int](), 2
    while index < arguments.count:
        word = arguments.token(index)
        valued = word in _WITH_VALUE and index + 1 < arguments.count
        if word in found or not (valued or word in _WITHOUT):
            raise CommandError(SYNTAX)
        found[word] = index + 1
        index += 1 + valued
    if any(len(found.keys() & words) > 1 for words in _EXCLUSIVE):
        raise CommandError(SYNTAX)
    return found


def _store(
    call: Call,
    key: bytes,
    current: bytes | None,
    text: bytes,
    event: bytes,
    at_ms: int | None,
    persists: bool,
) -> None:
    """Store the new value and expiry. A key whose new expiry has passed is deleted instead."""
    call.admit(5 * (HEADROOM + len(key)) + len(text))
    if at_ms is not None and at_ms <= call.now_ms:
        if current is not None:
            delete_key(call, key)
        return
    change_string(call, key, text, event)
    if at_ms is not None:
        let_expire(call, key, at_ms)
    elif persists and key in call.db.expiries:
        let_live(call, key)


class _Integers:
    """Arithmetic of 64-bit integers."""

    event = b"incrby"
    limit: Number = 2**63 - 1
    below = 1
    """Difference between ``-limit`` and the least number."""

    def argument(self, call: Call, index: int | None, name: str, default: Number) -> Number:
        if index is None:
            return default
        return call.arguments.integer(index, error=f"ERR {name} is not an integer or out of range")

    def stored(self, text: bytes | None) -> Number:
        number = 0 if text is None else parse_integer(text)
        if number is None:
            raise CommandError(INTEGER_ERROR)
        return number

    def sum(self, one: Number, other: Number) -> Number:
        return one + other

    def difference(self, total: Number, number: Number) -> Number:
        found = total - number
        if not -(2**63) <= found < 2**63:
            raise CommandError("ERR applied increment would overflow")
        return found

    def text(self, number: Number) -> bytes:
        return b"%d" % number

    def reply(self, call: Call, number: Number, added: Number) -> None:
        call.reply.array(2)
        call.reply.integer(int(number))
        call.reply.integer(int(added))


class _Floats(_Integers):
    """Arithmetic of ``long double``, on fractions rounded to its precision."""

    event = b"incrbyfloat"
    limit: Number = _GREATEST
    below = 0

    def argument(self, call: Call, index: int | None, name: str, default: Number) -> Number:
        if index is None:
            return default
        return _parsed(call.arguments.bytes(index), f"ERR {name} is not a valid float")

    def stored(self, text: bytes | None) -> Number:
        number = 0 if text is None else _parsed(text, "ERR value is not a valid float")
        if _infinite(number):
            raise CommandError("ERR value cannot be Infinity")
        return number

    def sum(self, one: Number, other: Number) -> Number:
        return _rounded(Fraction(one) + Fraction(other))

    def difference(self, total: Number, number: Number) -> Number:
        found = total if _infinite(total) else _rounded(Fraction(total) - Fraction(number))
        if _infinite(found):
            raise CommandError("ERR applied increment would be Infinity")
        return found

    def text(self, number: Number) -> bytes:
        """Format a number with as many decimals as it needs, like Redis's LD_STR_HUMAN.

        >>> _Floats().text(Fraction(21, 2)), _Floats().text(3), _Floats().text(Fraction(-1, 2**80))
        (b'10.5', b'3', b'0')
        """
        scaled = round(Fraction(number) * 10**_DECIMALS)
        # Not str(int), which refuses more than 4,300 digits.
        digits = f"{Decimal(abs(scaled)):f}".zfill(_DECIMALS + 1)
        shown = f"{digits[:-_DECIMALS]}.{digits[-_DECIMALS:]}".rstrip("0").rstrip(".")
        return (f"-{shown}" if scaled < 0 else shown).encode()

    def reply(self, call: Call, number: Number, added: Number) -> None:
        call.reply.array(2)
        call.reply.double(self.text(number))
        call.reply.double(self.text(added))


def _infinite(number: Number) -> bool:
    return isinstance(number, float)


def _parsed(text: bytes, error: str) -> Number:
    """Parse a number or an infinity. Raises `CommandError` with ``error`` for anything else."""
    infinite = _INFINITE.fullmatch(text)
    if infinite is not None:
        return -inf if infinite[1] == b"-" else inf
    if len(text) > _MOST_DIGITS or _FLOAT.fullmatch(text) is None:
        raise CommandError(error)
    found = _rounded(Fraction(Decimal(text.decode())))
    if _infinite(found):
        raise CommandError(error)
    return found


def _rounded(number: Fraction) -> Number:
    """Round to 64 binary digits. A number beyond the limit becomes an infinity."""
    if not number:
        return number
    shift = abs(number.numerator).bit_length() - number.denominator.bit_length() - _BITS
    unit = Fraction(2) ** (shift if abs(number) < Fraction(2) ** (shift + _BITS) else shift + 1)
    found = round(number / unit) * unit
    if abs(found) > _GREATEST:
        return inf if found > 0 else -inf
    return found
