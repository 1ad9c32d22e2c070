"""The kinds of settings, which parse and format values.

Parsing raises `ValueError` for an invalid value, with the text of Redis's error if Redis has one.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

KIB = 1024
MIB = 1024 * KIB
I32 = 2**31 - 1
I64 = 2**63 - 1

T = TypeVar("T")

_SUFFIXES = {
    "": 1, "b": 1, "k": 1000, "kb": KIB, "m": 1000**2, "mb": MIB, "g": 1000**3, "gb": KIB * MIB,
}  # fmt: skip

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Kind(Generic[T]):
    """Base class of the kinds of settings."""

    several = False
    """True if a value may consist of several words without quotes."""

    choices: tuple[str, ...] = ()
    """All possible values; empty if they cannot be listed."""

    def parse(self, text: str) -> T:
        """Return the value that ``text`` represents. Raises `ValueError` if it is invalid."""
        raise NotImplementedError

    def changed(self, current: T, text: str) -> T:  # noqa: ARG002 - most kinds replace the whole value
        """Return the new value of a setting when ``text`` is assigned to it while its value is ``current``."""
        return self.parse(text)

    def spell(self, value: T) -> str:
        """Format ``value`` as text that `parse` accepts."""
        return str(value)

    def report(self, value: T) -> str:
        """Format ``value`` as CONFIG GET shows it and CONFIG REWRITE writes it."""
        return self.spell(value)


class Integer(Kind[int]):
    """An integer from ``low`` to ``high``, inclusive."""

    def __init__(self, low: int = 0, high: int = I64) -> None:
        self.low = low
        self.high = high

    def parse(self, text: str) -> int:
        return self.bounded(parse_integer(text))

    def bounded(self, number: int) -> int:
        """Return ``number``; raises `ValueError` if it is out of bounds."""
        if not self.low <= number <= self.high:
            raise ValueError(f"argument must be between {self.low} and {self.high} inclusive")
        return number


class Memory(Integer):
    """A number of bytes: digits, optionally with one of Redis's size suffixes.

    >>> Memory().parse("64kb")
    65536
    """

    def parse(self, text: str) -> int:
        digits = text.rstrip("bBkKmMgG")
        unit = _SUFFIXES.get(text[len(digits) :].lower())
        if unit is None or not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            raise ValueError("argument must be a memory value")
        return self.bounded(int(digits) * unit)


class Duration(Integer):
    """A number of seconds, or a number with a unit: ``s``, ``m``, ``h`` or ``d``.

    >>> Duration().parse("7d")
    604800
    """

    def parse(self, text: str) -> int:
        digits = text.rstrip("smhdSMHD")
        unit = _SECONDS.get(text[len(digits) :].lower())
        if unit is None or not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            raise ValueError("argument must be a duration, such as 90, 90s, 15m, 24h or 7d")
        return self.bounded(int(digits) * unit)


class Boolean(Kind[bool]):
    """``yes`` or ``no``."""

    choices = ("yes", "no")

    def parse(self, text: str) -> bool:
        if text.lower() not in self.choices:
            raise ValueError("argument must be 'yes' or 'no'")
        return text.lower() == "yes"

    def spell(self, value: bool) -> str:
        return "yes" if value else "no"


class Choice(Kind[str]):
    """One of several words; case is ignored."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def parse(self, text: str) -> str:
        if text.lower() not in self.choices:
            raise ValueError(f"argument(s) must be one of the following: {', '.join(self.choices)}")
        return text.lower()


class Flags(Kind[str]):
    """Any combination of ``choices``, formatted in their order. The first choice means that none of the others is
    set. The two choices in ``pair`` exclude each other."""

    several = True

    def __init__(self, *choices: str, pair: tuple[str, str]) -> None:
        self.choices = choices
        self.pair = pair

    def parse(self, text: str) -> str:
        words = set(text.lower().split())
        if not words or not words <= set(self.choices):
            raise ValueError(f"argument(s) must be one of the following: {', '.join(self.choices)}")
        if words >= set(self.pair):
            first, second = (word.upper() for word in self.pair)
            raise ValueError(f"shutdown options {first} and {second} can't be used simultaneously")
        return " ".join(word for word in self.choices[1:] if word in words) or self.choices[0]


class Text(Kind[str]):
    """Any text."""

    def parse(self, text: str) -> str:
        return text


class MemoryOrPercent(Kind[str]):
    """A number of bytes, or a percentage of ``maxmemory``."""

    def parse(self, text: str) -> str:
        digits = text.removesuffix("%")
        if digits == text:
            try:
                return str(Memory().parse(text))
            except ValueError:
                raise ValueError("argument must be a memory or percent value") from None
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError("argument must be a memory or percent value")
        if len(digits) > 3 or int(digits) > 100:
            raise ValueError("percentage argument must be less or equal to 100")
        return text


class OtherServer(Kind[str]):
    """The host and port of another server."""

    several = True

    def parse(self, text: str) -> str:
        words = text.split()
        if len(words) != 2:
            raise ValueError("wrong number of arguments")
        try:
            Integer(0, 65535).parse(words[1])
        except ValueError:
            raise ValueError("Invalid master port") from None
        return text


class FilePath(Text):
    """A file or directory. A relative path is relative to ``dir`` (`Config.located`), as in Redis."""


class Words(Kind[tuple[str, ...]]):
    """Several words, separated by spaces."""

    several = True

    def parse(self, text: str) -> tuple[str, ...]:
        return tuple(text.split())

    def spell(self, value: tuple[str, ...]) -> str:
        return " ".join(value)


KINDS: dict[Any, Kind[Any]] = {
    int: Integer(), bool: Boolean(), str: Text(), tuple[str, ...]: Words(),
}  # fmt: skip
"""Type of a setting → its kind, unless the declaration gives another."""


def parse_integer(text: str) -> int:
    """Parse an integer of ASCII digits, optionally with a minus sign."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise ValueError("argument couldn't be parsed into an integer")
    return int(text)
