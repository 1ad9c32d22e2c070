"""The kinds of settings: how a value is parsed from text and spelled as text.

Errors are `ValueError`, with Redis's text where it has one.
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


class Kind(Generic[T]):
    """A kind of setting; the base of all others."""

    several = False
    """Whether a value is several words of a line, unquoted."""

    choices: tuple[str, ...] = ()
    """Every possible value, where they can be listed."""

    def parse(self, text: str) -> T:
        """The value that ``text`` says."""
        raise NotImplementedError

    def changed(self, current: T, text: str) -> T:  # noqa: ARG002 - most kinds replace the whole
        """The value that ``text`` gives a setting whose value is ``current``."""
        return self.parse(text)

    def spell(self, value: T) -> str:
        """The text that `parse` turns into ``value``."""
        return str(value)

    def report(self, value: T) -> str:
        """The text that CONFIG GET shows and CONFIG REWRITE writes."""
        return self.spell(value)


class Integer(Kind[int]):
    """A whole number from ``low`` to ``high``."""

    def __init__(self, low: int = 0, high: int = I64) -> None:
        self.low = low
        self.high = high

    def parse(self, text: str) -> int:
        return self.bounded(parse_integer(text))

    def bounded(self, number: int) -> int:
        """``number``, if it is within the bounds."""
        if not self.low <= number <= self.high:
            raise ValueError(f"argument must be between {self.low} and {self.high} inclusive")
        return number


class Memory(Integer):
    """A number of bytes, with size suffixes.

    >>> Memory().parse("64kb")
    65536
    """

    def parse(self, text: str) -> int:
        return self.bounded(parse_memory(text))


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
    """One of several words, in any case."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def parse(self, text: str) -> str:
        if text.lower() not in self.choices:
            raise ValueError(f"argument(s) must be one of the following: {', '.join(self.choices)}")
        return text.lower()


class Text(Kind[str]):
    """Any text."""

    def parse(self, text: str) -> str:
        return text


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
"""The kind of a setting by its type, where nothing else is declared."""


def parse_integer(text: str) -> int:
    """A whole number in ASCII digits."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise ValueError("argument couldn't be parsed into an integer")
    return int(text)


def parse_memory(text: str) -> int:
    """A number of bytes: digits and a suffix of Redis's."""
    digits = text.rstrip("bBkKmMgG")
    unit = _SUFFIXES.get(text[len(digits) :].lower())
    if unit is None or not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise ValueError("argument must be a memory value")
    return int(digits) * unit
