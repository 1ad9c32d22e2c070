"""`Limit`, which limits the rate at which a group's entries start, or the number that run at once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, get_type_hints

from headwater.common.durations import LONGEST_MS, milliseconds
from headwater.errors import DeclarationError
from headwater.groups.reading.limits import LimitPlace, Token, limit_state_key
from headwater.worker.declare.stream import Stream

MOST_PLACES = 1_000
"""The largest ``concurrent``. At each start of an entry the server examines all running entries of its key."""

MOST_BURST = 1_000_000

MOST_LIMITS = 8

MOST_KEY_CHARACTERS = 200
"""Length in characters up to which a key is used as it is. A longer key is replaced by its digest."""

By = str | Callable[[Any], Any] | None


class Limit:
    """A limit on the rate of starts, or on the entries that run at once, in all workers of a consumer's group.

    >>> Limit(100, per="1s", burst=20), Limit(concurrent=3, by="customer")
    (Limit(100, per='1s', burst=20), Limit(concurrent=3, by='customer'))

    - ``rate``, ``per``: up to ``rate`` entries start in each ``per``, evenly spaced: ``Limit(100, per="1s")``.
    - ``burst``: maximum number of starts in one go after a time with fewer; default 1. Within any time t, at most
      ``burst`` entries start in addition to those that ``rate`` allows in t + 20 ms. A retry is a start as well.
    - ``concurrent``: maximum number of entries that run at once, at most 1,000; without ``rate``.
    - ``by``: the name of an attribute of the message, or a function of the message, that gives its key. Each key has
      a limit of its own. A message whose key is None is not limited.

    An entry that must wait does not use an attempt or a slot. Each item of a batch counts. Raises
    `DeclarationError` for values out of range. The server needs Lua.
    """

    __module__ = "headwater"

    def __init__(
        self,
        rate: float | None = None,
        *,
        per: str | timedelta | None = None,
        burst: int | None = None,
        concurrent: int | None = None,
        by: By = None,
    ) -> None:
        self.rate, self.per, self.burst, self.concurrent, self.by = rate, per, burst, concurrent, by
        if (rate is None) == (concurrent is None):
            raise DeclarationError(
                f"{self}: give either rate and per, as in Limit(100, per='1s'), or concurrent, as in "
                "Limit(concurrent=3). For both, declare limit=[Limit(…), Limit(…)]"
            )
        self.every_us = 0.0
        """Time between two starts, in microseconds; 0 without ``rate``."""
        self.burst_us = 0.0
        """Maximum time without starts that a burst may make up for, in microseconds."""
        if rate is None:
            self._check_places()
        else:
            self._check_rate(rate)
        named: object = by
        if not (by is None or callable(by) or (isinstance(named, str) and named)):
            raise DeclarationError(
                f"{self}: by must be the name of an attribute of the message, or a function of the message, as in "
                "by='customer'"
            )

    def __repr__(self) -> str:
        words = [] if self.rate is None else [repr(self.rate)]
        for name in ("per", "burst", "concurrent", "by"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"{name}={value!r}")
        return f"Limit({', '.join(words)})"

    def _check_places(self) -> None:
        if not _is_whole(self.concurrent, MOST_PLACES):
            raise DeclarationError(
                f"{self}: concurrent must be a whole number from 1 to {MOST_PLACES:,}"
            )
        if self.per is not None or self.burst is not None:
            raise DeclarationError(f"{self}: per and burst belong to a rate, not to concurrent")

    def _check_rate(self, rate: float) -> None:
        if not _is_rate(rate):
            raise DeclarationError(f"{self}: the rate must be a number above 0")
        if self.per is None:
            raise DeclarationError(f"{self}: a rate needs per, as in Limit(100, per='1s')")
        if self.burst is not None and not _is_whole(self.burst, MOST_BURST):
            raise DeclarationError(f"{self}: burst must be a whole number from 1 to {MOST_BURST:,}")
        self.every_us = 1000 * milliseconds(self.per, what="per") / rate
        self.burst_us = self.every_us * ((self.burst or 1) - 1)
        if self.every_us < 1:
            raise DeclarationError(f"{self}: this is more than a million a second")
        if self.every_us + self.burst_us > 1000 * LONGEST_MS:
            raise DeclarationError(f"{self}: one start, or the burst, needs more than 366 days")

    def key_of(self, message: Any) -> str | None:
        """Return the key of a message; None if this limit does not apply to it. Raises what ``by`` raises."""
        if self.by is None:
            return ""
        if callable(self.by):
            value = self.by(message)
        elif isinstance(message, Mapping):
            value = message[self.by]
        else:
            value = getattr(message, self.by)
        if value is None:
            return None
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        if len(text) > MOST_KEY_CHARACTERS:
            text = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        return text.encode("utf-8", "replace").decode()


def _is_whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


class ConsumerLimits(NamedTuple):
    """The limits of one consumer, as its gate uses them."""

    limits: tuple[Limit, ...]
    home: str
    """The stream whose hash slot holds the state of the rates; for a partition, the name of the whole stream."""

    def needs(
        self, message: Any, stream: str, group: str
    ) -> tuple[Sequence[Token], Sequence[LimitPlace]]:
        """Return the tokens and places that an entry of ``stream`` needs to start. Raises what ``by`` raises."""
        tokens, places = [], []
        for number, one in enumerate(self.limits):
            key = one.key_of(message)
            if key is None:
                continue
            has_line = one.by is not None
            if one.concurrent is None:
                name = limit_state_key(self.home, group, f"rate{number}", key)
                tokens.append(Token(name, one.every_us, one.burst_us, has_line))
            else:
                name = limit_state_key(stream, group, f"places{number}", key)
                places.append(LimitPlace(name, one.concurrent, has_line))
        places.sort(key=lambda one: not one.in_line)
        return tokens, places

    @property
    def text(self) -> str:
        """The limits as text, to compare them with those of other workers. A function appears only by its name."""
        found = []
        for one in self.limits:
            by = getattr(one.by, "__qualname__", "a function") if callable(one.by) else one.by
            found.append(f"{one.every_us} {one.burst_us} {one.concurrent} {by}")
        return "; ".join(found)

    @property
    def have_keys(self) -> bool:
        """True if one of the limits applies to each key separately."""
        return any(one.by is not None for one in self.limits)

    @property
    def have_places(self) -> bool:
        """True if one of the limits is on the entries that run at once."""
        return any(one.concurrent is not None for one in self.limits)


def declared_limits(limit: Any, stream: Stream[Any]) -> ConsumerLimits | None:
    """Return the limits that a consumer of ``stream`` declares. Raises `DeclarationError`."""
    if limit is None:
        return None
    limits = tuple(limit) if isinstance(limit, list | tuple) else (limit,)
    if not limits or not all(isinstance(one, Limit) for one in limits):
        raise DeclarationError(f"limit={limit!r} must be a Limit, or a list of them")
    if len(limits) > MOST_LIMITS:
        raise DeclarationError(
            f"limit= has {len(limits)} limits, but at most {MOST_LIMITS} are allowed"
        )
    for one in limits:
        if one.concurrent is not None and one.by is None and stream.partitions is not None:
            raise DeclarationError(
                f"{one}: the entries that run at once are limited in each partition of {stream.name!r} separately. Set by= "
                "to the key that decides the partition, or use a stream without partitions"
            )
        if isinstance(one.by, str):
            _check_attribute(one, stream)
    return ConsumerLimits(limits, stream.name)


def _check_attribute(limit: Limit, stream: Stream[Any]) -> None:
    """Raise `DeclarationError` if messages of the stream cannot have the attribute that ``by`` names."""
    try:
        known = get_type_hints(stream.type)
    except (TypeError, NameError):
        return  # not a class, or a class whose annotations cannot be evaluated here
    if known and limit.by not in known and not hasattr(stream.type, str(limit.by)):
        raise DeclarationError(
            f"{limit}: messages of {stream.name!r} have no attribute {limit.by!r}, only {', '.join(known)}"
        )
