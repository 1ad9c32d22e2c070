"""How long a command may wait, as an argument: whole milliseconds, or seconds with a fraction.

Source: Redis, timeout.c (getTimeoutFromObjectOrReply) and util.c (string2ld).
"""

from __future__ import annotations

import re
from decimal import Decimal

from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

_MOST_MS = 2**63 - 1
"""Of the steady time at which the wait is over."""
_LONGEST_TEXT = 255
_LEAST_EXPONENT, _GREATEST_EXPONENT = -4951, 4932
"""Of ten, in the long double that Redis reads."""
_DECIMAL = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,5})?")
_HEXADECIMAL = re.compile(
    rb"[+-]?0[xX](?:[\da-fA-F]+\.?[\da-fA-F]*|\.[\da-fA-F]+)(?:[pP][+-]?\d{1,4})?"
)
_INFINITY = re.compile(rb"([+-]?)(?:inf|infinity)", re.IGNORECASE)

_NO_FLOAT = "ERR timeout is not a float or out of range"
_NEGATIVE = "ERR timeout is negative"
_TOO_LARGE = "ERR timeout is out of range"


def milliseconds(arguments: Arguments, index: int, now_ms: int) -> int:
    """An argument in milliseconds (XREAD, WAIT, CLIENT PAUSE); 0 waits for ever."""
    if not arguments.find_integer(index):
        raise CommandError("ERR timeout is not an integer or out of range")
    value = arguments.number
    if value < 0:
        raise CommandError(_NEGATIVE)
    if value > _MOST_MS - now_ms:
        raise CommandError(_TOO_LARGE)
    return value


def seconds(arguments: Arguments, index: int, now_ms: int) -> int:
    """An argument in seconds (BLPOP) as whole milliseconds, rounded up; 0 waits for ever.

    >>> seconds(Arguments.of(b"0.0001"), 0, 0), seconds(Arguments.of(b"1e3"), 0, 0)
    (1, 1000000)
    """
    text = arguments.bytes(index)
    infinite = _INFINITY.fullmatch(text)
    if infinite:
        raise CommandError(_NEGATIVE if infinite[1] == b"-" else _TOO_LARGE)
    if len(text) > _LONGEST_TEXT:
        raise CommandError(_NO_FLOAT)
    try:
        exact = _exact_ms(text)
    except (ArithmeticError, ValueError):
        raise CommandError(_NO_FLOAT) from None
    if exact > _MOST_MS:
        raise CommandError(_TOO_LARGE)
    if exact < -_MOST_MS:
        raise CommandError(_NEGATIVE)
    whole = int(exact.to_integral_value(rounding="ROUND_CEILING"))
    if whole < 0:
        raise CommandError(_NEGATIVE)
    if whole > _MOST_MS - now_ms:
        raise CommandError(_TOO_LARGE)
    return whole


def _exact_ms(text: bytes) -> Decimal:
    if _DECIMAL.fullmatch(text):
        value = Decimal(text.decode())
        if value and not _LEAST_EXPONENT <= value.adjusted() <= _GREATEST_EXPONENT:
            raise ValueError(text)
        return value * 1000
    if _HEXADECIMAL.fullmatch(text):
        return Decimal(float.fromhex(text.decode())) * 1000
    raise ValueError(text)
