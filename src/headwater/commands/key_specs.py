"""Finds the keys of a request, by the key specifications in the declaration of its command.

As in Redis, a specification has a begin (an argument, or a keyword before the keys) and a range. If
specifications do not suffice, the declaration names a finder, a function of this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from headwater.resp.arguments import Arguments

_LEADING_INTEGER = re.compile(rb"\s*[+-]?[0-9]{1,18}")
"""Text that Redis reads as the number of keys (atoi): a request with ``1.5`` keys fails, but has one key."""


class KeySpec(NamedTuple):
    """One specification, as COMMAND INFO shows it.

    Keys begin at argument ``begin``, or after ``keyword``, which is searched from ``begin`` on. ``last`` is the
    position of the last key, relative to the first (0: only one key) or, if negative, to the end of the request.
    With ``limit`` n, only the first 1/n of the remaining arguments are keys (XREAD: half). ``step`` is the distance
    between keys (MSET: 2). With ``counted``, argument ``begin`` is the number of the keys that follow it (EVAL).
    """

    flags: tuple[str, ...]
    begin: int
    keyword: str = ""
    last: int = 0
    limit: int = 0
    step: int = 1
    counted: bool = False

    @classmethod
    def parse(cls, text: str) -> KeySpec:
        """Parse ``RW update 1``, ``RM delete 1:-1`` (to the end), ``RO access STREAMS/4:-1:2`` or ``OW
        update 1:-1:0:2``: flags, then begin, last, limit and step; ``RO access 2#`` is counted.

        >>> KeySpec.parse("RM delete 1:-1")
        KeySpec(flags=('RM', 'delete'), begin=1, keyword='', last=-1, limit=0, step=1, counted=False)
        """
        *flags, place = text.split()
        keyword, _, numbers = place.rpartition("/")
        given = list(map(int, numbers.removesuffix("#").split(":")))
        begin, last, limit, step = (*given, *(0, 0, 0, 1)[len(given) :])
        return cls(tuple(flags), begin, keyword, last, limit, step, numbers.endswith("#"))

    def positions(self, arguments: Arguments) -> range:
        """Return the positions of the keys that match this specification; the range may be empty."""
        first = self.begin
        if self.counted:
            given = (
                _LEADING_INTEGER.match(arguments.bytes(first)) if first < arguments.count else None
            )
            count = min(int(given[0]), arguments.count) if given else 0
            last = first + 1 + (count - 1) * self.step
            if (
                not first < last < arguments.count
            ):  # as in Redis, no keys if the number is greater than that of the arguments
                return range(0)
            return range(first + 1, last + 1, self.step)
        if self.keyword:
            wanted = self.keyword.encode()
            while first < arguments.count and arguments.token(first) != wanted:
                first += 1
            first += 1
        if self.limit:
            last = first + (arguments.count - first) // self.limit + self.last
        elif self.last < 0:
            last = arguments.count + self.last
        else:
            last = first + self.last
        return range(first, min(last, arguments.count - 1) + 1, self.step)


class KeyRange(NamedTuple):
    """First, last and step in the reply of COMMAND, for older clients. All are 0 if no key is at a fixed place."""

    first: int
    last: int
    step: int

    @classmethod
    def over(cls, specs: tuple[KeySpec, ...]) -> KeyRange:
        """Return the range of the first specification and of specifications that follow it without a gap.

        >>> KeyRange.over((KeySpec.parse("RW 1"), KeySpec.parse("OW 2")))
        KeyRange(first=1, last=2, step=1)
        """
        if not specs or specs[0].keyword or specs[0].counted:
            return cls(0, 0, 0)
        first = specs[0].begin
        last = first + specs[0].last if specs[0].last >= 0 else specs[0].last
        for spec in specs[1:]:
            if not spec.keyword and spec.begin == last + 1 and spec.last == 0:
                last += 1
        return cls(first, last, specs[0].step)


class FoundKey(NamedTuple):
    """The position of a key in the request, and the flags of its specification."""

    position: int
    flags: tuple[str, ...]


def xsettle_destinations(arguments: Arguments, specs: tuple[KeySpec, ...]) -> list[FoundKey]:
    """Return the keys of XSETTLE: its stream and the destination of each TO. Arguments of FIELDS are data."""
    found = [FoundKey(1, specs[0].flags)]
    position, count = 5, arguments.count
    while position < count:
        word = arguments.token(position)
        if word == b"TO":
            if position + 1 < count:
                found.append(FoundKey(position + 1, specs[-1].flags))
            position += 2
        elif word == b"DELAY":
            position += 2
        elif word == b"IDS" and position + 1 < count:
            position += 2 + max(0, arguments.integer(position + 1, default=0))
        elif word == b"FIELDS" and position + 1 < count:
            position += 2 + 2 * max(0, arguments.integer(position + 1, default=0))
        else:
            position += 1
    return found


def streams_read(arguments: Arguments, specs: tuple[KeySpec, ...]) -> list[FoundKey]:
    """Return the keys of XREAD and XREADGROUP.

    Options are parsed as the commands parse them, because a group or consumer may be named ``streams``.
    For an invalid request (``COUNT STREAMS``), the keys are those that Redis finds in it.
    """
    position, count = 1, arguments.count
    places = specs[0].positions(arguments)
    while position < count:
        word = arguments.token(position)
        if word == b"STREAMS":
            first = position + 1
            if position >= specs[0].begin:
                places = range(first, first + (count - first) // 2)
            break
        taken = _READING_WORDS.get(word)
        if taken is None or position + 1 == count:
            break
        if taken == _NUMBER and arguments.token(position + 1) == b"STREAMS":
            break
        position += taken
    return [FoundKey(at, specs[0].flags) for at in places]


_NUMBER = 2
_READING_WORDS = {b"GROUP": 3, b"NOACK": 1} | dict.fromkeys(
    (b"COUNT", b"BLOCK", b"MAXCOUNT", b"MAXSIZE", b"CLAIM"), _NUMBER
)
"""Option → number of its arguments, including its name."""


def set_key(arguments: Arguments, specs: tuple[KeySpec, ...]) -> list[FoundKey]:
    """Return the key of SET. Its value is read only with GET or a condition on it (Redis, db.c, setGetKeys)."""
    position = specs[0].begin
    if any(arguments.token(index) in _READING for index in range(3, arguments.count)):
        return [FoundKey(position, ("RW", "access", "update"))]
    return [FoundKey(position, ("OW", "update"))]


_READING = frozenset({b"GET", b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"})


def delex_key(arguments: Arguments, specs: tuple[KeySpec, ...]) -> list[FoundKey]:
    """Return the key of DELEX. Its value is read only with a condition (Redis, db.c, delexGetKeys)."""
    flags = ("RW", "access", "delete") if arguments.count > 2 else ("RM", "delete")
    return [FoundKey(specs[0].begin, flags)]


Finder = Callable[[Arguments, tuple[KeySpec, ...]], list[FoundKey]]

FINDERS: dict[str, Finder] = {
    "xsettle": xsettle_destinations,
    "streams": streams_read,
    "set": set_key,
    "delex": delex_key,
}


def find_keys(arguments: Arguments, specs: tuple[KeySpec, ...], finder: str = "") -> list[FoundKey]:
    """Return every key of a request, in the order of its specifications.

    >>> request = Arguments.of(b"XREAD", b"STREAMS", b"a", b"b", b"0", b"0")
    >>> specs = (KeySpec.parse("RO access STREAMS/1:-1:2"),)
    >>> [key.position for key in find_keys(request, specs)]
    [2, 3]
    """
    if finder:
        return FINDERS[finder](arguments, specs)
    return [
        FoundKey(position, spec.flags)
        for spec in specs
        if "not_key" not in spec.flags  # a shard channel, which clusters place like a key
        for position in spec.positions(arguments)
    ]
