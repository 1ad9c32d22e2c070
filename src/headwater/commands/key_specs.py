"""Where the keys of a request stand, as a command's row says it.

Redis describes it by key specifications: a begin (an argument, or the word behind which keys
follow) and a range. Where these cannot say it all, a row names a finder of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headwater.resp.arguments import Arguments


class KeySpec(NamedTuple):
    """One specification, as COMMAND INFO shows it.

    Keys begin at argument ``begin``, or behind ``keyword``, which is looked for from ``begin`` on.
    ``last`` counts from there (0: that one) or, below 0, from the end of the request. With
    ``limit`` n only the first 1/n of the arguments to the end are keys (XREAD: half).
    ``step`` 2 passes over what stands between keys (MSET). With ``counted``, ``begin`` is where the
    number of keys stands, and they follow it (EVAL).
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
        """``RW update 1``, ``RM delete 1:-1`` (to the end), ``RO access STREAMS/4:-1:2``, ``OW
        update 1:-1:0:2``: begin, last, limit, step; ``RO access 2#``: counted.

        >>> KeySpec.parse("RM delete 1:-1")
        KeySpec(flags=('RM', 'delete'), begin=1, keyword='', last=-1, limit=0, step=1, counted=False)
        """
        *flags, place = text.split()
        keyword, _, numbers = place.rpartition("/")
        given = list(map(int, numbers.removesuffix("#").split(":")))
        begin, last, limit, step = (*given, *(0, 0, 0, 1)[len(given) :])
        return cls(tuple(flags), begin, keyword, last, limit, step, numbers.endswith("#"))

    def positions(self, arguments: Arguments) -> range:
        """The arguments that are keys by this specification; empty when there are none."""
        first = self.begin
        if self.counted:
            count = arguments.integer(first, default=0) if first < arguments.count else 0
            return range(first + 1, min(first + 1 + max(0, count), arguments.count))
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
    """Where keys stand, as older clients read it off COMMAND: 0, 0, 0 for none or for words."""

    first: int
    last: int
    step: int

    @classmethod
    def over(cls, specs: tuple[KeySpec, ...]) -> KeyRange:
        """The range of the first specification and of those that follow on it without a gap.

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
    """A key's place in the request and the flags under which it is used."""

    position: int
    flags: tuple[str, ...]


def xsettle_destinations(arguments: Arguments, specs: tuple[KeySpec, ...]) -> list[FoundKey]:
    """The key of XSETTLE and every ``dest`` behind TO; what follows FIELDS is data, not words."""
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
    """The keys of XREAD and XREADGROUP, with their options passed over as the commands do it: a group
    or a consumer may be called ``streams``, and what follows it is not what is read. A request that is
    sure to fail (``COUNT STREAMS``) has the keys that Redis finds in it."""
    position, count = 1, arguments.count
    places = specs[0].positions(arguments)
    while position < count:
        word = arguments.token(position)
        if word == b"STREAMS":
            first = position + 1
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
"""How many arguments an option of theirs takes up."""


def set_key(arguments: Arguments, specs: tuple[KeySpec, ...]) -> list[FoundKey]:
    """The key of SET, which is read only with GET (Redis, db.c, setGetKeys)."""
    position = specs[0].begin
    if any(arguments.token(index) == b"GET" for index in range(3, arguments.count)):
        return [FoundKey(position, ("RW", "access", "update"))]
    return [FoundKey(position, ("OW", "update"))]


Finder = Callable[[Arguments, tuple[KeySpec, ...]], list[FoundKey]]

FINDERS: dict[str, Finder] = {
    "xsettle": xsettle_destinations,
    "streams": streams_read,
    "set": set_key,
}


def find_keys(arguments: Arguments, specs: tuple[KeySpec, ...], finder: str = "") -> list[FoundKey]:
    """Every key of a request, in the order of its specifications.

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
