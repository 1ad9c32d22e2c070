"""Patterns for the names of streams: globs as in Redis, and regular expressions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from headwater.commands.globs import matches
from headwater.errors import DeclarationError

_LONGEST: Final = 10_000
_LITERAL: Final = re.compile(r"[\w:-]*", re.ASCII)
"""Matches the characters at the beginning of a regular expression that stand for themselves."""


@dataclass(frozen=True)
class StreamPattern:
    """A pattern: a glob or, if ``regular`` is true, a regular expression that must match the whole name."""

    text: str
    regular: bool = False

    def __str__(self) -> str:
        return self.text

    def matches(self, stream: str) -> bool:
        """Return whether the pattern matches a stream's name.

        >>> StreamPattern("orders.*").matches("orders.eu"), StreamPattern("a|b.+", regular=True).matches("bc")
        (True, True)
        """
        if self.regular:
            return re.fullmatch(self.text, stream) is not None
        return matches(self.text.encode(), stream.encode())

    @property
    def glob(self) -> str:
        """A glob for SCAN that matches at least the names that the pattern matches.

        >>> StreamPattern("orders:[eu].+", regular=True).glob, StreamPattern("a|b", regular=True).glob
        ('orders:*', '*')
        """
        if not self.regular:
            return self.text
        if "|" in self.text:
            return "*"  # alternatives may begin differently
        start = _LITERAL.match(self.text)
        assert start is not None, "it matches the empty text"
        literal = start.group()
        if self.text[len(literal) : len(literal) + 1] in tuple("*?+{"):
            literal = literal[:-1]  # a repeated character may be absent
        return literal + "*"


def regular(name: str, text: str) -> StreamPattern:
    """Parse the option ``name``, a regular expression for streams' names."""
    if not text:
        raise DeclarationError(
            f'{name}: the pattern is empty; write for example "orders[.](eu|us)"'
        )
    if len(text) > _LONGEST:
        raise DeclarationError(f"{name}: the pattern has more than {_LONGEST} characters")
    try:
        re.compile(text)
    except re.error as error:
        raise DeclarationError(
            f"{name}: {text!r} is not a valid regular expression: {error}. For a glob as in Redis, such as "
            "orders.*, use the option stream instead"
        ) from None
    return StreamPattern(text, regular=True)
