"""Times in arguments and replies: timeouts, and times of the wall clock.

Commands use steady time (`Call.now_ms`), which never jumps. Clients send and receive times of the wall
clock, which may jump. `WallOffset` converts between the two (docs/adr/0035-steady-time.md).

Source for timeouts: Redis, timeout.c (getTimeoutFromObjectOrReply) and util.c (string2ld).
"""

from __future__ import annotations

import re
from decimal import Decimal

from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

_MOST_MS = 2**63 - 1
"""Latest steady time at which a wait may end, in milliseconds."""
_MAX_I64 = 2**63 - 1
_LONGEST_TEXT = 255
_LEAST_EXPONENT, _GREATEST_EXPONENT = -4951, 4932
"""Range of the decimal exponents of a ``long double``. Redis parses timeouts as this type."""
_DECIMAL = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,5})?")
_HEXADECIMAL = re.compile(
    rb"[+-]?0[xX](?:[\da-fA-F]+\.?[\da-fA-F]*|\.[\da-fA-F]+)(?:[pP][+-]?\d{1,4})?"
)
_INFINITY = re.compile(rb"([+-]?)(?:inf|infinity)", re.IGNORECASE)

_NO_FLOAT = "ERR timeout is not a float or out of range"
_NEGATIVE = "ERR timeout is negative"
_TOO_LARGE = "ERR timeout is out of range"


class WallOffset:
    """Offset of the wall clock from steady time, in milliseconds. Converts times between the two.

    >>> wall = WallOffset()
    >>> wall.ahead_ms = -3_600_000
    >>> wall.steady_ms(1_700_000_000_000), wall.wall_ms(1_700_003_600_000)
    (1700003600000, 1700000000000)

    Results are from 0 to the greatest signed 64-bit integer.
    """

    def __init__(self) -> None:
        self.ahead_ms = 0
        """Milliseconds by which the wall clock is ahead of steady time; negative if it is behind."""

    def steady_ms(self, wall_ms: int) -> int:
        """Return the steady time at which the wall clock, with its current offset, shows ``wall_ms``."""
        return min(max(0, wall_ms - self.ahead_ms), _MAX_I64)

    def wall_ms(self, steady_ms: int) -> int:
        """Return the time that the wall clock, with its current offset, shows at ``steady_ms``."""
        return min(max(0, steady_ms + self.ahead_ms), _MAX_I64)

    def copy(self) -> WallOffset:
        """Return a copy with the current offset, for an offloaded job, during which the offset may change."""
        made = WallOffset()
        made.ahead_ms = self.ahead_ms
        return made


def milliseconds(arguments: Arguments, index: int, now_ms: int) -> int:
    """Parse a timeout in milliseconds (XREAD, WAIT, CLIENT PAUSE); 0 means no timeout. Raises `CommandError`."""
    if not arguments.find_integer(index):
        raise CommandError("ERR timeout is not an integer or out of range")
    value = arguments.number
    if value < 0:
        raise CommandError(_NEGATIVE)
    if value > _MOST_MS - now_ms:
        raise CommandError(_TOO_LARGE)
    return value


def seconds(arguments: Arguments, index: int, now_ms: int) -> int:
    """Parse a timeout in seconds (BLPOP). Return whole milliseconds, rounded up; 0 means no timeout. Raises
    `CommandError`.

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
    """Parse a number of seconds. Return it in milliseconds, unrounded. Raises `ValueError` if it is not a number."""
    if _DECIMAL.fullmatch(text):
        value = Decimal(text.decode())
        if value and not _LEAST_EXPONENT <= value.adjusted() <= _GREATEST_EXPONENT:
            raise ValueError(text)
        return value * 1000
    if _HEXADECIMAL.fullmatch(text):
        return Decimal(float.fromhex(text.decode())) * 1000
    raise ValueError(text)
