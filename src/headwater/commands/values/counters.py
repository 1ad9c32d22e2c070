"""Strings that are numbers: INCR, INCRBY, DECR, DECRBY.

Source: Redis's command pages and t_string.c (incrDecrCommand).
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.commands.values.strings import change_string
from headwater.commands.values.typed import writing
from headwater.errors import CommandError
from headwater.resp.arguments import INTEGER_ERROR, parse_integer

_LEAST, _MOST = -(2**63), 2**63 - 1


def incr(call: Call) -> None:
    """INCR key → the number, one more than before; without a key it was 0."""
    _change(call, 1)


def decr(call: Call) -> None:
    """DECR key → the number, one less than before."""
    _change(call, -1)


def incrby(call: Call) -> None:
    """INCRBY key increment → the sum."""
    _change(call, call.arguments.integer(2))


def decrby(call: Call) -> None:
    """DECRBY key decrement → the difference."""
    decrement = call.arguments.integer(2)
    if decrement == _LEAST:
        raise CommandError("ERR decrement would overflow")
    _change(call, -decrement)


def _change(call: Call, difference: int) -> None:
    key = call.key(1)
    current = writing(call, key, bytes)
    number = 0 if current is None else parse_integer(current)
    if number is None:
        raise CommandError(INTEGER_ERROR)
    number += difference
    if not _LEAST <= number <= _MOST:
        raise CommandError("ERR increment or decrement would overflow")
    change_string(call, key, b"%d" % number, b"incrby")
    call.reply.integer(number)
